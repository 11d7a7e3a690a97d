//! What a program in a session leaves in a folder that it may write to, for the app to find later: links, and
//! folders under other names.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::App;
use crate::ground::{Ground, from_root, mount, with};
use crate::support::exists;

fn run(ground: &Ground, app: &mut App, mounts: &Value, script: &str) -> (Vec<String>, String) {
    let id = format!("p{}", crate::ground::fresh());
    let params = with(ground.sh(&id, script), json!({"additionalMounts": mounts}));
    let failed = app.line.spawn(params);
    (failed, app.events.finished(&id).out)
}

#[test]
fn a_link_that_a_session_left_is_not_the_way_to_a_folder() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (proj, private) = (ground.folder("proj"), ground.folder("private"));
    std::fs::write(private.join("s"), "TOPSECRET").unwrap();
    for name in [".git/hooks", "sub"] {
        std::fs::create_dir_all(proj.join(name)).unwrap();
    }
    for made in [".git", ".git/hooks", "sub", "sub.old"] {
        ground.expects(proj.join(made));
    }
    // One that was there before is the user's own, and so is what it leads to.
    std::os::unix::fs::symlink(&private, proj.join("before")).unwrap();
    let early = json!({"early": mount(&proj.join("before"), "ro")});
    let (failed, said) = run(&ground, &mut app, &early, "cat mnt/early/s");
    assert_eq!((failed.len(), said.as_str()), (0, "TOPSECRET"));

    let only = json!({"proj": mount(&proj, "rw")});
    let plant = format!(
        "cd mnt/proj && mv sub sub.old && ln -s {} sub && ln -s .git/hooks o2 && ln -s ../private o3 && echo done",
        private.display()
    );
    let (failed, said) = run(&ground, &mut app, &only, &plant);
    assert_eq!((failed.len(), said.as_str()), (0, "done\n"));
    assert!(exists(&proj.join("sub/s")), "outside it leads there");
    let later = |path: &Path, name: &str| {
        let mut mounts = only.clone();
        mounts[name] = mount(path, "rw");
        mounts
    };
    for name in ["sub", "o2", "o3", "before"] {
        let script = format!("cat mnt/{name}/s; echo pwned > mnt/{name}/w; true");
        let (failed, said) = run(&ground, &mut app, &later(&proj.join(name), name), &script);
        assert_eq!(failed, [name]);
        assert!(!said.contains("TOPSECRET"), "{name}: {said}");
        let wish = json!({"processId": ground.sh("", "")["name"], "subpath": from_root(&proj.join(name)),
                          "mountName": format!("live-{name}"), "mode": "rw"});
        let why = app.line.refused("mountPath", wish);
        assert!(why.contains("link"), "{why}");
    }
    assert!(!exists(&private.join("w")));
    assert!(!exists(&proj.join(".git/hooks/w")));
    // Nor is anything made behind one.
    let (failed, _) = run(
        &ground,
        &mut app,
        &later(&proj.join("sub/fresh"), "fresh"),
        "true",
    );
    assert_eq!(failed, ["fresh"]);
    assert!(!exists(&private.join("fresh")));
}

#[test]
fn a_folder_in_a_shared_one_has_one_name() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let proj = ground.folder("proj");
    std::fs::create_dir_all(proj.join("a/sub")).unwrap();
    std::fs::write(proj.join("a/sub/file"), "the user's").unwrap();
    let beside = json!({"ov": mount(&proj, "rw"), "sub2": mount(&proj.join("a/sub"), "rwd")});
    let (failed, _) = run(&ground, &mut app, &beside, "true");
    assert_eq!(failed, ["sub2"]);

    for made in ["a", "a/sub"] {
        ground.expects(proj.join(made));
    }
    // At its own place it may be shared with other rights, and those go with it.
    let ground = Ground::booted();
    let mut app = ground.app();
    let proj = ground.folder("proj");
    std::fs::create_dir_all(proj.join("a/sub")).unwrap();
    std::fs::write(proj.join("a/sub/file"), "the user's").unwrap();
    for made in ["a", "a/sub", "b", "b/sub", "d"] {
        ground.expects(proj.join(made));
    }
    let inside = json!({"p": mount(&proj, "rwd"), "p/a/sub": mount(&proj.join("a/sub"), "ro")});
    let script = "cd mnt; mv p/a p/b; echo PWN > p/a/sub/file; echo PWN > p/b/sub/file; \
                  rm -f p/a/sub/file p/b/sub/file; mkdir p/c && mv p/c p/d && echo moved; true";
    let (failed, said) = run(&ground, &mut app, &inside, script);
    assert_eq!((failed.len(), said.as_str()), (0, "moved\n"));
    let file = proj.join("a/sub/file");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "the user's");
    // Alone, nothing keeps it from being moved.
    let alone = json!({"p": mount(&proj, "rwd")});
    run(&ground, &mut app, &alone, "mv mnt/p/a mnt/p/b");
    assert!(exists(&proj.join("b/sub/file")));
}
