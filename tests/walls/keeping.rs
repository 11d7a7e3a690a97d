//! Mounts with the mode `keep`: everything but deleting what no program of this box has made.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::outside::tree;
use crate::support::{Ran, World, exists};

/// Runs a script in a box that has the folder in this mode.
fn run_as(world: &World, mode: &str, script: &str) -> Ran {
    let mut command = world.cowork();
    let mount = format!("{}:{mode}", world.work().display());
    command.args(["run", "-q", "--mount", &mount]);
    Ran::of(command.args(["--", "sh", "-c", script]))
}

fn kept(world: &World, script: &str) -> Ran {
    run_as(world, "keep", script)
}

/// A folder as a user has it: a repository with files, some of them not in it.
fn with_files() -> World {
    let world = World::new();
    for (name, content) in [
        ("w/user.txt", "user\n"),
        ("w/dir/inner.txt", "inner\n"),
        ("w/dir/deep/er.txt", "deeper\n"),
        ("w/untracked", "mine\n"),
        ("w/code.c", "int main(void) { return 0; }\n"),
    ] {
        world.write(name, content);
    }
    std::fs::create_dir(world.work().join("empty")).unwrap();
    symlink("user.txt", world.work().join("link")).unwrap();
    let script = "git init -q -b main . && git config user.name U && git config user.email u@u && \
                  git add user.txt dir code.c && git commit -qm first";
    world.control(script).ok();
    world
}

/// Every object that is there, with where it is. A name is the same object as long as its number is.
fn objects(world: &World) -> BTreeMap<u64, PathBuf> {
    let all = tree(&world.work()).into_keys();
    all.map(|path| (path.symlink_metadata().unwrap().ino(), path))
        .collect()
}

/// Keeps the numbers of objects from being given to others once they are deleted.
fn held(objects: &BTreeMap<u64, PathBuf>) -> Vec<std::fs::File> {
    let open = |path: &PathBuf| {
        let mut options = std::fs::File::options();
        options
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_NOFOLLOW);
        options.open(path).unwrap()
    };
    objects.values().map(open).collect()
}

#[track_caller]
fn nothing_is_gone(world: &World, before: &BTreeMap<u64, PathBuf>) {
    let after = objects(world);
    let gone: Vec<_> = before
        .iter()
        .filter(|(number, _)| !after.contains_key(number))
        .collect();
    assert!(gone.is_empty(), "{gone:?}");
}

/// Ways to delete that leave nothing behind where they work.
const DELETING: &str = r#"
cd /workspace
rm -f user.txt link untracked
unlink user.txt; unlink link
rmdir empty
(cd dir && rm -f inner.txt ../user.txt /proc/self/cwd/inner.txt)
rm -rf dir .git
find . -delete
git clean -xfdq .
mv user.txt ~/ ; mv dir /tmp/; mv -f untracked /tmp/
ln user.txt second && rm -f second user.txt
mkdir own && mv user.txt own/ && rm -rf own
mv dir own2 && rm -rf own2
python3 - <<'EOF'
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def attempt(work):
    try: work()
    except OSError: pass
here = os.open('.', os.O_PATH)
for name in ('user.txt', 'own/user.txt', 'link', 'untracked', 'code.c'):
    attempt(lambda: os.unlink(name, dir_fd=here))
    attempt(lambda: os.unlink('/proc/self/root/workspace/' + name))
    attempt(lambda: os.unlink(f'/proc/self/fd/{here}/{name}'))
    attempt(lambda: os.rename(name, os.path.expanduser('~/x')))
attempt(lambda: os.rmdir('empty', dir_fd=here))
# The user's and one's own exchanged: neither is one's own then.
open('mine', 'w').close()
for name in ('code.c', 'dir/inner.txt', 'own2/inner.txt'):
    if os.path.exists(name):
        libc.renameat2(-100, name.encode(), -100, b'mine', 2)
        attempt(lambda: os.unlink('mine'))
EOF
:
"#;

#[test]
fn nothing_of_the_users_is_deleted_by_whatever_call() {
    let world = with_files();
    let before = objects(&world);
    let _held = held(&before);
    kept(&world, DELETING).ok();
    nothing_is_gone(&world, &before);
    // The same where it may be: the attack is one.
    let open = with_files();
    let before = objects(&open);
    let _held = held(&before);
    run_as(&open, "rw", DELETING).ok();
    let after = objects(&open);
    assert!(before.keys().filter(|it| after.contains_key(it)).count() <= 2);
}

#[test]
fn the_answer_is_the_one_that_programs_understand() {
    let world = with_files();
    let script = "cd /workspace; for it in user.txt link; do LC_ALL=C unlink $it; done; \
                  LC_ALL=C rmdir empty; LC_ALL=C rmdir user.txt; \
                  python3 -c 'import os; os.unlink(\"dir\")'; :";
    let ran = kept(&world, script).ok();
    let refused = ran.err.matches("Operation not permitted").count();
    assert_eq!(refused, 3, "{}", ran.err);
    assert!(ran.err.contains("Not a directory"), "{}", ran.err);
    assert!(ran.err.contains("Is a directory"), "{}", ran.err);
}

#[test]
fn what_a_program_makes_it_may_delete() {
    let world = with_files();
    let before = objects(&world);
    let script =
        "set -e; cd /workspace; echo a > a; mkdir -p b/c; ln -s a l; mkfifo p; ln a second; \
        mv a renamed; mv b/c dir/c; mv renamed dir/c/; \
        rm second l p; rm -r b dir/c; \
        cp -r dir copy; mv copy other; rm -rf other; \
        python3 -c 'import os, ctypes
f = os.open(\".\", os.O_TMPFILE | os.O_RDWR)
path = f\"/proc/self/fd/{f}\".encode()
assert ctypes.CDLL(None).linkat(-100, path, -100, b\"named\", 0x400) == 0
os.unlink(\"named\")'
        git clone -q --no-hardlinks . clone; rm -rf clone; git init -q fresh; rm -rf fresh";
    kept(&world, script).ok();
    nothing_is_gone(&world, &before);
    assert_eq!(objects(&world).len(), before.len(), "nothing is left of it");
}

#[test]
fn a_name_stays_whatever_is_put_in_its_place() {
    let world = with_files();
    let names = ["user.txt", "untracked", "code.c", "dir/inner.txt", "empty"];
    // By a rename over it, by the dance of editors, by a folder over a folder.
    let script = "cd /workspace; \
        echo new > new; mv new user.txt; rm -f user.txt; \
        mv untracked untracked~; echo new > untracked; rm untracked~ && rm -f untracked; \
        echo one > one; ln one two; mv one code.c; rm -f two code.c; \
        mv dir/inner.txt aside; rm -f aside; echo new > dir/inner.txt; mv aside again; \
            rm again; mv dir/inner.txt back; rm -f back; mv back dir/inner.txt; \
        mkdir folder; mv -T folder empty; rmdir empty; :";
    kept(&world, script).ok();
    for name in names {
        assert!(exists(&world.work().join(name)), "{name}");
    }
    assert!(!exists(&world.work().join("untracked~")));
    assert!(!exists(&world.work().join("again")));
    let text = std::fs::read_to_string(world.work().join("untracked")).unwrap();
    assert_eq!(text, "new\n");
    let open = with_files();
    run_as(&open, "rw", script).ok();
    let left = names.iter().filter(|name| exists(&open.work().join(name)));
    assert_eq!(left.count(), 0, "where deleting is allowed");
}

#[test]
fn work_goes_on() {
    let world = with_files();
    let script = "set -e; cd /workspace; export HOME=/tmp; \
        sed -i s/user/changed/ user.txt; sed -i s/inner/changed/ dir/inner.txt; \
        git commit -qam second; \
        git checkout -q -b topic; echo topic > topic.txt; git add topic.txt; git commit -qm third; \
        git checkout -q main; test ! -e topic.txt; git checkout -q topic; test -e topic.txt; \
        git merge -q main; git stash -q; git tag t; git gc -q || :; \
        test -z \"$(git status --porcelain --untracked-files=no)\"; \
        ! ls .git/*.lock 2>/dev/null; \
        cc -o program code.c; ./program; cc -o program code.c";
    kept(&world, script).ok();
    let log = world.control("git log --oneline --all | wc -l").ok().out;
    assert_eq!(log.trim(), "3");
    world.control("git fsck --strict").ok();
    for tool in ["/usr/bin/vim", "/usr/bin/npm"] {
        assert!(
            Path::new(tool).exists() || std::env::var_os("CI").is_none(),
            "{tool}"
        );
    }
    if Path::new("/usr/bin/vim").exists() {
        let script = "cd /workspace; for i in 1 2; do \
            vim -u NONE -N -es -c \"%s/^/$i/\" -c 'wq!' untracked </dev/null; done; ls -a";
        let ran = kept(&world, script).ok().says_not("~").says_not("4913");
        let text = std::fs::read_to_string(world.work().join("untracked")).unwrap();
        assert_eq!(text, "21mine\n", "{ran:?}");
    }
    if Path::new("/usr/bin/npm").exists() {
        world.write("w/lib/package.json", r#"{"name":"lib","version":"1.0.0"}"#);
        world.write("w/package.json", r#"{"name":"app","version":"1.0.0"}"#);
        let script = "set -e; cd /workspace; export HOME=/tmp; \
            npm install --offline --no-audit --no-fund ./lib; npm install --offline ./lib; \
            test -e node_modules/lib/package.json; rm -rf node_modules";
        kept(&world, script).ok();
        let manifest = std::fs::read_to_string(world.work().join("package.json")).unwrap();
        assert!(manifest.contains("\"lib\""), "{manifest}");
    }
}

#[test]
fn a_file_that_takes_anothers_number_is_not_taken_for_it() {
    let world = with_files();
    // The host deletes what the program made, and makes files until one has its number.
    let script = "cd /workspace; echo made > made; stat -c %i made; read go; rm -f taken; ls";
    let mut command = world.cowork();
    let mount = format!("{}:keep", world.work().display());
    command.args(["run", "-q", "--mount", &mount]);
    command.args(["--", "sh", "-c", script]);
    command.stdin(std::process::Stdio::piped());
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut number = String::new();
    std::io::BufRead::read_line(&mut out, &mut number).unwrap();
    let number: u64 = number.trim().parse().unwrap();
    let made = world.work().join("made");
    let born = made.metadata().unwrap().created().ok();
    std::fs::remove_file(&made).unwrap();
    let taken = world.work().join("taken");
    for at in 0..2000 {
        let path = world.path(&format!("w/try-{at}"));
        std::fs::write(&path, "the user's").unwrap();
        let seen = path.metadata().unwrap();
        if seen.ino() == number && seen.created().ok() == born {
            // The clock that tells it has not moved on yet.
            std::fs::remove_file(&path).unwrap();
        } else if seen.ino() == number {
            std::fs::rename(&path, &taken).unwrap();
            break;
        }
    }
    if !exists(&taken) {
        // This filesystem gives numbers out only once.
        std::fs::write(&taken, "the user's").unwrap();
    }
    let mut to = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut to, b"go\n").unwrap();
    drop(to);
    assert!(child.wait().unwrap().success());
    assert!(exists(&taken));
}

#[test]
fn a_refusal_is_told_with_what_would_allow_it() {
    let world = with_files();
    let mount = format!("{}:keep", world.work().display());
    let mut command = world.cowork();
    command.args(["run", "--name", "told", "--mount", &mount]);
    let ran = Ran::of(command.args(["--", "sh", "-c", "rm -f /workspace/user.txt; :"])).ok();
    let allow = format!("--mount {}:rw", world.work().display());
    ran.complains("user.txt was not deleted").complains(&allow);
    let path = "/sessions/told/mnt/w/user.txt";
    let why = Ran::of(world.cowork().args(["why", path])).ok();
    why.says("deleting").says("mode keep").says(&allow);
    let inspected = Ran::of(world.cowork().args(["inspect", "told"])).ok();
    inspected.says("\"mode\": \"keep\"");
    let mut dry = world.cowork();
    dry.args(["run", "--dry-run", "--mount", &mount, "--", "true"]);
    Ran::of(&mut dry)
        .ok()
        .says("nothing is deleted but what it makes itself");
}

#[test]
fn where_it_cannot_be_held_it_is_an_error() {
    let world = with_files();
    let mount = format!("{}:keep", world.work().display());
    let policy = world.write("open.toml", "name = \"open\"\n[guard]\nenabled = false\n");
    let policy = policy.display().to_string();
    for (flags, why) in [
        (&["--isolation", "landlock"][..], "--isolation landlock"),
        (&["--profile", &policy], "the policy lifts the guard"),
    ] {
        let mut command = world.cowork();
        command
            .args(["run", "-q"])
            .args(flags)
            .args(["--mount", &mount]);
        Ran::of(command.args(["--", "true"]))
            .failed_with(125)
            .complains("cannot keep programs from deleting")
            .complains(why);
        // Not asked for, it is not missed.
        let mut command = world.cowork();
        command.args(["run", "-q"]).args(flags);
        command.arg("--mount").arg(world.work());
        Ran::of(command.args(["--", "true"])).ok();
    }
    // What may only be read is not deleted either.
    let mut command = world.cowork();
    command.args(["run", "-q", "--read-only-workspace", "--mount", &mount]);
    Ran::of(command.args(["--", "sh", "-c", "rm -f /workspace/user.txt"])).failed_with(1);
    assert!(exists(&world.work().join("user.txt")));
}

#[test]
fn of_two_of_the_users_own_neither_takes_the_others_place() {
    let script = "cd /workspace; mkdir two 2>/dev/null; mv -f untracked user.txt; mv -fT dir/deep empty; \
                  echo mine > made; mv -f made code.c && echo saved; true";
    let world = with_files();
    kept(&world, script).ok().says("saved");
    for name in ["untracked", "user.txt", "dir/deep/er.txt", "empty"] {
        assert!(exists(&world.work().join(name)), "{name}");
    }
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(read("w/user.txt"), "user\n");
    assert_eq!(read("w/code.c"), "mine\n");
    let world = with_files();
    run_as(&world, "rw", script).ok();
    assert!(
        !exists(&world.work().join("untracked")),
        "the control does it"
    );
}
