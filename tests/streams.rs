//! What goes through a box's standard streams comes out the same, whatever they lead to.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::process::{Command, Stdio};

use support::{Ran, World};

/// A script outside of the box, next to 64 MiB of noise in `in`; `$COWORK` is the binary.
fn outside(world: &World, script: &str) -> Ran {
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("set -e -o pipefail\n{script}")])
        .env_clear();
    command
        .env("HOME", world.path("home"))
        .env("XDG_STATE_HOME", world.path("state"));
    command
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("COWORK", support::binary());
    Ran::of(command.current_dir(world.path("")).stdin(Stdio::null()))
}

/// The same, with the noise made first and compared with `out` afterwards.
fn noise(script: &str) {
    let world = World::new();
    let whole = format!(
        "head -c 67108864 /dev/urandom > in
         {script}
         [ \"$(sha256sum < in)\" = \"$(sha256sum < out)\" ]"
    );
    let ran = outside(&world, &whole).ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
}

#[test]
fn pipes_are_byte_exact() {
    noise("cat in | $COWORK run -q -- cat | cat > out");
}

#[test]
fn files_are_byte_exact() {
    noise("$COWORK run -q -- cat < in > out");
}

#[test]
fn a_file_in_and_a_pipe_out_are_byte_exact() {
    noise("$COWORK run -q -- cat < in | cat > out");
}

#[test]
fn files_opened_to_append_are_byte_exact() {
    noise("head -c 1000000 in > out; tail -c +1000001 in | $COWORK run -q -- cat >> out");
}

#[test]
fn standard_error_is_as_exact_and_kept_apart() {
    noise(
        "$COWORK run -q -- sh -c 'cat >&2; echo apart' < in 2> out > other; grep -qx apart other",
    );
}

#[test]
fn output_and_errors_into_one_file_keep_their_order() {
    let world = World::new();
    let script =
        "$COWORK run -q -- sh -c 'for i in 1 2 3; do echo o$i; echo e$i >&2; done' 2>&1 | cat";
    outside(&world, script)
        .ok()
        .says("o1\ne1\no2\ne2\no3\ne3\n");
}

#[test]
fn the_rest_of_a_file_is_left_to_the_next_command() {
    noise("{ $COWORK run -q -- true; cat; } < in > out");
}

#[test]
fn a_file_is_not_handed_in_itself() {
    let world = World::new();
    world.write("in", "head\nbody\n");
    // Opened again, the file would begin with its head.
    let read = "{ read head; $COWORK run -q -- sh -c 'cat /proc/self/fd/0'; } < in";
    assert_eq!(outside(&world, read).ok().out, "body\n");
    let write = "$COWORK run -q -- sh -c 'echo intruder > /proc/self/fd/0' < in";
    outside(&world, write).ok();
    let text = std::fs::read_to_string(world.path("in")).unwrap();
    assert_eq!(text, "head\nbody\n");
}

#[test]
fn streams_have_their_usual_names() {
    let world = World::new();
    let inside = "cat /dev/stdin > /dev/stdout; echo problem > /dev/stderr";
    for after in ["2> err | cat", "2>&1 | cat", "2> err > out; cat out"] {
        let ran = outside(
            &world,
            &format!("echo hi | $COWORK run -q -- sh -c '{inside}' {after}"),
        );
        ran.ok().says("hi\n");
    }
    let named = "mkfifo -m 600 pipe; cat pipe & $COWORK run -q -- echo hi > pipe; wait
        stat -c %a pipe";
    outside(&world, named).ok().says("hi\n").says("600\n");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_as_usual() {
    let world = World::new();
    let script =
        "set +e; $COWORK run -q -- sh -c 'yes; echo $? >&2' | head -1; echo ${PIPESTATUS[0]}";
    outside(&world, script).ok().says("y\n");
    let script = "set +e; $COWORK run -q -- yes | head -1; echo code=${PIPESTATUS[0]}";
    outside(&world, script).ok().says("code=141\n");
}
