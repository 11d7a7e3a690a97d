//! What must not be left in a shared folder that can be written to.

use super::support::{World, exists};
use super::{Verdicts, attacker, planting};

/// FS-17, FS-27, FS-28: in the folder that others on the host may reach.
#[test]
fn nothing_that_lends_rights_is_planted_in_the_shared_folder() {
    let world = World::new();
    attacker(&world);
    planting::control(&world);
    let ran = world.sh("mkdir d; echo plain > d/plain; ./attack plant d");
    Verdicts::of(ran).all_refused_but(&[]);
    assert_eq!(planting::planted(&world.work()), "");
    // Work goes on: this was no read-only folder.
    assert_eq!(
        std::fs::read_to_string(world.work().join("d/plain")).unwrap(),
        "plain\n"
    );
}

/// FS-27, FS-28 where the user has lifted the guards: the call filter is left.
#[test]
fn without_guards_the_filter_keeps_set_user_id_out() {
    let world = World::new();
    attacker(&world);
    planting::control(&world);
    let policy = world.write("home/p.toml", "[guard]\nenabled = false\n");
    let flags = ["--profile", policy.to_str().unwrap()];
    let ran = world.run(&flags, &["sh", "-c", "mkdir d; ./attack plant d"]);
    // Known: a set-group-ID bit, which folders need, and openat2, whose mode no filter reads.
    Verdicts::of(ran).all_refused_but(&["sgid-fchmod", "suid-openat2"]);
}

/// FS-58: protected although it was not there at the start, and no stub is left.
#[test]
fn a_guarded_file_that_did_not_exist_is_not_made() {
    let world = World::new();
    let script =
        "mkdir -p .claude .git/hooks; echo '{}' > .claude/settings.json; echo '{}' > .mcp.json
        echo x > .envrc; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; echo ok > ordinary; true";
    world.control(script).ok();
    let guarded = [
        ".claude/settings.json",
        ".mcp.json",
        ".envrc",
        ".git/hooks/pre-commit",
    ];
    for name in guarded {
        assert!(exists(&world.work().join(name)), "control of {name}");
    }
    std::fs::remove_dir_all(world.work()).unwrap();
    std::fs::create_dir(world.work()).unwrap();
    world.sh(script).ok();
    for name in guarded {
        assert!(!exists(&world.work().join(name)), "{name} was made");
    }
    assert!(exists(&world.work().join("ordinary")));
}

/// FS-59: the way around by moving a parent.
#[test]
fn the_folder_of_a_guarded_file_is_not_moved_away_and_back() {
    let world = World::new();
    let hook = world.write("w/.git/hooks/pre-commit", "#!/bin/sh\nexit 0\n");
    world.write("w/.git/HEAD", "ref: refs/heads/main\n");
    let script = "mv .git .g && echo evil >> .g/hooks/pre-commit; mv .g .git
        mv .git/hooks .git/h && echo evil >> .git/h/pre-commit; mv .git/h .git/hooks
        mkdir n && cp -r .git n/x && echo evil >> n/x/hooks/pre-commit; mv n/x n/.git; true";
    let copy = World::new();
    copy.write("w/.git/hooks/pre-commit", "#!/bin/sh\nexit 0\n");
    copy.control(script).ok();
    let control = std::fs::read_to_string(copy.work().join(".git/hooks/pre-commit")).unwrap();
    assert!(control.contains("evil"));

    world.sh(script).ok();
    let after = std::fs::read_to_string(hook).unwrap();
    assert!(!after.contains("evil"), "{after}");
    assert!(
        !exists(&world.work().join("n/.git/hooks/pre-commit")),
        "a nested one arrived"
    );
}

/// FS-60: spellings that some filesystems take for the same name.
#[test]
fn other_spellings_of_guarded_names_are_guarded() {
    let world = World::new();
    let names = [
        ".ENVRC",
        ".EnvRc",
        ".MCP.json",
        ".g\u{200c}it/hooks/pre-commit",
        ".GIT/hooks/pre-commit",
        ".Git/config",
    ];
    let script: String = names
        .iter()
        .map(|name| {
            format!("mkdir -p \"$(dirname {name})\"; printf '[core]\\nfsmonitor=x\\n' > {name};")
        })
        .collect();
    let script = format!("{script} true");
    world.control(&script).ok();
    for name in names {
        assert!(exists(&world.work().join(name)), "control of {name}");
    }
    std::fs::remove_dir_all(world.work()).unwrap();
    std::fs::create_dir(world.work()).unwrap();
    world.sh(&script).ok();
    for name in names {
        assert!(!exists(&world.work().join(name)), "{name} was made");
    }
}

/// FS-01 and FS-31 by writing: a link made inside carries no later write out.
#[test]
fn a_link_made_inside_carries_no_write_out() {
    let world = World::new();
    let victim = world.write("home/.profile", "mine");
    let script = format!(
        "ln -s {0} l; ln -s ../home h; echo evil > l; echo evil > h/.profile; mkdir -p h/new; true",
        victim.display()
    );
    world.control(&script).ok();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "evil\n");
    std::fs::write(&victim, "mine").unwrap();
    std::fs::remove_dir(world.path("home/new")).unwrap();
    for name in ["l", "h"] {
        std::fs::remove_file(world.work().join(name)).unwrap();
    }
    world.sh(&script).ok();
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    assert!(!exists(&world.path("home/new")));
}
