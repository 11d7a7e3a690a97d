//! Everyday tools, and those that look into other programs.

use std::os::unix::fs::MetadataExt;

use crate::shop::has;
use crate::support::World;

#[test]
fn ripgrep_finds() {
    if !has("rg", &["rg"]) {
        return;
    }
    let world = World::new();
    world.write("w/a/b/c.txt", "one\nneedle here\n");
    world.write("w/.gitignore", "ignored\n");
    world.write("w/ignored/d.txt", "needle\n");
    world.write("w/.ignore", "ignored\n");
    let ran = world.run(&[], &["rg", "-n", "needle"]).ok();
    assert_eq!(ran.out, "a/b/c.txt:2:needle here\n");
}

#[test]
fn sqlite_keeps_its_rows() {
    if !has("sqlite3", &["sqlite3"]) {
        return;
    }
    let world = World::new();
    for journal in ["delete", "wal"] {
        let file = format!("{journal}.db");
        let sql = format!("pragma journal_mode={journal}; create table t (n integer primary key, word text);
            begin; insert into t (word) values ('one'), ('two'); commit; update t set word = 'zwei' where n = 2;");
        world.run(&[], &["sqlite3", &file, &sql]).ok();
        world
            .run(
                &[],
                &[
                    "sqlite3",
                    &file,
                    "select * from t order by n; pragma integrity_check",
                ],
            )
            .ok()
            .says("1|one\n2|zwei\nok\n");
    }
}

#[test]
fn tar_keeps_modes_and_gives_files_to_the_caller() {
    let world = World::new();
    world
        .script(
            &[],
            "mkdir -p d; echo x > d/run; chmod 751 d/run; ln -s run d/link; ln d/run d/second
             touch -d 2001-02-03 d/run
             tar -cf own.tar d; tar --owner=0 --group=0 -cf root.tar d
             mkdir own root; tar -xpf own.tar -C own --same-owner; tar -xf root.tar -C root
             readlink own/d/link; cmp own/d/run root/d/second",
        )
        .ok()
        .says("run\n");
    for name in ["own", "root"] {
        let file = std::fs::metadata(world.work().join(name).join("d/run")).unwrap();
        assert_eq!(file.uid(), nix::unistd::getuid().as_raw());
        assert_eq!(
            (file.mode() & 0o7777, file.nlink(), file.mtime()),
            (0o751, 2, 981_158_400)
        );
    }
    // Another's number cannot be given to a file: the box has only one.
    world
        .script(&[], "tar -xf root.tar -C root --same-owner")
        .failed_with(2);
}

#[test]
fn nobody_becomes_root() {
    let world = World::new();
    if has("sudo", &["sudo"]) {
        let refused = world.run(&[], &["sudo", "-n", "true"]).failed_with(1);
        refused.complains("no new privileges");
    }
    let ran = world.run(&[], &["su", "-c", "true"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    world
        .script(&[], "cp /usr/bin/id id; chmod u+s id")
        .failed_with(1);
    world.control("cp /usr/bin/id own; chmod u+s own").ok();
    let uid = world.script(&[], "id -u").ok().out;
    world
        .script(&[], "./own -u; grep NoNewPrivs /proc/self/status")
        .ok()
        .says(&uid)
        .says("NoNewPrivs:\t1");
}

#[test]
fn strace_follows_its_child_when_the_filter_lets_it() {
    if !has("strace", &["strace"]) {
        return;
    }
    let world = World::new();
    let script = "strace -f -e trace=execve -o trace sh -c '/bin/true; exit 3'";
    world
        .run(&["--seccomp", "debug"], &["sh", "-c", script])
        .failed_with(3);
    assert!(world.read("trace").contains("execve(\"/bin/true\""));
    world.script(&[], script).complains("ptrace").failed_with(1);
}

#[test]
fn gdb_stops_its_child_when_the_filter_lets_it() {
    if !has("gdb", &["gdb", "gcc"]) {
        return;
    }
    let world = World::new();
    world.write(
        "w/stop.c",
        "int halfway(int n) { return n + 2; }\nint main(void) { return halfway(40); }\n",
    );
    let script = "gcc -g -O0 -o stop stop.c
        gdb -q -nx -batch -ex 'break halfway' -ex run -ex 'print n + 2' -ex kill ./stop";
    let ran = world.script(&["--seccomp", "debug"], script).ok();
    ran.says("Breakpoint 1, halfway").says("$1 = 42");
    world.script(&[], script).says_not("$1 = 42");
}
