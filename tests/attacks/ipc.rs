//! Objects of the kernel that have keys and numbers instead of paths.

use std::process::Command;

use super::support::{Ran, World};
use super::{Verdicts, attacker};

/// IP-01, IP-02: shared memory, queues and semaphores of the host, by key and by number.
#[test]
fn shared_memory_and_queues_of_the_host_are_not_found() {
    let world = World::new();
    let attack = attacker(&world);
    let key = (0x5000_0000 + std::process::id()).to_string();
    let run = |args: &[&str]| Ran::of(Command::new(&attack).args(args));
    run(&["ipc-make", &key]).ok();
    let id = run(&["ipc-show", &key])
        .out
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let inside = world.run(&[], &["./attack", "ipc-attack", &key, &id]);
    let after = run(&["ipc-show", &key]);
    let control = run(&["ipc-attack", &key, &id]);
    let touched = run(&["ipc-show", &key]);
    run(&["ipc-remove", &key]).ok();

    Verdicts::of(inside).all_refused_but(&[]);
    after.ok().says(" untouched");
    Verdicts::of(control).done(&["shm", "shm-id", "msg", "sem", "queue"]);
    touched.ok().says(" touched");
}

/// NS-08: the keys of the caller's session and user, and even what they are called.
#[test]
fn the_callers_keys_are_neither_found_nor_listed() {
    let world = World::new();
    let attack = attacker(&world);
    let name = format!("cowork-attack-{}", std::process::id());
    let with_key = |program: &mut Command| {
        let mut command = Command::new(&attack);
        command
            .args(["with-key", &name])
            .arg(program.get_program())
            .args(program.get_args());
        command.env_clear().current_dir(world.work());
        command.envs(program.get_envs().filter_map(|(k, v)| Some((k, v?))));
        Ran::of(&mut command)
    };
    let control = with_key(Command::new(&attack).args(["has-key", &name]));
    Verdicts::of(control).done(&["session", "user", "request", "listed"]);
    let mut boxed = world.cowork();
    boxed.args(["run", "-q", "--mount"]).arg(world.work());
    boxed.args(["--", "./attack", "has-key", &name]);
    Verdicts::of(with_key(&mut boxed)).all_refused_but(&[]);
    let unlink = format!("keyctl unlink $(keyctl search @u user {name}) @u");
    world.control(&unlink);
}
