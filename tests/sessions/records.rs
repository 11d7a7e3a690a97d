//! `history`, `why`, `inspect`: what is told later, and what never is.

use std::path::Path;

use crate::ground::{Ground, eventually};
use crate::support::Ran;

#[test]
fn history_tells_what_ran_and_how_it_ended() {
    let ground = Ground::new();
    ground.start(&["--name", "good"], &["true"]);
    ground.start(&["--name", "bad"], &["sh", "-c", "exit 3"]);
    ground.sleeper("still");
    ground.exec("still", &["true"]).ok();
    ground.becomes("good", "ended");
    ground.becomes("bad", "ended");
    let all = ground.say(&["history"]).ok();
    let all = all
        .says("good")
        .says("bad")
        .says("still")
        .says("exit code 3");
    all.says("running").says("REFUSED");
    ground
        .say(&["history", "--failed"])
        .ok()
        .says("bad")
        .says_not("good");
    ground
        .say(&["history", "--success"])
        .ok()
        .says("good")
        .says_not("bad");
    ground
        .say(&["history", "--since", "2999-01-01"])
        .says_not("good");
    ground.say(&["history", "--since", "1h"]).ok().says("good");
    ground
        .say(&["history", "--since", "nonsense"])
        .failed_with(1)
        .complains("--since");
    ground
        .say(&["history", "bad"])
        .ok()
        .says("exit code 3")
        .says_not("good");
    let json = ground.json(&["history", "--json"]);
    assert_eq!(json.as_array().unwrap().len(), 3);
    let sums = ground.say(&["history", "--stats"]).ok();
    assert!(
        serde_json::from_str::<serde_json::Value>(&sums.out).is_ok(),
        "{}",
        sums.out
    );
    let json = ground.json(&["history", "--json", "still"]);
    assert_eq!(json[0]["execs"], 1);
}

#[test]
fn one_changed_byte_is_found() {
    let ground = Ground::new();
    ground.start(&["--name", "a"], &["sh", "-c", "exit 3"]);
    ground.becomes("a", "ended");
    ground.say(&["history", "--verify"]).ok().says("whole");
    let text = std::fs::read_to_string(ground.journal("a")).unwrap();
    std::fs::write(
        ground.journal("a"),
        text.replace("\"code\":3", "\"code\":0"),
    )
    .unwrap();
    let told = ground
        .say(&["history", "--verify"])
        .failed_with(1)
        .says("a");
    told.says_not("whole");
    std::fs::write(ground.journal("a"), &text).unwrap();
    ground.say(&["history", "--verify"]).ok().says("whole");
}

#[test]
fn why_names_the_rule_and_what_would_allow_it() {
    let ground = Ground::new();
    ground.world.write("w/.mcp.json", "mine");
    let id = ground.start(&[], &["sh", "-c", "echo evil > .mcp.json; true"]);
    ground.becomes(&id, "ended");
    let told = ground.say(&["why", ".mcp.json"]).ok();
    told.says(".mcp.json").says("lift");
    ground.say(&["history"]).ok().says(&id);
    let json = ground.json(&["history", "--json", &id]);
    assert_ne!(json[0]["refusals"], serde_json::json!({}), "{json}");
    // In a program that came later as well, while it runs.
    ground.sleeper("s");
    ground.exec_sh("s", "echo evil > .mcp.json");
    eventually("it is told", || {
        ground
            .say(&["why", "--session", "s", ".mcp.json"])
            .out
            .contains("lift")
    });
}

#[test]
fn inspect_shows_the_plan() {
    let ground = Ground::new();
    ground.sleeper("s");
    let mut caller = ground.spawn(&["exec", "-i", "s", "--", "cat", "-u", "-"]);
    eventually("it shows the exec", || {
        ground.json(&["inspect", "s"])["seen"]["execs"][0]["program"][1] == "-u"
    });
    let seen = ground.json(&["inspect", "s"]);
    assert_eq!(seen["state"], "running");
    assert!(seen["seen"]["plan"]["build"].as_array().unwrap().len() > 5);
    assert!(seen["seen"]["plan"]["lock"].is_object());
    // What is told of the session is told once.
    assert!(seen["record"]["supervisor"].is_object());
    assert_eq!(seen["seen"].get("record"), None, "{seen}");
    let text = ground.say(&["inspect", "s"]).ok().out;
    assert_eq!(text.matches("\"supervisor\"").count(), 1, "{text}");
    drop(caller.stdin.take());
    caller.wait().unwrap();
}

/// A plan with many steps is long; it has to arrive nevertheless.
#[test]
fn inspect_of_a_session_with_many_mounts_arrives() {
    let ground = Ground::new();
    let mut flags = vec!["--name".to_owned(), "many".to_owned()];
    for number in 0..200 {
        let folder = ground
            .world
            .path(&format!("share/a-folder-with-a-rather-long-name-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        flags.extend(["--mount".to_owned(), folder.display().to_string()]);
    }
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    ground.start(&flags, &["sleep", "1000"]);
    let seen = ground.json(&["inspect", "many"]);
    assert_eq!(seen["record"]["mounts"].as_array().unwrap().len(), 201);
    assert!(
        seen["seen"].is_object(),
        "running, but it could not be asked"
    );
    ground.say(&["ls"]).ok().says("many");
}

const SECRET: &str = "tell-nobody-5d41402abc";

#[test]
fn values_of_variables_are_told_nowhere() {
    let ground = Ground::new();
    let pair = format!("TOKEN={SECRET}");
    let id = ground.start(
        &["--env", &pair, "--name", "s"],
        &["sh", "-c", "exec sleep 1000"],
    );
    let mut caller = ground.spawn(&["exec", "-i", "-e", &pair, &id, "--", "cat"]);
    eventually("it runs", || {
        ground.json(&["inspect", &id])["seen"]["execs"][0]["exec"] == 1
    });
    assert_eq!(ground.exec_sh(&id, "echo ${#TOKEN}").ok().out, "22\n");
    for words in [
        &["inspect", &id][..],
        &["ls", "-a", "--json"],
        &["history", "--json"],
        &["logs", &id],
        &["ls"],
    ] {
        let ran: Ran = ground.say(words).ok();
        assert!(
            !ran.out.contains(SECRET) && !ran.err.contains(SECRET),
            "{words:?}"
        );
    }
    nowhere_below(&ground.world.path("state"));
    nowhere_below(&ground.world.path("run"));
    drop(caller.stdin.take());
    caller.wait().unwrap();
    ground.say(&["stop", &id]).ok();
    nowhere_below(&ground.world.path("state"));
}

#[track_caller]
fn nowhere_below(folder: &Path) {
    let Ok(list) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in list.flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            nowhere_below(&entry.path());
        } else if kind.is_file() {
            let text = std::fs::read(entry.path()).unwrap();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains(SECRET), "{}", entry.path().display());
        }
    }
}

/// The kernel takes a command of megabytes; a record of it is short.
#[test]
fn a_command_of_many_words_is_recorded_and_shown() {
    let ground = Ground::new();
    let long = "w".repeat(100_000);
    let mut words = vec!["sh", "-c", "exec sleep 1000"];
    words.resize(13, &long);
    let id = ground.start(&["--name", "long"], &words);
    let mut caller = ground.spawn(&[&["exec", "-i", &id, "--", "cat", "-"][..], &[]].concat());
    let mut exec = vec!["exec", &id, "--", "sh", "-c", "read x < fifo"];
    exec.resize(16, &long);
    ground.exec_sh(&id, "mkfifo fifo").ok();
    let mut longer = ground.spawn(&exec);
    eventually("both are there", || {
        let seen = ground.json(&["inspect", &id]);
        seen["seen"]["execs"]
            .as_array()
            .is_some_and(|execs| execs.len() == 2)
    });
    ground.exec_sh(&id, "echo > fifo").ok();
    assert!(longer.wait().unwrap().success());
    drop(caller.stdin.take());
    caller.wait().unwrap();
    ground.say(&["stop", &id]).ok();
    assert_eq!(ground.state(&id), "ended");
    assert!(std::fs::metadata(ground.record(&id)).unwrap().len() < 64 << 10);
}
