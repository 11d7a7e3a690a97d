//! Programs that make programs.

use std::path::PathBuf;

use crate::shop::{SEARCH, has};
use crate::support::{Ran, World};

#[test]
fn make_and_gcc_build_and_rebuild() {
    let world = World::new();
    world.write(
        "w/main.c",
        "#include <stdio.h>\nint main(void) { return puts(\"built\") < 0; }\n",
    );
    world.write(
        "w/Makefile",
        "all: main\n%.o: %.c\n\t$(CC) -c -o $@ $<\nmain: main.o\n\t$(CC) -o $@ $^\n",
    );
    world
        .script(&[], "make -j4; ./main; make")
        .ok()
        .says("built\n")
        .says("Nothing to be done");
    world.script(&[], "touch main.c; make -q").failed_with(1);
}

#[test]
fn java_runs_and_compiles() {
    if !has("java", &["java"]) {
        return;
    }
    let world = World::new();
    world
        .run(&[], &["java", "-version"])
        .ok()
        .complains("version");
    if crate::shop::find("javac").is_none() {
        return;
    }
    world.write(
        "w/Sum.java",
        "class Sum { public static void main(String[] a) throws Exception {
           var thread = new Thread(() -> System.out.println(\"sum \" + (40 + 2)));
           thread.start(); thread.join(); } }\n",
    );
    world
        .script(&[], "java Sum.java; javac Sum.java; java -cp . Sum")
        .ok()
        .says("sum 42\nsum 42\n");
}

/// A cargo to test with: the one prepared for the tests, or the caller's own.
fn cargo() -> Option<(PathBuf, PathBuf)> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let given = std::env::var_os("COWORK_TEST_RUST").map(|root| PathBuf::from(root).join("bin"));
    let known = [home.join(".cargo/bin"), "/usr/bin".into()];
    let folder = given
        .into_iter()
        .chain(known)
        .find(|folder| folder.join("cargo").is_file())?;
    Some((home, folder))
}

#[test]
fn cargo_builds_and_tests_a_crate() {
    let Some((home, folder)) = cargo() else {
        has("cargo", &["cargo"]);
        return;
    };
    let world = World::new();
    let manifest = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    world.write("w/Cargo.toml", manifest);
    world.write(
        "w/src/main.rs",
        "fn main() { println!(\"built by cargo\"); }\n#[test] fn sums() { assert_eq!(1 + 1, 2); }\n",
    );
    for arguments in [&["build", "-q"][..], &["test", "-q"]] {
        let mut command = world.at_home(&home, &folder);
        Ran::of(command.args(["--", "cargo"]).args(arguments)).ok();
    }
    // Made in the shared folder, it is the host's to run too.
    world
        .run(&[], &["target/debug/app"])
        .ok()
        .says("built by cargo");
    world
        .control(&format!("PATH={SEARCH} target/debug/app"))
        .ok()
        .says("built by cargo");
}
