//! Policies that say nonsense: nothing runs. What they mean is tested in `tests/policies`.

use crate::support::{Ran, World, exists};

/// PO-01, PO-04, PO-05, PO-06, PO-13, PO-15
#[test]
fn nothing_runs_under_a_policy_that_cannot_be_read() {
    let world = World::new();
    let with = |text: &str| {
        let file = world.write("policy.toml", text);
        let run = world.run(
            &["--profile", file.to_str().unwrap()],
            &["sh", "-c", "echo ran; echo x > mark"],
        );
        (run, exists(&world.work().join("mark")))
    };
    // The control: a policy that can be read.
    let (ran, marked) = with("name = \"mine\"\n");
    ran.ok().says("ran");
    assert!(marked);
    std::fs::remove_file(world.work().join("mark")).unwrap();

    let bad = [
        "name = \"mine\"\n[files]\nread-only-worksapce = true\n",
        "name = \"mine\"\n[net]\nmode = \"none\"\nmode = \"host\"\n",
        "name = \"mine\"\n[net]\nmode = \"none\"\n[net]\nmode = \"host\"\n",
        "name = \"mine\"\n[guard]\nenabled = \"false\"\n",
        "name = \"mine\"\n[net]\nmode = \"\"\n",
        "name = \"mine\"\n[net]\nmode = \"nonsense\"\n",
        "name = \"mine\"\n[files]\nvisible = [\"$NO_SUCH_VARIABLE/x\"]\n",
        "name = \"mine\"\n[files]\ntmp-size = \"99999999999999G\"\n",
        "name = \"mine\"\n[files]\ntmp-size = \"-1\"\n",
        "name = \"mine\"\n[limits]\nprocesses = 0\n",
        "name = \"mine\"\n[limits]\nprocesses = -5\n",
        "name = \"mine\"\n[limits]\nopen-files = 99999999999999999999\n",
        "name = \"mine\"\n[lock]\nisolation = \"off\"\n",
        "name = \"mine\"\n[lock]\nallow-missing = [\"everything\"]\n",
        "name = \"mine\"\n\u{a0}[guard]\nenabled = false\n",
        "name = \"mine\"\n[guard]\nenabled\u{0} = false\n",
        "- yaml: &a [*a]\n",
    ];
    for text in bad {
        let (ran, marked) = with(text);
        assert!(!marked, "{text:?} let the program run");
        ran.failed_with(125).says_not("ran").complains("error: ");
    }
}

/// PO-13: the same for flags
#[test]
fn nothing_runs_with_flags_that_cannot_be_read() {
    let world = World::new();
    world
        .run(&["--tmp-size", "16M"], &["echo", "ran"])
        .ok()
        .says("ran");
    let bad: [&[&str]; 9] = [
        &["--tmp-size", "0"],
        &["--tmp-size", "-1"],
        &["--tmp-size", "99999999999999G"],
        &["--timeout", "-1s"],
        &["--timeout", "soon"],
        &["--network", "internet"],
        &["--isolation", "none"],
        &["--allow-missing", "all"],
        &["--seccomp", "none"],
    ];
    for flags in bad {
        let ran = world.run(flags, &["echo", "ran"]).says_not("ran");
        assert!(matches!(ran.code, 125 | 2), "{flags:?}: {ran:?}");
    }
}

/// PO-08, PO-12
#[test]
fn neither_the_folder_nor_the_environment_can_switch_a_wall_off() {
    let world = World::new();
    let look = "grep -c . /proc/net/dev; grep Seccomp: /proc/self/status; echo x > .envrc; cat /proc/1/comm";
    let expected = world.sh(look);
    let file = "[net]\nmode = \"host\"\n[guard]\nenabled = false\n[lock]\nseccomp = \"none\"\n";
    world.write("w/.cowork.toml", file);
    let ran = world.sh(look);
    // Refused, or obeyed no further than it is stricter.
    assert!(ran.code == 125 || ran.out == expected.out, "{ran:?}");
    assert!(!exists(&world.work().join(".envrc")));
    std::fs::remove_file(world.work().join(".cowork.toml")).unwrap();

    let mut command = crate::outside::run(&world, &[], &["sh", "-c", look]);
    for name in [
        "COWORK_SANDBOX",
        "COWORK_NETWORK",
        "COWORK_GUARD",
        "COWORK_SECCOMP",
        "COWORK_ISOLATION",
    ] {
        command.env(name, "0");
    }
    let ran = Ran::of(&mut command);
    assert_eq!(ran.out, expected.out);
    assert!(!exists(&world.work().join(".envrc")));
    // The control: the same file, named by the user, is obeyed.
    let policy = world.write("policy.toml", "name = \"mine\"\n[guard]\nenabled = false\n");
    world.run(
        &["--profile", policy.to_str().unwrap()],
        &["sh", "-c", look],
    );
    assert!(exists(&world.work().join(".envrc")));
}
