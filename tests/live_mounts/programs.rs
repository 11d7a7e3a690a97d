//! Programs that come and go in /usr/local/bin.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::Ran;
use crate::{Stay, text};

const POLICY: &str = "extends = \"default\"\n[files]\nchangeable-programs = true\n";

/// A script that says a word.
fn program(stay: &Stay, name: &str) -> String {
    let path = stay.world.write(
        &format!("made/{name}"),
        &format!("#!/bin/sh\necho {name} $1\n"),
    );
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    text(&path)
}

#[test]
fn a_program_comes_is_exchanged_and_goes() {
    let stay = Stay::under(POLICY, &[]);
    let (first, second) = (program(&stay, "first"), program(&stay, "second"));
    let at = "/usr/local/bin/cowork-test";
    let before = stay
        .at_home("ls -la --time-style=+ /usr/local/bin")
        .ok()
        .out;
    stay.at_home("cowork-test").failed_with(127);
    stay.mount(&format!("{first}:{at}:ro")).ok().says(at);
    stay.at_home("cowork-test x; command -v cowork-test")
        .ok()
        .says(&format!("first x\n{at}\n"));
    stay.does(&["inspect", stay.id]).ok().says(at);
    // It is read-only, and so is the folder.
    for script in [
        "echo evil >> /usr/local/bin/cowork-test",
        "rm -f /usr/local/bin/cowork-test",
        "mv /usr/local/bin/cowork-test /usr/local/bin/other",
        "touch /usr/local/bin/new",
        "ln -s /bin/sh /usr/local/bin/new",
        "mkdir /run/cowork/usr/local/new",
    ] {
        assert_ne!(stay.at_home(script).code, 0, "{script}");
        let elsewhere = script.replace("/usr/local/bin", "/tmp/bin");
        let elsewhere = elsewhere.replace("/run/cowork/usr/local", "/tmp/bin");
        let set_up = "rm -rf /tmp/bin; mkdir /tmp/bin; touch /tmp/bin/cowork-test";
        stay.at_home(&format!("{set_up}; {elsewhere}")).ok();
    }
    stay.mount(&format!("{second}:{at}:ro"))
        .failed_with(1)
        .complains("--replace exchanges it");
    let spec = format!("{second}:{at}:ro");
    stay.does(&["mount", "--replace", stay.id, &spec]).ok();
    stay.at_home("cowork-test y").ok().says("second y");
    stay.does(&["unmount", stay.id, at]).ok();
    let after = stay
        .at_home("ls -la --time-style=+ /usr/local/bin")
        .ok()
        .out;
    assert_eq!(before, after);
    let kept = std::fs::read_to_string(&first).unwrap();
    assert!(kept.ends_with("echo first $1\n"), "{kept}");
}

/// What the host has in there, by kind.
fn on_the_host() -> Vec<(PathBuf, bool)> {
    let listed = std::fs::read_dir("/usr/local/bin").into_iter().flatten();
    let entries = listed.map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.clone(), path.symlink_metadata().unwrap().is_file()))
        .collect()
}

#[test]
fn what_the_host_has_there_is_seen_as_before() {
    let plain = Stay::new(&[]);
    let stay = Stay::under(POLICY, &[]);
    // Files by what they hold; links by what they say and where they lead.
    let script = "cd /usr/local/bin 2>&- || exit 0; for name in $(ls); do \
                  if [ -f $name ]; then echo $name; head -c 512 $name | cksum; fi; done; \
                  for name in $(find . -type l); do test -e $name && echo $name leads on; done";
    let all = plain.sh(script).out;
    let files: String = all
        .lines()
        .filter(|line| !line.ends_with("leads on"))
        .collect();
    let here = stay.at_home(script).out;
    let seen: String = here
        .lines()
        .filter(|line| !line.ends_with("leads on"))
        .collect();
    assert_eq!(files, seen);
    for line in all.lines().filter(|line| line.ends_with("leads on")) {
        assert!(here.contains(line), "{line}");
    }
    stay.at_home("test -d /usr/local/bin && test -x /run/cowork/usr/bin/env")
        .ok();
}

#[test]
fn a_name_that_the_host_has_is_covered_and_comes_back() {
    let Some((name, _)) = on_the_host().into_iter().find(|(_, is_file)| *is_file) else {
        // Nothing can be put there for a test.
        return;
    };
    let stay = Stay::under(POLICY, &[]);
    let at = text(&name);
    let look = format!("ls -l --time-style=+ {at}; head -c 64 {at} | cksum");
    let before = stay.at_home(&look).ok().out;
    stay.mount(&format!("{}:{at}:ro", program(&stay, "mine")))
        .ok();
    stay.at_home(&format!("{at} now; test ! -L {at}"))
        .ok()
        .says("mine now");
    stay.does(&["unmount", stay.id, &at]).ok();
    assert_eq!(before, stay.at_home(&look).ok().out);
    assert!(name.symlink_metadata().unwrap().is_file());
}

#[test]
fn only_programs_come_there_and_only_where_the_policy_says_so() {
    let stay = Stay::under(POLICY, &[]);
    let (folder, program) = (text(&stay.folder("more")), program(&stay, "it"));
    let refused = |spec: String, why: &str| {
        stay.mount(&spec).failed_with(1).complains(why);
    };
    refused(
        format!("{folder}:/usr/local/bin/x:ro"),
        "only a single program",
    );
    refused(format!("{program}:/usr/local/bin/x:rw"), "it is a file");
    refused(format!("{program}:/usr/local/bin/x/y:ro"), "not deeper");
    refused(format!("{program}:/usr/local/bin/../x:ro"), "is not a name");
    refused(format!("{program}:/usr/bin/x:ro"), "belongs to the box");
    let gone = stay.world.path("gone");
    std::os::unix::fs::symlink("/etc/shadow-of-nothing", &gone).unwrap();
    refused(
        format!("{}:/usr/local/bin/x:ro", text(&gone)),
        "No such file",
    );
    stay.at_home("test ! -e /usr/local/bin/x").ok();
    let plain = Stay::new(&[]);
    plain
        .mount(&format!("{program}:/usr/local/bin/x:ro"))
        .failed_with(1)
        .complains("changeable-programs = true");
    // A single file can come elsewhere too, to be read.
    plain.mount(&format!("{program}:tool:ro")).ok();
    plain.at_home("mnt/tool z").ok().says("it z");
}

#[test]
fn the_plan_says_so() {
    let stay = Stay::under(POLICY, &[]);
    let policy = text(&stay.world.path("policy.toml"));
    let mut command = stay.command(&["run", "--dry-run", "--profile", &policy, "--", "true"]);
    Ran::of(&mut command)
        .ok()
        .says("make /usr/local/bin a folder that programs can be mounted in later (read only)");
    let mut plain = stay.command(&["run", "--dry-run", "--", "true"]);
    Ran::of(&mut plain).ok().says_not("/usr/local/bin");
    assert!(
        !Path::new("/run/cowork/usr").exists(),
        "nothing is made on the host"
    );
}
