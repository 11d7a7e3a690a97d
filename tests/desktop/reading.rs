//! What the app reads of a session's files, and what it does not (M23 to M26).

use serde_json::{Value, json};

use crate::ground::{Ground, mount, with, within};

/// The alphabet of RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut group = [0u8; 4];
        group[1..=three.len()].copy_from_slice(three);
        let number = u32::from_be_bytes(group);
        for at in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() {
                letter as char
            } else {
                '='
            });
        }
    }
    text
}

#[test]
fn the_alphabet_is_the_usual_one() {
    for (plain, coded) in [
        ("", ""),
        ("f", "Zg=="),
        ("fo", "Zm8="),
        ("foo", "Zm9v"),
        ("foob", "Zm9vYg=="),
    ] {
        assert_eq!(base64(plain.as_bytes()), coded);
    }
}

fn reading(ground: &Ground, path: &str) -> Value {
    json!({"processName": ground.name, "filePath": path})
}

#[test]
fn m24_files_come_as_they_are() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let folder = ground.folder("w");
    let png: Vec<u8> = (0..=255)
        .chain(b"\x89PNG\r\n\x1a\n".iter().copied())
        .collect();
    std::fs::write(folder.join("image.png"), &png).unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    std::fs::create_dir(folder.join("deep")).unwrap();
    ground.expects(folder.join("deep"));
    std::fs::write(folder.join("deep/\u{e9} a"), "x").unwrap();
    let mounts = json!({"additionalMounts": {"proj": mount(&folder, "rw")}});
    app.run(with(
        ground.sh("p", "echo at home > ~/note; ln -s file mnt/proj/l"),
        mounts,
    ))
    .ok();
    for (path, content) in [
        ("mnt/proj/file", &b"of the user\n"[..]),
        ("mnt/proj/image.png", &png),
        ("mnt/proj/empty", b""),
        ("mnt/proj/deep/\u{e9} a", b"x"),
        ("mnt/proj/l", b"of the user\n"),
        ("note", b"at home\n"),
    ] {
        let result = app
            .line
            .ok("readFile", reading(&ground, &ground.inside(path)));
        assert_eq!(result, json!({"content": base64(content)}), "{path}");
    }
    // Its session need not run.
    app.line.ok("stopVM", json!({}));
    let result = app
        .line
        .ok("readFile", reading(&ground, &ground.inside("note")));
    assert_eq!(result["content"], base64(b"at home\n"));
}

#[test]
fn m23_m25_m26_nothing_else_is_read() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let (folder, secret) = (
        ground.folder("w"),
        ground.world.write("secret", "not yours"),
    );
    std::fs::write(folder.join("big"), vec![b'x'; 20_000_000]).unwrap();
    let mounts = json!({"additionalMounts": {"proj": mount(&folder, "rw")}});
    let script = "ln -s /etc/passwd mnt/proj/l; ln -s ../../../../../../../../etc/passwd mnt/proj/up; \
                  ln -s / mnt/proj/root; ln -s loop mnt/proj/loop; mkfifo mnt/proj/fifo ~/fifo; \
                  ln -s /proc/self/environ ~/environ; ln -s \"$1\" ~/out; mkdir ~/d; ln -s /etc ~/d/etc";
    let args = json!({"args": ["-c", script, "sh", secret]});
    app.run(with(with(ground.sh("p", ""), mounts), args)).ok();
    let other = json!({"name": ground.other("two")});
    app.run(with(ground.sh("q", "echo theirs > ~/note"), other))
        .ok();
    let theirs = format!("/sessions/{}/note", ground.other("two"));
    let up = ground.inside("mnt/proj/../../../../etc/passwd");
    let inside = |path: &str| ground.inside(path);
    for path in [
        &up,
        "/etc/passwd",
        &theirs,
        &inside("mnt/proj"),
        &inside(""),
        &inside("mnt/proj/fifo"),
        &inside("fifo"),
        &inside("mnt/proj/missing"),
        &inside("mnt/proj/l"),
        &inside("mnt/proj/up"),
        &inside("mnt/proj/root/etc/passwd"),
        &inside("mnt/proj/loop"),
        &inside("environ"),
        &inside("out"),
        &inside("d/etc/passwd"),
        &inside("mnt/gone/x"),
        "",
        "/",
        "relative",
        "../x",
        "/proc/self/environ",
        &format!("{}\0", inside("mnt/proj/file")),
        &inside("../../../etc/passwd"),
        &format!("/sessions/{}/../{}/note", ground.name, ground.other("two")),
        secret.to_str().unwrap(),
        folder.join("file").to_str().unwrap(),
    ] {
        within(10, "a refusal", || {
            app.line.refused("readFile", reading(&ground, path))
        });
    }
    for name in [
        "../x",
        "",
        "no-such-session",
        &format!("{}/../{}", ground.name, ground.name),
    ] {
        let params = json!({"processName": name, "filePath": inside("mnt/proj/file")});
        app.line.refused("readFile", params);
    }
    let why = app
        .line
        .refused("readFile", reading(&ground, &inside("mnt/proj/big")));
    assert!(why.contains("big") || why.contains("MiB"), "{why}");
    let result = app
        .line
        .ok("readFile", reading(&ground, &inside("mnt/proj/file")));
    assert_eq!(result["content"], base64(b"of the user\n"));
}

#[test]
fn answers_that_nobody_takes_are_not_piled_up() {
    let ground = Ground::booted();
    let mut app = ground.app();
    let proj = ground.folder("proj");
    std::fs::write(proj.join("long"), vec![b'x'; 7 << 20]).unwrap();
    let mounts = json!({"additionalMounts": {"proj": mount(&proj, "ro")}});
    app.run(with(ground.sh("shows", "true"), mounts)).ok();
    let file = json!({"processName": ground.sh("", "")["name"], "filePath": ground.inside("mnt/proj/long")});
    let before = ground.memory().0;
    let mut line = ground.line();
    let asked: Vec<u64> = (0..30)
        .map(|_| line.request("readFile", file.clone()))
        .collect();
    for _ in 0..100 {
        assert!(app.line.is_connected());
    }
    let mut most = 0;
    for number in asked {
        most = most.max(ground.memory().0);
        let reply = line.reply(number);
        assert_eq!(reply["success"], true);
        let content = reply["result"]["content"].as_str().unwrap();
        assert_eq!(content.len(), (7_usize << 20).div_ceil(3) * 4);
    }
    // A few of them are under way; thirty would be ten times as much.
    assert!(most < before + 64 * 1024, "{before} KiB, then {most} KiB");
}
