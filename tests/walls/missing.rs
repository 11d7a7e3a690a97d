//! Layers the host does not offer: no box rather than a weaker one.

use std::path::PathBuf;
use std::process::Command;

use crate::outside::{PRELUDE, run};
use crate::support::{self, Ran, World};

/// `deny WHAT... -- COMMAND`: runs the command where the kernel seems to lack things. The
/// filter is inherited, so it holds for the launcher and for all it starts.
const DENY: &str = r#"
#define ARG(n) (offsetof(struct seccomp_data, args) + 8 * (n))
static struct sock_filter code[256];
static int length;
static void add(struct sock_filter one) { code[length++] = one; }
static void answer(int number, int error) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}
/* The call is answered with the error if an argument has one of the bits, or equals the value. */
static void answer_if(int number, int argument, unsigned value, int bits, int error) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4));
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG(argument)));
    add((struct sock_filter)BPF_JUMP(BPF_JMP | (bits ? BPF_JSET : BPF_JEQ) | BPF_K, value, 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0));
}
static void no_namespace(unsigned flag) {
    answer(SYS_clone3, ENOSYS); /* as containers do: a filter cannot read its flags */
    answer_if(SYS_clone, 0, flag, 1, EPERM);
    answer_if(SYS_unshare, 0, flag, 1, EPERM);
}
int main(int argc, char **argv) {
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0));
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--"); at++) {
        const char *what = argv[at];
        if (!strcmp(what, "user")) no_namespace(CLONE_NEWUSER);
        else if (!strcmp(what, "net")) no_namespace(CLONE_NEWNET);
        else if (!strcmp(what, "pid")) no_namespace(CLONE_NEWPID);
        else if (!strcmp(what, "clone3")) answer(SYS_clone3, ENOSYS);
        else if (!strcmp(what, "landlock")) answer(444, ENOSYS);
        else if (!strcmp(what, "landlock-off")) answer(444, EOPNOTSUPP);
        else if (!strcmp(what, "landlock-rule")) answer(445, EINVAL);
        else if (!strcmp(what, "landlock-self")) answer(446, EPERM);
        else if (!strcmp(what, "seccomp")) answer(SYS_seccomp, ENOSYS);
        else if (!strcmp(what, "seccomp-load")) answer_if(SYS_seccomp, 0, 1, 0, EINVAL);
        else if (!strcmp(what, "listener")) answer_if(SYS_seccomp, 1, 8, 1, EBUSY);
        else if (!strcmp(what, "nnp")) answer_if(SYS_prctl, 0, PR_SET_NO_NEW_PRIVS, 0, EINVAL);
        else if (!strcmp(what, "bounding")) answer_if(SYS_prctl, 0, PR_CAPBSET_DROP, 0, EPERM);
        else if (!strcmp(what, "capset")) answer(SYS_capset, EPERM);
        else if (!strcmp(what, "keyring")) answer(SYS_keyctl, EPERM);
        else if (!strcmp(what, "mounts")) answer(SYS_move_mount, EPERM);
        else if (!strcmp(what, "attributes")) answer(SYS_mount_setattr, ENOSYS);
        else if (!strcmp(what, "root")) answer(SYS_pivot_root, EPERM);
        else if (!strcmp(what, "limits")) answer_if(SYS_prlimit64, 1, 4, 0, EPERM);
        else if (!strcmp(what, "dumpable")) answer_if(SYS_prctl, 0, PR_SET_DUMPABLE, 0, EPERM);
        else if (!strcmp(what, "close_range")) answer(SYS_close_range, EPERM);
        else if (strcmp(what, "nothing")) return 99;
    }
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = { length, code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 98;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 97;
    execv(argv[at + 1], argv + at + 1);
    return 96;
}"#;

/// A host that lacks things.
pub(crate) struct PoorHost {
    pub(crate) world: World,
    deny: PathBuf,
}

impl PoorHost {
    pub(crate) fn new() -> Self {
        let world = World::new();
        support::compile(&world, "deny", &format!("{PRELUDE}{DENY}"));
        let deny = world.path("deny");
        std::fs::rename(world.work().join("deny"), &deny).unwrap();
        Self { world, deny }
    }

    /// The command, on a host without `lacking`.
    pub(crate) fn without(&self, lacking: &str, command: &Command) -> Command {
        let mut wrapped = Command::new(&self.deny);
        wrapped
            .args(lacking.split(' '))
            .arg("--")
            .arg(command.get_program())
            .args(command.get_args());
        wrapped.env_clear().stdin(std::process::Stdio::null());
        for (name, value) in command.get_envs() {
            wrapped.env(name, value.unwrap_or_default());
        }
        wrapped.current_dir(self.world.path(""));
        wrapped
    }

    fn run(&self, lacking: &str, flags: &[&str]) -> (Ran, bool) {
        let mark = self.world.work().join("mark");
        let _ = std::fs::remove_file(&mark);
        let command = run(&self.world, flags, &["sh", "-c", "echo ran; echo x > mark"]);
        let ran = Ran::of(&mut self.without(lacking, &command));
        (ran, support::exists(&mark))
    }

    /// No box, no program, and a message that says what, why and what now.
    #[track_caller]
    fn refuses(&self, lacking: &str, flags: &[&str]) -> Ran {
        let (ran, marked) = self.run(lacking, flags);
        assert!(
            !marked && ran.out.is_empty(),
            "without {lacking} the program ran: {ran:?}"
        );
        let ran = ran
            .failed_with(125)
            .complains("error: cannot ")
            .complains("because: ")
            .complains("help: ");
        assert!(!ran.err.contains("because: Success"), "{}", ran.err);
        ran
    }

    #[track_caller]
    fn starts(&self, lacking: &str, flags: &[&str]) -> Ran {
        let (ran, marked) = self.run(lacking, flags);
        assert!(marked, "{ran:?}");
        ran.ok().says("ran")
    }
}

/// LN-05, LN-06
#[test]
fn without_namespaces_there_is_no_box_and_the_weaker_kind_is_named() {
    let host = PoorHost::new();
    // The control: the wrapper alone changes nothing.
    host.starts("nothing", &[]);
    for lacking in ["user", "net", "pid"] {
        host.refuses(lacking, &[]).complains("--isolation landlock");
    }
    // A host that only hides the newer call, as containers do, is no reason to give up.
    host.starts("clone3", &[]);
}

/// LN-07, LN-09: and the same for every later step of the set-up.
#[test]
fn a_wall_that_cannot_be_put_up_ends_the_start() {
    let host = PoorHost::new();
    host.starts("nothing", &[]);
    let steps = [
        "seccomp",
        "seccomp-load",
        "nnp",
        "bounding",
        "capset",
        "mounts",
        "attributes",
        "root",
        "limits",
        "dumpable",
        "close_range",
        "landlock-rule",
        "landlock-self",
    ];
    for lacking in steps {
        host.refuses(lacking, &[]);
    }
    // A filter that did not load is not excused by a word about another layer.
    host.refuses("seccomp-load", &["--allow-missing", "landlock"]);
    host.refuses("seccomp-load", &["--allow-missing", "seccomp"]);
}

/// LN-08
#[test]
fn without_landlock_the_user_has_to_say_so() {
    let host = PoorHost::new();
    host.starts("nothing", &[]);
    for lacking in ["landlock", "landlock-off"] {
        host.refuses(lacking, &[])
            .complains("--allow-missing landlock");
        host.refuses(lacking, &["--allow-missing", "keyring"]);
        host.starts(lacking, &["--allow-missing", "landlock"]);
        // Nothing would be left of the weaker kind, and no word excuses that.
        host.refuses(
            lacking,
            &["--isolation", "landlock", "--allow-missing", "landlock"],
        );
    }
    // What is given up is said, where it was not asked to be quiet.
    let mut loud = host.world.cowork();
    loud.args(["run", "--allow-missing", "landlock", "--", "true"]);
    Ran::of(&mut host.without("landlock", &loud))
        .ok()
        .complains("no Landlock");
}

/// LN-07 for the guard, and NS-08's wall
#[test]
fn guard_and_keyring_are_given_up_by_name_only() {
    let host = PoorHost::new();
    host.refuses("keyring", &[]);
    host.starts("keyring", &["--allow-missing", "keyring"]);
    // Somebody further out listens already: the kernel allows only one.
    host.refuses("listener", &[]).complains("guard");
}

/// The weaker kind has two walls; neither can be missing.
#[test]
fn the_weaker_kind_fails_closed_as_well() {
    let host = PoorHost::new();
    let weak = ["--isolation", "landlock"];
    host.starts("user", &weak);
    for lacking in [
        "landlock",
        "landlock-rule",
        "landlock-self",
        "seccomp",
        "seccomp-load",
        "nnp",
        "capset",
    ] {
        host.refuses(&format!("user {lacking}"), &weak);
    }
    let none = [
        "--isolation",
        "landlock",
        "--seccomp",
        "none",
        "--allow-missing",
        "seccomp",
    ];
    host.refuses("user", &none);
}
