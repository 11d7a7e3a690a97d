//! `ls`, `stats`, `status`: what is shown of sessions, and how they are named.

use crate::ground::Ground;

#[test]
fn a_running_session_is_listed_with_what_it_is() {
    let ground = Ground::new();
    let list = ground.say(&["ls"]).ok();
    assert_eq!(list.out.lines().count(), 1, "{}", list.out);
    ground.sleeper("one");
    let list = ground.say(&["ls"]).ok().out;
    let mut lines = list.lines();
    let head: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    let wanted = [
        "ID",
        "STATE",
        "PROGRAM",
        "MOUNTS",
        "NETWORK",
        "PROCESSES",
        "MEMORY",
        "AGE",
    ];
    assert_eq!(head, wanted);
    let row = lines.next().unwrap();
    for part in ["one", "running", "sleep 1000", "none", " 2 "] {
        assert!(row.contains(part), "no `{part}` in {row}");
    }
    assert_eq!(ground.say(&["ps"]).ok().out.lines().count(), 2);
    assert_eq!(ground.say(&["ls", "-q"]).ok().out, "one\n");
    let json = ground.json(&["ls", "--json"]);
    assert_eq!(json[0]["id"], "one");
    assert_eq!(json[0]["record"]["program"][1], "1000");
    assert_eq!(json[0]["record"]["network"], "none");
    let source = json[0]["record"]["mounts"][0]["source"].as_str().unwrap();
    assert_eq!(source, ground.world.work().to_str().unwrap());
}

#[test]
fn those_that_ended_are_listed_when_asked_for() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "exit 3"]);
    ground.becomes(&id, "ended");
    assert_eq!(ground.say(&["ls", "-q"]).ok().out, "");
    let all = ground.say(&["ls", "-a"]).ok();
    all.says(&id).says("exited 3");
    let json = ground.json(&["ls", "-a", "--json"]);
    assert!(json[0]["record"]["ended"].as_u64() >= json[0]["record"]["started"].as_u64());
    let counts = ground.json(&["status", "--json"]);
    assert_eq!(
        (&counts["running"], &counts["ended"]),
        (&0.into(), &1.into())
    );
    ground.say(&["status"]).ok().says("ended    1");
}

#[test]
fn the_beginning_of_an_id_is_enough_when_only_one_has_it() {
    let ground = Ground::new();
    ground.sleeper("alpha");
    ground.sleeper("alphabet");
    ground.sleeper("beta");
    ground.exec("b", &["true"]).ok();
    // A whole name is meant even when another begins with it.
    let said = ground.exec_sh("alpha", "echo $COWORK_SESSION").ok();
    assert_eq!(said.out, "alpha\n");
    let which = ground.exec("alp", &["true"]).failed_with(125);
    let which = which.complains("cannot tell which session is meant by `alp`");
    which
        .complains("alpha or alphabet")
        .complains("write more of its name");
    for verb in [&["stop"][..], &["kill"], &["rm"], &["inspect"], &["logs"]] {
        let none = ground.say(&[verb, &["nobody"]].concat()).failed_with(1);
        none.complains("cannot find a session called `nobody`")
            .complains("ls -a");
        ground.say(&[verb, &["alp"]].concat()).failed_with(1);
    }
    for odd in ["", "..", "../beta", "a/b", "beta\n", "*"] {
        ground.exec(odd, &["true"]).failed_with(125);
    }
}

#[test]
fn stats_show_what_is_used() {
    let ground = Ground::new();
    let id = ground.start(&[], &["sh", "-c", "sleep 1000 & sleep 1000; true"]);
    crate::ground::eventually("three sleepers", || {
        let stats = ground.json(&["stats", "--json"]);
        stats[0]["processes"].as_u64().unwrap() >= 4
    });
    let stats = ground.json(&["stats", "--json"]);
    assert_eq!(stats[0]["id"], id);
    assert!(stats[0]["memory"].as_u64().unwrap() > 0);
    ground.say(&["stats"]).ok().says("PROCESSES").says(&id);
}

/// Words of a program can hold anything, and a list is shown on terminals.
#[test]
fn a_list_is_plain_text_whatever_a_program_is_called() {
    let ground = Ground::new();
    ground.start(&[], &["sleep", "1000", "\x1b]0;title\x07", "a\nb"]);
    let list = ground.say(&["ls"]);
    let list = list.out;
    assert!(!list.contains('\x1b') && !list.contains('\x07'), "{list:?}");
}

#[test]
fn without_a_place_for_sessions_there_is_a_word() {
    let ground = Ground::new();
    let mut command = ground.cowork();
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    let ran = crate::support::Ran::of(command.arg("ls"));
    ran.failed_with(1).complains("HOME");
}
