//! Programs that live outside the system's directories: found as the caller's shell finds them,
//! shown with what they need and nothing else of the home.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::layouts::private;
use crate::shop::program;
use crate::support::{Ran, World, is_root};

/// Runs a program of this home by its name; `search` is its folder on the caller's PATH.
fn run(world: &World, search: &str, words: &[&str]) -> Ran {
    let home = world.path("home");
    Ran::of(
        world
            .at_home(&home, &home.join(search))
            .arg("--")
            .args(words),
    )
}

#[test]
fn a_program_in_the_private_bin_comes_alone() {
    let world = World::new();
    let home = world.path("home");
    let script = "#!/bin/sh\nls -A \"${0%/*}\"; cat \"${0%/*}/../../.ssh/id\" || echo unseen\n";
    program(&home.join(".local/bin/tool"), script);
    program(&home.join(".local/bin/other"), "#!/bin/sh\n");
    world.write("home/.ssh/id", "key");
    let ran = run(&world, ".local/bin", &["tool"]).ok();
    assert_eq!(ran.out, "tool\nunseen\n");
}

#[test]
fn links_are_followed_to_a_versioned_installation() {
    let world = World::new();
    let home = world.path("home");
    let real = home.join(".local/share/claude/versions/1.2.3");
    program(&real, "#!/bin/sh\necho version 1.2.3 of $0\n");
    std::fs::create_dir_all(home.join(".local/bin")).unwrap();
    symlink(&real, home.join(".local/bin/agent")).unwrap();
    std::fs::create_dir_all(home.join("bin")).unwrap();
    symlink("../.local/bin/agent", home.join("bin/a")).unwrap();
    run(&world, "bin", &["a"]).ok().says("version 1.2.3 of");
}

#[test]
fn a_version_managers_node_comes_with_its_modules() {
    let world = World::new();
    let node = world.path("home").join(".nvm/versions/node/v20.1.0");
    let other = world
        .path("home")
        .join(".nvm/versions/node/v18.0.0/bin/node");
    program(
        &node.join("bin/node"),
        "#!/bin/sh\necho own node; shift 0; cat \"$1\"; ls ../..\n",
    );
    program(&other, "#!/bin/sh\necho wrong node\n");
    let cli = "lib/node_modules/agent/cli.js";
    program(&node.join(cli), "#!/usr/bin/env node\n// the agent\n");
    symlink(Path::new("..").join(cli), node.join("bin/agent")).unwrap();
    let ran = run(&world, ".nvm/versions/node/v20.1.0/bin", &["agent"]).ok();
    ran.says("own node")
        .says("the agent")
        .says_not("wrong node");
}

#[test]
fn a_script_brings_its_private_interpreter() {
    let world = World::new();
    let home = world.path("home");
    let interpreter = home.join("interpreters/shell");
    std::fs::create_dir_all(interpreter.parent().unwrap()).unwrap();
    std::fs::copy("/bin/sh", &interpreter).unwrap();
    let line = format!(
        "#!{} -e\necho run by $(readlink /proc/$$/exe)\n",
        interpreter.display()
    );
    let script = program(&home.join("scripts/task"), &line);
    let said = format!("run by {}", interpreter.display());
    run(&world, "scripts", &["task"]).ok().says(&said);
    // By its path as well, with an empty PATH.
    let path = script.to_str().unwrap();
    world.run(&[], &[path]).ok().says(&said);
}

#[test]
fn a_shim_finds_the_version_it_stands_for() {
    let world = World::new();
    let root = world.path("home").join(".pyenv");
    let shim = "#!/usr/bin/env bash\nexec \"$PYENV_ROOT/versions/3.9.1/bin/${0##*/}\" \"$@\"\n";
    program(&root.join("shims/python9"), shim);
    program(
        &root.join("versions/3.9.1/bin/python9"),
        "#!/bin/sh\necho python $1\n",
    );
    run(&world, ".pyenv/shims", &["python9", "runs"])
        .ok()
        .says("python runs");
}

#[test]
fn a_real_pyenv_works_where_there_is_one() {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else {
        return;
    };
    let shims = home.join(".pyenv/shims");
    if !shims.join("python3").is_file() {
        return; // Nobody is asked to install it: the test before this one has the layout.
    }
    let world = World::new();
    let mut command = world.at_home(&home, &shims);
    command.args(["--", "python3", "-c", "import sys, ssl; print(sys.prefix)"]);
    Ran::of(&mut command).ok().says("/.pyenv/versions/");
}

#[test]
fn what_is_shown_twice_is_shown_once() {
    let world = World::new();
    let home = world.path("home");
    let tool = program(&home.join(".local/bin/tool"), "#!/bin/sh\necho tool\n");
    let list = format!(
        "[{:?}, {:?}, \"/usr/share\", \"/etc/ssl\"]",
        tool,
        home.join(".local/bin")
    );
    let policy = world.write("shown.toml", &format!("[files]\nvisible = {list}\n"));
    let mut command = world.at_home(&home, &home.join(".local/bin"));
    Ran::of(command.arg("--profile").arg(policy).args(["--", "tool"]))
        .ok()
        .says("tool");
}

#[test]
fn a_program_in_opt_comes_with_its_folder() {
    if !is_root() {
        return; // Others cannot put anything there.
    }
    let world = World::new();
    let setup = "mount -t tmpfs tmpfs /opt; mkdir -p /opt/suite/bin /opt/suite/data /opt/other
        echo the data > /opt/suite/data/file
        printf '#!/bin/sh\\ncat ${0%%/*}/../data/file; ls /opt\\n' > /opt/suite/bin/tool
        chmod +x /opt/suite/bin/tool; export PATH=/opt/suite/bin:$PATH";
    let ran = private(&world, setup, "--mount \"$W\" -- tool").ok();
    assert_eq!(ran.out, "the data\nsuite\n");
}

#[test]
fn a_program_below_var_tmp_is_found_where_it_was() {
    let world = World::new();
    let there = tempfile::Builder::new()
        .prefix("cowork-test-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let tool = program(&there.path().join("tool"), "#!/bin/sh\necho at $0\n");
    let path = tool.to_str().unwrap();
    world.run(&[], &[path]).ok().says(&format!("at {path}"));
    let name = there.path().file_name().unwrap();
    assert!(!Path::new("/tmp").join(name).exists(), "made on the host");
}
