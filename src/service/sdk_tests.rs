use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::folders_tests::Ground;
use super::sdk::Sdk;

const DATA: &str = "h/u/.config/Claude/claude-code-vm";

/// The first bytes of a program for this computer.
fn elf() -> Vec<u8> {
    let mut own = vec![0; 64];
    fs::File::open("/proc/self/exe")
        .and_then(|mut file| file.read_exact(&mut own))
        .unwrap();
    own
}

fn put(path: &Path, content: &[u8]) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

fn sdk(ground: &Ground) -> Sdk {
    Sdk::new(
        ground.sources.clone(),
        OsString::from("relative:/nonexistent"),
    )
}

#[test]
fn m27_the_apps_own_is_taken_and_looked_at_again_when_it_changes() {
    let ground = Ground::new();
    let file = put(&ground.path(DATA).join("2.1.209/claude"), &elf());
    put(&ground.path("h/u/.local/bin/claude"), &elf());
    let mut sdk = sdk(&ground);
    for _ in 0..3 {
        assert_eq!(sdk.install(&ground.said(DATA), "2.1.209"), None);
        assert_eq!(sdk.program().unwrap().path, file);
    }
    assert_eq!(sdk.program().unwrap().wish().place, "/usr/local/bin/claude");
    assert!(!sdk.program().unwrap().is_in_view());
    fs::write(&file, "no program").unwrap();
    assert!(sdk.program().is_err());
    assert!(sdk.install(&ground.said(DATA), "2.1.209").is_some());
}

#[test]
fn m28_one_that_is_missing_is_named_and_nothing_takes_its_place() {
    let ground = Ground::new();
    put(&ground.path(DATA).join("2.1.208/claude"), &elf());
    put(&ground.path("h/u/.local/bin/claude"), &elf());
    let mut sdk = sdk(&ground);
    let expected = ground.path(DATA).join("2.1.209/claude");
    let note = sdk.install(&ground.said(DATA), "2.1.209").unwrap();
    let why = sdk.program().unwrap_err();
    for text in [note, why] {
        assert!(text.contains(expected.to_str().unwrap()), "{text}");
    }
    // It may still come.
    put(&expected, &elf());
    assert_eq!(sdk.program().unwrap().path, expected);
}

#[test]
fn neither_word_climbs() {
    let ground = Ground::new();
    put(&ground.path(DATA).join("1.0/claude"), &elf());
    put(&ground.path("else/where/claude"), &elf());
    let mut sdk = sdk(&ground);
    let data = ground.said(DATA);
    for (subpath, version) in [
        (data.as_str(), ".."),
        (&data, "."),
        (&data, ""),
        (&data, "1.0/../1.0"),
        (&data, "/"),
        (&data, "1.0/"),
        (&data, "a\0b"),
        (&data, "../../../../../else/where"),
        (&format!("{data}/.."), "1.0"),
        ("../../etc", "1.0"),
        ("", "1.0"),
        ("a\0b", "1.0"),
    ] {
        assert!(
            sdk.install(subpath, version).is_some(),
            "{subpath:?} {version:?}"
        );
        assert!(sdk.program().is_err());
    }
    assert_eq!(sdk.install(&data, "1.0"), None);
}

#[test]
fn the_newest_by_number_comes_before_others() {
    let ground = Ground::new();
    let by_hand = put(&ground.path("h/u/.local/bin/claude"), &elf());
    let tried = sdk(&ground);
    assert_eq!(tried.program().unwrap().path, by_hand);
    for version in ["2.1.9", "2.1.10", "2.1.10-beta", "2.0.100", "notes"] {
        put(&ground.path(DATA).join(version).join("claude"), &elf());
    }
    let newest = ground.path(DATA).join("2.1.10/claude");
    assert_eq!(tried.program().unwrap().path, newest);
    // A newer one that cannot run is passed over.
    put(&ground.path(DATA).join("3.0.0/claude"), b"");
    assert_eq!(tried.program().unwrap().path, newest);
}

#[test]
fn without_any_it_says_where_it_looked() {
    let ground = Ground::new();
    let why = sdk(&ground).program().unwrap_err();
    assert!(
        why.contains(".local/bin/claude") && why.contains("PATH"),
        "{why}"
    );
    let found = put(&ground.path("else/where/claude"), &elf());
    let search = ground.path("else/where").into_os_string();
    let sdk = Sdk::new(ground.sources.clone(), search);
    assert_eq!(sdk.program().unwrap().path, found);
}

#[test]
fn a_link_is_resolved_and_a_shim_is_none() {
    let ground = Ground::new();
    let real = put(
        &ground.path("h/u/.local/share/claude/versions/2.1.1"),
        &elf(),
    );
    let link = ground.path("h/u/.local/bin/claude");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    symlink(&real, &link).unwrap();
    assert_eq!(sdk(&ground).program().unwrap().path, real);
    fs::remove_file(&link).unwrap();
    fs::remove_file(&real).unwrap();
    let manager = put(&ground.path("h/u/bin/mise"), &elf());
    symlink(&manager, &link).unwrap();
    assert!(sdk(&ground).program().is_err());
    let managed = "h/u/.local/share/mise/installs/claude/2.1.2/claude";
    let managed = put(&ground.path(managed), &elf());
    assert_eq!(sdk(&ground).program().unwrap().path, managed);
}

#[test]
fn s3_what_cannot_run_is_refused_each_in_its_own_words() {
    let ground = Ground::new();
    let file = ground.path(DATA).join("1/claude");
    let mut said = std::collections::BTreeSet::new();
    let mut other_machine = elf();
    other_machine[18] ^= 0xff;
    let mut too_narrow = elf();
    too_narrow[4] = 1;
    let contents: [(&str, &[u8]); 10] = [
        ("macOS", &[0xcf, 0xfa, 0xed, 0xfe, 7, 0, 0, 1]),
        ("Windows", b"MZ\x90"),
        ("empty", b""),
        ("no program for Linux", b"hello"),
        ("another processor", &other_machine),
        ("a few bytes", b"\x7fELF"),
        ("/opt/node", b"#!/opt/node\n"),
        ("no-such-node", b"#!/usr/bin/env -S no-such-node --x\n"),
        ("without an interpreter", b"#!  \nx"),
        ("/no/such", b"#! /no/such -x"),
    ];
    let mut sdk = sdk(&ground);
    for (word, content) in contents {
        let _ = fs::remove_file(&file);
        put(&file, content);
        let why = sdk.install(&ground.said(DATA), "1").unwrap();
        assert!(why.contains(word), "{word}: {why}");
        assert!(said.insert(why));
    }
    put(&file, &too_narrow);
    assert!(sdk.install(&ground.said(DATA), "1").is_some());
    put(&file, &elf());
    assert_eq!(sdk.install(&ground.said(DATA), "1"), None);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert!(sdk.program().unwrap_err().contains("chmod +x"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(sdk.program().unwrap_err().contains("not a file"));
    fs::remove_dir(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(sdk.program().unwrap_err().contains("not a file"));
    fs::remove_file(&file).unwrap();
    symlink("claude", &file).unwrap();
    assert!(sdk.program().is_err());
}

#[test]
fn a_script_runs_where_its_interpreter_is() {
    let ground = Ground::new();
    let mut sdk = sdk(&ground);
    for line in [
        "#!/bin/sh\n",
        "#!/usr/bin/env sh\n",
        "#! /usr/bin/env -S sh -e\n",
    ] {
        put(&ground.path(DATA).join("1/claude"), line.as_bytes());
        assert_eq!(sdk.install(&ground.said(DATA), "1"), None, "{line}");
    }
    let packed = ground.path(DATA).join("node_modules/1/claude");
    put(&packed, b"#!/bin/sh\n");
    let why = sdk.install(&ground.said(&format!("{DATA}/node_modules")), "1");
    assert!(why.unwrap().contains("native build"));
}
