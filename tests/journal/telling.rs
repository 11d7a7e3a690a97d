//! The words made from journals.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cowork_linux::journal::{
    Exit, Filter, MountNote, Past, RefusalKind, Verdict, What, history, since, statistics, why,
};

use crate::ground::{Ground, exec, exit, id, refusal, start, stop, stopped_by_user, whole_life};

fn told(ground: &Ground, filter: &Filter) -> Vec<String> {
    history(&ground.folder(), filter)
        .unwrap()
        .into_iter()
        .map(|past| past.program[0].clone())
        .collect()
}

#[test]
fn history_tells_of_every_run_newest_first() {
    let ground = Ground::new();
    let killed = What::Exit {
        exec: 0,
        code: None,
        signal: Some(15),
        not_executed: None,
    };
    ground.write(
        "a",
        &[
            start("good"),
            exec(1),
            exec(2),
            exit(2, 1),
            exit(0, 0),
            stop(),
        ],
    );
    ground.write("b", &[start("bad"), exit(0, 7), stop()]);
    ground.write("a", &[start("stopped"), killed, stopped_by_user()]);
    ground.write("c", &[start("crashed")]);
    let mut running = ground.open("d");
    running.append(&start("running")).unwrap();

    let all = told(&ground, &Filter::default());
    let mut sorted = all.clone();
    sorted.sort();
    assert_eq!(sorted, ["bad", "crashed", "good", "running", "stopped"]);
    let at = |name| all.iter().position(|program| program == name).unwrap();
    assert!(at("stopped") < at("good"), "newest first: {all:?}");

    let only = |failed, success| Filter {
        failed,
        success,
        ..Filter::default()
    };
    let mut failed = told(&ground, &only(true, false));
    failed.sort();
    assert_eq!(failed, ["bad", "crashed"]);
    let mut good = told(&ground, &only(false, true));
    good.sort();
    assert_eq!(good, ["good", "stopped"]);
    let of_one = Filter {
        session: Some(id("a")),
        ..Filter::default()
    };
    assert_eq!(told(&ground, &of_one), ["stopped", "good"]);

    let past = history(&ground.folder(), &of_one).unwrap();
    assert_eq!(past[1].execs, 2);
    assert_eq!(past[1].exit.unwrap().code, Some(0));
    assert_eq!(past[1].outcome.as_deref(), Some("exit code 0"));
    assert!(past[1].duration().is_some());
    let json = serde_json::to_value(&past[1]).unwrap();
    assert_eq!(json["id"], "a");
    assert_eq!(json["verdict"], "whole");
    assert!(json["started"].as_str().unwrap().ends_with('Z'), "{json}");
}

#[test]
fn history_can_begin_at_a_time() {
    let ground = Ground::new();
    ground.write("a", &whole_life());
    ground.write("b", &[start("running")]);
    let now = SystemTime::now();
    let from = |text: &str| Filter {
        since: Some(since(text, now).unwrap()),
        ..Filter::default()
    };
    assert_eq!(told(&ground, &from("1h ago")).len(), 2);
    assert_eq!(told(&ground, &from("9000-01-01")).len(), 0);
    let running = ground.open("b");
    assert_eq!(told(&ground, &from("9000-01-01")), ["running"]);
    drop(running);
}

#[test]
fn no_folder_is_no_history() {
    let ground = Ground::new();
    assert!(told(&ground, &Filter::default()).is_empty());
    let said = why(&ground.folder(), None, "/etc/shadow").unwrap();
    assert_eq!(said[0], "No session has a journal yet.");
}

fn past(seconds: u64, code: i32, refused: u64) -> Past {
    Past {
        id: id("a"),
        started: UNIX_EPOCH,
        ended: Some(UNIX_EPOCH + Duration::from_secs(seconds)),
        running: false,
        program: Vec::new(),
        exit: Some(Exit {
            code: Some(code),
            ..Exit::default()
        }),
        outcome: None,
        by: None,
        execs: 0,
        refusals: BTreeMap::from([("guard".to_owned(), refused)]),
        verdict: Verdict::Whole,
    }
}

#[test]
fn statistics_are_of_what_is_known() {
    let running = Past {
        running: true,
        ended: None,
        exit: None,
        ..past(0, 0, 5)
    };
    let foreign = Past {
        verdict: Verdict::Foreign { why: String::new() },
        ..past(1000, 1, 1)
    };
    let all = [
        past(1, 0, 1),
        past(2, 3, 2),
        past(3, 0, 0),
        past(10, 0, 0),
        running,
        foreign,
    ];
    let numbers = statistics(&all);
    assert_eq!((numbers.number, numbers.running, numbers.failed), (5, 1, 1));
    assert_eq!(numbers.mean, Some(Duration::from_secs(4)));
    assert_eq!(numbers.median, Some(Duration::from_millis(2500)));
    assert_eq!(numbers.refusals["guard"], 8);
    assert_eq!(statistics(&all[..3]).median, Some(Duration::from_secs(2)));
    assert_eq!(statistics(&[]).mean, None);
    assert_eq!(statistics(&[]).median, None);
    assert_eq!(serde_json::to_value(&numbers).unwrap()["median"], 2.5);
}

#[test]
fn why_names_the_rule_and_what_would_allow_it() {
    let ground = Ground::new();
    let mut journal = ground.open("fix-login");
    journal.append(&start("claude")).unwrap();
    for _ in 0..12 {
        journal
            .append(&refusal(RefusalKind::File, "/sessions/a/mnt/app/.envrc"))
            .unwrap();
    }
    journal
        .append(&refusal(RefusalKind::Network, "api.example.com:443"))
        .unwrap();
    journal.append(&stop()).unwrap();
    drop(journal);
    ground.write(
        "other",
        &[start("x"), refusal(RefusalKind::File, "/w/.envrc"), stop()],
    );
    let ask = |session: Option<&str>, object| {
        let session = session.map(id);
        why(&ground.folder(), session.as_ref(), object).unwrap()
    };

    // By its name outside of the box.
    let said = ask(None, "/home/u/app/.envrc");
    assert_eq!(said.len(), 1, "{said:?}");
    for part in [
        "ago) in fix-login: ",
        "access to /sessions/a/mnt/app/.envrc was refused 12 times, the last time then, by .envrc.",
        " To allow it: guard.names in the policy, without \".envrc\"",
    ] {
        // An answer within the same second is `just now`.
        let said = said[0].replace("just now", "0s ago");
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(ask(None, ".envrc").len(), 2);
    assert_eq!(ask(Some("other"), ".envrc").len(), 1);
    let said = ask(None, "example.com");
    assert!(
        said[0].contains("the connection to api.example.com:443 was refused by"),
        "{said:?}"
    );
}

#[test]
fn why_names_who_tried_a_system_call() {
    let ground = Ground::new();
    let tried = |count| What::Refusal {
        kind: RefusalKind::Syscall,
        object: "ptrace".to_owned(),
        rule: "seccomp default (Looking)".to_owned(),
        allow: "--seccomp debug".to_owned(),
        program: Some("strace (pid 7)".to_owned()),
        count,
    };
    ground.write("a", &[start("claude"), tried(1), stop()]);
    let said = why(&ground.folder(), None, "ptrace").unwrap().join("\n");
    let expected = "the system call ptrace was refused to strace (pid 7) by seccomp default \
        (Looking). To allow it: --seccomp debug";
    assert!(said.ends_with(expected), "{said}");
    ground.write("b", &[start("claude"), tried(1), tried(4), stop()]);
    let of_b = why(&ground.folder(), Some(&id("b")), "ptrace").unwrap();
    let expected = "was refused 5 times, first to strace (pid 7), the last time then, by seccomp";
    assert!(of_b.join("\n").contains(expected), "{of_b:?}");
    assert!(why(&ground.folder(), None, "ptrac").unwrap()[0].starts_with("No refusal"));
}

#[test]
fn why_says_what_it_cannot_know_and_what_to_type() {
    let ground = Ground::new();
    let read_only = What::Mount {
        source: "/home/u/lib".to_owned(),
        place: "/sessions/a/mnt/lib".to_owned(),
        mode: "ro".to_owned(),
        overlaps: None,
        replaces: None,
    };
    ground.write("a", &[start("claude"), read_only, stop()]);
    let ask = |object| why(&ground.folder(), None, object).unwrap().join("\n");
    let said = ask("/home/u/lib/x");
    for part in [
        "No refusal of",
        "shared read-only (ro)",
        "EROFS",
        "--dry-run",
        "policy show --explain",
        "strace -f",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(
        !said.contains("ENETUNREACH") && !said.contains("EPERM"),
        "{said}"
    );
    assert!(ask("/home/u/app/x").contains("shared as rw"));
    assert!(ask("/srv/x").contains("--mount /srv/x"));
    let said = ask("api.example.com");
    assert!(
        said.contains("a has no network") && said.contains("ENETUNREACH"),
        "{said}"
    );
    let said = ask("unshare");
    for part in [
        "what the filter refuses with EPERM is seen",
        "Nobody but the program is told of what it answers as a kernel without the call",
        "In a, no filter looks at system calls",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!ask("package").contains("no filter looks"));
    let of_nobody = why(&ground.folder(), Some(&id("nobody")), "x").unwrap();
    assert!(
        of_nobody[0].contains("no journal of nobody"),
        "{of_nobody:?}"
    );
}

#[test]
fn why_warns_of_journals_that_were_changed() {
    let ground = Ground::new();
    let path = ground.write("a", &whole_life());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"4G\"", "\"8G\"")).unwrap();
    let said = why(&ground.folder(), None, ".envrc").unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].contains("journal of a cannot be relied on: tampered with at line 6"));
}

#[test]
fn nothing_that_a_program_named_acts_on_a_terminal() {
    let ground = Ground::new();
    let evil = "/w/\u{1b}[2J\u{202e}\n.envrc";
    let mount = MountNote {
        source: evil.to_owned(),
        place: evil.to_owned(),
        mode: "ro\u{7}".to_owned(),
    };
    let mut begun = start("x");
    if let What::Start { mounts, .. } = &mut begun {
        mounts.push(mount);
    }
    ground.write("a", &[begun, refusal(RefusalKind::File, evil), stop()]);
    let mut said = why(&ground.folder(), None, "/w").unwrap();
    assert!(said[0].contains("\\u{1b}[2J\\u{202e}\\n.envrc"), "{said:?}");
    said.extend(why(&ground.folder(), None, &format!("{evil}/x")).unwrap());
    assert!(said.len() > 3);
    assert!(
        !said
            .concat()
            .contains(|c: char| c.is_control() || c == '\u{202e}')
    );
}

#[test]
fn many_refusals_are_not_all_told() {
    let ground = Ground::new();
    let many: Vec<What> = (0..50)
        .map(|number| refusal(RefusalKind::File, &format!("/w/{number}")))
        .collect();
    ground.write("a", &many);
    let said = why(&ground.folder(), None, "/w").unwrap();
    assert_eq!(said.len(), 21);
    assert!(said[20].starts_with("30 more"), "{}", said[20]);
}
