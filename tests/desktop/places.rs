//! Where mounts may be and what they are called, and what is never shared (M12 to M16).

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::client::frame;
use crate::ground::{Ground, mount, private, with};
use crate::mounts::{over, tried};
use crate::support::exists;

#[test]
fn m12_m13_mounts_in_mounts() {
    let ground = Ground::new();
    let data = ground.world.path("home/.config/Claude");
    let whose =
        json!({"userDataName": "Claude", "userDataRoot": ground.world.path("home/.config")});
    let mut app = ground.app();
    app.line.ok("configure", whose.clone());
    app.events = crate::client::Listener::to(&ground.socket(), whose);
    app.line.ok("startVM", json!({}));
    let make = |name: &str| {
        let folder = data.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), name).unwrap();
        folder
    };
    let (claude, linked, skills) = (make("s1/.claude"), make("s2/.claude"), make("skills"));
    let nested = |claude: &Path| json!({".claude": mount(claude, "rwd"), ".claude/skills": mount(&skills, "ro")});
    let script = "cat mnt/.claude/file; echo; cat mnt/.claude/skills/file; echo; \
                  echo x > mnt/.claude/new && echo written; touch mnt/.claude/skills/new 2>&1; true";
    // The order in which the app wrote them is the wrong one here; a `Value` has none of its own.
    let request = json!({"method": "spawn", "id": 99, "params": with(ground.sh("n", script), json!({"additionalMounts": 0}))});
    let reversed = format!(
        "\"additionalMounts\":{{\".claude/skills\":{},\".claude\":{}}}",
        mount(&skills, "ro"),
        mount(&claude, "rwd")
    );
    let request = request
        .to_string()
        .replace("\"additionalMounts\":0", &reversed);
    app.line.put(&frame(request.as_bytes()));
    let reply = app.line.reply(99);
    assert_eq!(reply["result"]["failedMounts"], json!([]), "{reply}");
    let said = app.events.finished("n").ok();
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("s1/.claude"));
    assert_eq!(lines.next(), Some("skills"));
    assert_eq!(lines.next(), Some("written"));
    assert!(
        lines.next().unwrap().contains("Read-only file system"),
        "{said}"
    );

    // The app's own link to the same folder stays what it is.
    symlink(&skills, linked.join("skills")).unwrap();
    let name = ground.other("linked");
    let more = json!({"name": name, "additionalMounts": nested(&linked)});
    let params = with(ground.sh("linked", "cat mnt/.claude/skills/file"), more);
    assert_eq!(app.run(params).ok(), "skills");
    assert_eq!(std::fs::read_link(linked.join("skills")).unwrap(), skills);
    assert!(!exists(&skills.join("new")));
}

#[test]
fn m12_a_place_in_the_users_own_folder_is_not_made() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (outer, inner) = (ground.folder("outer"), ground.folder("inner"));
    symlink("/etc", outer.join("link")).unwrap();
    std::fs::create_dir(outer.join("there")).unwrap();
    ground.expects(outer.join("there"));
    let mounts = json!({
        "o": mount(&outer, "rwd"), "o/not-there": mount(&inner, "ro"), "o/link": mount(&inner, "ro"),
        "o/there": mount(&inner, "ro"),
    });
    let (failed, said) = tried(&ground, &mut app, mounts, "cat mnt/o/there/file");
    assert_eq!(failed, ["o/link", "o/not-there"]);
    assert_eq!(said, "of the user\n");
    assert!(!exists(&outer.join("not-there")));
}

#[test]
fn m14_names_that_lead_elsewhere() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let long = "n".repeat(256);
    let longer = vec!["n".repeat(200); 21].join("/");
    let names = [
        "..",
        "../../evil",
        "/abs",
        "a/../b",
        "",
        "a//b",
        "a\0b",
        ".",
        "a/./b",
        "a/",
        &long,
        &longer,
    ];
    let mut mounts = json!({"good": mount(&folder, "ro")});
    for name in names {
        mounts[name] = mount(&folder, "rw");
    }
    let script = "ls -A mnt; ls ..; ls -d /evil /abs /sessions/evil 2>/dev/null; true";
    let (failed, said) = tried(&ground, &mut app, mounts, script);
    let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(failed, expected);
    assert_eq!(said, format!("good\n{}\n", ground.name));
}

#[test]
fn m15_names_as_people_give_them() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let long = "n".repeat(255);
    let names = [
        "with space",
        "q'u\"o",
        "$(touch x)",
        "new\nline",
        "\u{1f600}",
        &long,
        "\u{130}",
        "i\u{307}",
        "-rf",
        "back\\slash",
        "*",
        ".dotted",
        "tab\there",
    ];
    let mut mounts = json!({});
    for name in names {
        mounts[name] = mount(&folder, "ro");
    }
    let script = "cd mnt; for d in * .dotted; do cat \"./$d/file\" >/dev/null || echo \"not $d\"; printf '%s\\0' \"$d\"; done";
    let said = over(&ground, &mut app, mounts, script).ok();
    let mut seen: Vec<&str> = said.split_terminator('\0').collect();
    seen.sort_unstable();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

#[test]
fn m16_what_is_never_shared() {
    let ground = Ground::booted();
    let mut app = ground.app();
    app.run(ground.sh("first", "true")).ok();
    for name in ["home/.ssh", "home/.gnupg"] {
        std::fs::create_dir_all(ground.world.path(name)).unwrap();
        private(&ground.world.path(name));
    }
    let state = ground.world.path("state/cowork-linux");
    assert!(exists(&state));
    let home = ground.world.path("home").display().to_string();
    let claude = format!("{home}/.config/Claude");
    let (ssh, gnupg) = (format!("{home}/.ssh"), format!("{home}/.gnupg"));
    let (state, run) = (
        state.display().to_string(),
        ground.world.path("run").display().to_string(),
    );
    let user = format!("/run/user/{}", nix::unistd::getuid());
    let all = [
        "/",
        "",
        &home,
        "/proc",
        "/proc/self",
        "/sys",
        "/dev",
        "/dev/shm/..",
        "/etc",
        "/usr",
        "/usr/share",
        "/var/lib",
        "/boot",
        &user,
        "/run",
        &state,
        &run,
        &ssh,
        &gnupg,
        &claude,
        "..",
        "../..",
        "etc",
        "proc/1/root",
    ];
    let mut mounts = json!({});
    for (at, path) in all.iter().enumerate() {
        mounts[format!("m{at:02}")] = json!({"path": path, "mode": "ro"});
    }
    let (failed, said) = tried(&ground, &mut app, mounts, "ls -A mnt");
    let expected: Vec<String> = (0..all.len()).map(|at| format!("m{at:02}")).collect();
    let missing: Vec<&&str> = all
        .iter()
        .enumerate()
        .filter(|(at, _)| !failed.contains(&format!("m{at:02}")))
        .map(|(_, path)| path)
        .collect();
    assert!(missing.is_empty(), "shared: {missing:?}");
    assert_eq!((failed, said.as_str()), (expected, ""));
    drop((app, ground));

    // The home only for who has said so.
    let mut ground = Ground::bare();
    ground.start(&["--allow-home"]);
    ground.boots();
    let mut app = ground.app();
    std::fs::write(ground.world.path("home/mine"), "x").unwrap();
    let mounts = json!({"h": mount(&ground.world.path("home"), "ro")});
    assert_eq!(over(&ground, &mut app, mounts, "ls mnt/h").ok(), "mine\n");
}
