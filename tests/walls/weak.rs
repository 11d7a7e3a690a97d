//! `--isolation landlock`: the named weaker kind, on a host that forbids user namespaces.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::missing::PoorHost;
use crate::outside::{Answers, Living, is_alive, probe, run};
use crate::support::{Ran, World, exists, is_root};

const WEAK: [&str; 2] = ["--isolation", "landlock"];

fn sh(host: &PoorHost, script: &str) -> Ran {
    let command = run(&host.world, &WEAK, &["sh", "-c", script]);
    Ran::of(&mut host.without("user", &command))
}

#[test]
fn the_weaker_kind_works_where_user_namespaces_are_forbidden() {
    let host = PoorHost::new();
    host.world.write("w/note", "hello\n");
    let script = "cat note; echo made > made; mkdir d; mv made d/made; cat d/made; \
        echo kept > ~/x; cat ~/x; echo t > \"$TMPDIR/t\"; cat \"$TMPDIR/t\"; ls /usr/bin/env; git init -q g && echo git";
    sh(&host, script)
        .ok()
        .says("hello\nmade\nkept\nt\n/usr/bin/env\ngit\n");
    assert_eq!(
        std::fs::read_to_string(host.world.work().join("d/made")).unwrap(),
        "made\n"
    );
    for (script, code) in [("exit 7", 7), ("kill -TERM $$", 143)] {
        sh(&host, script).failed_with(code);
    }
}

/// FS-01, FS-02, FS-03, FS-30, EN-50 for the weaker kind
#[test]
fn the_weaker_kind_shows_no_files_but_the_workspace_and_the_system() {
    let host = PoorHost::new();
    let world = &host.world;
    let other = World::new();
    let secrets = [
        world.write("home/.ssh/id_ed25519", "s3cret\n"),
        world.write("elsewhere/data", "s3cret\n"),
        other.write("w/data", "s3cret\n"),
        world.write(
            "state/cowork-linux/sessions/other/inner/home/data",
            "s3cret\n",
        ),
    ];
    for folder in [
        "state/cowork-linux",
        "state/cowork-linux/sessions",
        "state/cowork-linux/sessions/other",
    ] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(world.path(folder), mode).unwrap();
    }
    let mut script = String::new();
    for path in &secrets {
        let path = path.display();
        script.push_str(&format!(
            "cat {path}; cat /proc/self/root{path}; ln -s {path} l; cat l; rm -f l; ln {path} h; cat h; rm -f h; \
             echo x >> {path}; mv {path} moved; rm -f {path}; true > {path}; ls $(dirname {path})\n"
        ));
    }
    let fresh = world.path("made-by-the-box");
    let inside = format!(
        "{script} echo x > {}; mkdir /tmp/cowork-made /var/tmp/cowork-made /dev/shm/cowork-made; :",
        fresh.display()
    );
    sh(&host, &inside)
        .ok()
        .says_not("s3cret")
        .says_not("id_ed25519")
        .says_not("data");
    for path in &secrets {
        assert_eq!(
            std::fs::read_to_string(path).unwrap(),
            "s3cret\n",
            "{}",
            path.display()
        );
    }
    for path in [
        fresh.to_str().unwrap(),
        "/tmp/cowork-made",
        "/var/tmp/cowork-made",
        "/dev/shm/cowork-made",
    ] {
        assert!(!exists(path.as_ref()), "{path}");
    }
    // The control, last because it destroys: the same script without a box.
    let control = world.control(&script);
    assert!(control.out.contains("s3cret"));
    assert!(
        secrets
            .iter()
            .all(|path| std::fs::read_to_string(path).ok().as_deref() != Some("s3cret\n"))
    );
}

const REACH: &str = r#"
static long to_path(int s, const char *path) {
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    strcpy(to.sun_path, path);
    return s < 0 ? -1 : connect(s, (void *)&to, sizeof to);
}
#include <sys/resource.h>
#include <sys/shm.h>
#include <mqueue.h>
static struct sockaddr_in here(int port) {
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    return to;
}
static long tcp(int port, int fast, int only_bind) {
    struct sockaddr_in to = here(port);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (s < 0) return -1;
    if (only_bind) return bind(s, (void *)&to, sizeof to);
    if (fast) return sendto(s, "x", 1, MSG_FASTOPEN, (void *)&to, sizeof to);
    return connect(s, (void *)&to, sizeof to);
}
static long udp(int port) {
    struct sockaddr_in to = here(port);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    return s < 0 ? -1 : sendto(s, "x", 1, 0, (void *)&to, sizeof to);
}
int main(int argc, char **argv) {
    try("tcp", tcp(atoi(argv[1]), 0, 0));
    try("fast-open", tcp(atoi(argv[1]), 1, 0));
    try("bind", tcp(0, 0, 1));
    try("udp", udp(atoi(argv[2])));
    try("tcp6", socket(AF_INET6, SOCK_STREAM, 0));
    try("path", to_path(socket(AF_UNIX, SOCK_STREAM, 0), argv[3]));
    int pair[2] = { -1, -1 };
    /* One half of a pair of datagram sockets can be pointed at another address. */
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0) say("pair", -1);
    else try("pair", to_path(pair[0], argv[4]));
    if (socketpair(AF_UNIX, SOCK_RAW, 0, pair) < 0) say("raw-pair", -1);
    else try("raw-pair", to_path(pair[0], argv[4]));
    try("stream-pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int victim = atoi(argv[5]);
    try("signal", kill(victim, 0));
    try("queue", syscall(SYS_rt_sigqueueinfo, victim, 0, &(siginfo_t){ .si_code = -1 }));
    try("ptrace", syscall(SYS_ptrace, 0x4206, victim, 0, 0)); /* seize: does not stop it */
    struct rlimit64 limit;
    try("limits", syscall(SYS_prlimit64, victim, RLIMIT_CORE, NULL, &limit));
    try("own-limits", syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, &limit));
    try("shm", shmget(IPC_PRIVATE, 4096, 0600));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", victim);
    try("environ", open(path, O_RDONLY));
    snprintf(path, sizeof path, "/proc/%d/mem", victim);
    try("mem", open(path, O_RDONLY));
    snprintf(path, sizeof path, "/proc/%d/root/etc", victim);
    try("root", open(path, O_RDONLY));
    return 0;
}"#;

/// NW-01, NW-03, NW-10, NW-16, PR-*, IP-01 for the weaker kind
#[test]
fn the_weaker_kind_reaches_no_socket_and_no_process_of_the_host() {
    let host = PoorHost::new();
    let world = &host.world;
    let program = probe(world, "reach", REACH);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (stream, datagram) = (world.path("home/bus"), world.path("home/log"));
    let bus = UnixListener::bind(&stream).unwrap();
    let log = std::os::unix::net::UnixDatagram::bind(&datagram).unwrap();
    tcp.set_nonblocking(true).unwrap();
    udp.set_nonblocking(true).unwrap();
    bus.set_nonblocking(true).unwrap();
    log.set_nonblocking(true).unwrap();
    let mut shell = Command::new("sh");
    let (victim, said) = Living::start(shell.args(["-c", "echo up; read wait"]));
    assert_eq!(said, "up");
    let arguments = [
        tcp.local_addr().unwrap().port().to_string(),
        udp.local_addr().unwrap().port().to_string(),
        stream.display().to_string(),
        datagram.display().to_string(),
        victim.id().to_string(),
    ];
    // Whether one may trace is a setting of the host; the rest always works.
    let control = Answers::of(&Ran::of(Command::new(&program).args(&arguments)).ok());
    let open = [
        "tcp",
        "fast-open",
        "bind",
        "udp",
        "path",
        "pair",
        "raw-pair",
        "signal",
        "queue",
        "limits",
        "environ",
    ];
    for name in open {
        control.worked(name);
    }
    control.worked("shm");
    while tcp.accept().is_ok() {}
    while udp.recv(&mut [0; 8]).is_ok() {}
    while bus.accept().is_ok() {}

    let words: Vec<_> = ["./reach"]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .collect();
    let inside = run(world, &WEAK, &words);
    let inside = Answers::of(&Ran::of(&mut host.without("user", &inside)).ok());
    for name in open.iter().chain(&["tcp6", "ptrace", "shm", "mem", "root"]) {
        let why = [
            "EAFNOSUPPORT",
            "EPERM",
            "EACCES",
            "ESOCKTNOSUPPORT",
            "ENOSYS",
            "EOPNOTSUPP",
        ];
        inside.refused(name, &why);
    }
    inside.worked("own-limits");
    inside.worked("stream-pair");
    assert!(tcp.accept().is_err() && udp.recv(&mut [0; 8]).is_err() && bus.accept().is_err());
    assert!(is_alive(victim.id()));
    victim.end();
}

/// FS-19, FS-20: for root these are the host's settings, and Landlock is all that is before them.
#[test]
fn the_weaker_kind_cannot_change_settings_of_the_kernel() {
    let host = PoorHost::new();
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    // No control: it would change the host. Opening alone changes nothing, and root could.
    if is_root() {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/proc/sys/kernel/core_pattern")
            .unwrap();
    }
    let script = "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/self/oom_score_adj /sys/power/state \
        /dev/kmsg /proc/1/oom_score_adj; do (true >> $f) 2>/dev/null && echo opened $f; done; :";
    sh(&host, script).ok().says_not("opened");
    assert_eq!(
        std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(),
        pattern
    );
}

/// PE-01, PE-05 for the weaker kind: Landlock keeps the folder, the broker writes.
#[test]
fn the_weaker_kind_guards_what_others_run() {
    let host = PoorHost::new();
    host.world.control("git init -q .").ok();
    let attempts = "echo x > .envrc; mkdir -p .claude; echo x > .claude/settings.json; echo x > .git/hooks/post-checkout; \
        git config core.fsmonitor ./x; mv .git .g; ln -s .git g; echo x > g/hooks/pre-commit; git config user.name me; echo fine > f; :";
    sh(&host, attempts).ok();
    let there = |name: &str| exists(&host.world.work().join(name));
    for name in [
        ".envrc",
        ".claude/settings.json",
        ".git/hooks/post-checkout",
        ".git/hooks/pre-commit",
        ".g",
    ] {
        assert!(!there(name), "{name}");
    }
    assert!(there("f") && there(".git"));
    let config = std::fs::read_to_string(host.world.work().join(".git/config")).unwrap();
    assert!(
        !config.contains("fsmonitor") && config.contains("name = me"),
        "{config}"
    );
    // The control.
    host.world.control(attempts);
    assert!(there(".envrc"));
}

const STRAYS: &str = "(setsid sh -c 'trap \"\" TERM HUP; exec sleep 1000' &); (setsid setsid sleep 1000 &); sleep 1000 & ";

/// PR-11, LN-04 for the weaker kind; who is alive holds the pipe open, so its end is the end of all.
#[test]
fn what_the_program_left_behind_ends_with_it_in_the_weaker_kind() {
    let host = PoorHost::new();
    for (end, code) in [("exit 3", 3), ("kill -KILL $$", 137)] {
        let command = run(
            &host.world,
            &WEAK,
            &["sh", "-c", &format!("{STRAYS} echo up; {end}")],
        );
        // Returns only when nobody holds the output any more.
        Ran::of(&mut host.without("user", &command))
            .failed_with(code)
            .says("up");
    }
    let timed = ["--isolation", "landlock", "--timeout", "200ms"];
    let script = format!("trap '' TERM; {STRAYS} echo up; while :; do sleep 1; done");
    let command = run(&host.world, &timed, &["sh", "-c", &script]);
    Ran::of(&mut host.without("user", &command))
        .failed_with(124)
        .says("up");
    // The control: without a box a stray lives on.
    let mut shell = Command::new("sh");
    let (mut control, stray) =
        Living::start(shell.args(["-c", "(setsid sh -c 'echo $$; exec sleep 1000' &)"]));
    let stray: i32 = stray.parse().unwrap();
    assert!(is_alive(stray));
    kill(Pid::from_raw(stray), Signal::SIGKILL).unwrap();
    control.hear_the_end();
}

#[test]
fn a_killed_launcher_takes_everything_with_it_in_the_weaker_kind() {
    let host = PoorHost::new();
    let command = run(
        &host.world,
        &WEAK,
        &["sh", "-c", &format!("{STRAYS} echo up; exec sleep 1000")],
    );
    // The wrapper becomes the launcher, so this is the launcher's number.
    let (living, said) = Living::start(host.without("user", &command).stderr(Stdio::null()));
    assert_eq!(said, "up");
    assert_eq!(living.kill_and_hear_the_end(), "");

    // The helper alone: the program dies with it, and the launcher ends the others.
    let (mut living, said) = Living::start(host.without("user", &command).stderr(Stdio::null()));
    assert_eq!(said, "up");
    let children = format!("/proc/{0}/task/{0}/children", living.id());
    let helper: i32 = std::fs::read_to_string(children)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    kill(Pid::from_raw(helper), Signal::SIGKILL).unwrap();
    assert_eq!(living.hear_the_end(), "");
}

/// The program cannot end its own guard, nor can a stray that outruns the counting.
#[test]
fn a_program_that_keeps_moving_is_still_ended_in_the_weaker_kind() {
    const COMET: &str = r#"
    int main(void) {
        try("helper", kill(getppid(), SIGKILL));
        if (fork() == 0) for (int i = 0; i < 400000; i++) if (fork()) _exit(0);
        usleep(1000);
        return 5;
    }"#;
    let host = PoorHost::new();
    probe(&host.world, "comet", COMET);
    let command = run(&host.world, &WEAK, &["./comet"]);
    let ran = Ran::of(&mut host.without("user", &command)).failed_with(5);
    Answers::of(&ran).refused("helper", &["EPERM"]);
}

#[test]
fn the_weaker_kind_says_what_it_cannot_do() {
    let host = PoorHost::new();
    let mut loud = host.world.cowork();
    loud.args(["run", "--isolation", "landlock", "--", "true"]);
    let ran = Ran::of(&mut host.without("user", &loud)).ok();
    for said in [
        "weaker",
        "no namespaces",
        "processes",
        "permissions",
        "no network",
        "Unix sockets",
        "live on",
    ] {
        assert!(ran.err.contains(said), "no `{said}` in {}", ran.err);
    }
    if is_root() {
        assert!(ran.err.contains("as root"), "{}", ran.err);
    }
}
