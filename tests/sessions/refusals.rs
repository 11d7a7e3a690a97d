//! Refused system calls: in the journal, in `why`, at the end of a run.

use std::collections::BTreeMap;
use std::process::Stdio;

use cowork_linux::filter::{self, Arch, Number, Profile, Verdict};
use serde_json::Value;

use crate::ground::{Ground, eventually};
use crate::support::{self, Ran};

/// Makes the calls whose numbers it is given. All arguments are wrong, so that a hole does no damage.
const CALLER: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        errno = 0;
        long ret = syscall(atol(argv[i]), -1L, -1L, -1L, -1L, -1L, -1L);
        printf("%s %s\n", argv[i], ret < 0 ? strerrorname_np(errno) : "done");
    }
}"#;

/// Makes one call so many times.
const FLOOD: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
int main(int argc, char **argv) {
    long times = atol(argv[1]), refused = 0;
    char name[16];
    for (long i = 0; i < times; i++) {
        snprintf(name, sizeof name, "n%ld", i);
        prctl(PR_SET_NAME, name);
        if (syscall(SYS_kcmp, 1, 1, i, i, i) < 0 && errno == EPERM) refused++;
    }
    printf("refused %ld\n", refused);
}"#;

fn refusals(ground: &Ground, id: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(ground.journal(id)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| line["what"] == "refusal");
    lines.collect()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The calls that a profile refuses whatever their arguments are, with their numbers here.
fn refused_by_name(profile: &str) -> BTreeMap<String, (u32, u16)> {
    let profile = Profile::builtin(profile).unwrap();
    let arch = Arch::native().unwrap();
    let rules = profile.rules().iter();
    let rules = rules.filter(|rule| rule.conditions.is_empty());
    let mut all = BTreeMap::new();
    for rule in rules {
        for name in &rule.names {
            let only = profile.rules_about(name).count() == 1;
            if let (Verdict::Errno(errno), Number::Is(number), true) =
                (rule.verdict, filter::number(name, arch), only)
            {
                all.insert(name.clone(), (number, errno));
            }
        }
    }
    all
}

#[test]
fn every_refused_call_is_answered_as_the_profile_says_and_written_down() {
    let ground = Ground::new();
    support::compile(&ground.world, "caller", CALLER);
    let calls = refused_by_name("default");
    let (heard, silent): (Vec<_>, Vec<_>) = calls
        .iter()
        .partition(|(_, (_, errno))| *errno == filter::REFUSAL);
    assert!(heard.len() > 50 && silent.len() > 3, "{calls:?}");
    ground.sleeper("s");
    let numbers: Vec<_> = calls
        .values()
        .map(|(number, _)| number.to_string())
        .collect();
    let mut words = vec!["./caller"];
    words.extend(numbers.iter().map(String::as_str));
    let said = ground.exec("s", &words).ok().out;
    for (name, (number, errno)) in &calls {
        let answer = match errno {
            1 => "EPERM",
            38 => "ENOSYS",
            other => panic!("{name} is refused with {other}"),
        };
        assert!(
            said.contains(&format!("{number} {answer}\n")),
            "{name}: {said}"
        );
    }
    // Nothing has ended yet but the one program.
    let told = refusals(&ground, "s");
    for (name, _) in &heard {
        let one = told.iter().find(|line| text(line, "object") == **name);
        let one = one.unwrap_or_else(|| panic!("{name} is not in {told:?}"));
        assert_eq!(text(one, "kind"), "syscall");
        assert!(text(one, "rule").starts_with("seccomp default ("), "{one}");
        assert!(text(one, "program").starts_with("caller (pid "), "{one}");
        assert_ne!(text(one, "allow"), "", "{one}");
    }
    for (name, _) in &silent {
        let one = told.iter().find(|line| text(line, "object") == **name);
        assert_eq!(one, None);
        let why = ground.say(&["why", name]).ok();
        why.says("No refusal of")
            .says("nobody but the program is told");
    }
    ground.say(&["history", "--verify"]).ok().says("whole");
}

#[test]
fn why_knows_while_it_runs_and_after() {
    let ground = Ground::new();
    ground.sleeper("s");
    ground
        .say(&["why", "unshare"])
        .ok()
        .says("that would have been written down");
    assert_ne!(ground.exec("s", &["unshare", "-U", "true"]).code, 0);
    // It is told before the end of the program that tried is.
    let said = || ground.say(&["why", "--session", "s", "unshare"]).ok();
    let told = said().says("the system call unshare was refused to unshare (pid ");
    told.says("seccomp default (")
        .says("To allow it: --nesting");
    ground.say(&["stop", "s"]).ok();
    said().says("was refused to unshare");
    let json = ground.json(&["history", "--json", "s"]);
    assert_eq!(json[0]["refusals"].as_object().unwrap().len(), 1, "{json}");
}

#[test]
fn a_refusal_is_seen_before_the_program_ends() {
    let ground = Ground::new();
    let script = "unshare -U true; exec sleep 1000";
    ground.start(&["--name", "s"], &["sh", "-c", script]);
    eventually("it is told", || !refusals(&ground, "s").is_empty());
    assert_eq!(ground.state("s"), "running");
    let seen = ground.json(&["inspect", "s"]);
    assert_eq!(seen["seen"]["refused"][0]["object"], "unshare", "{seen}");
}

fn run(ground: &Ground, flags: &[&str], script: &str) -> Ran {
    let mut command = ground.cowork();
    command.arg("run").args(flags).arg("--mount");
    command
        .arg(ground.world.work())
        .args(["--", "sh", "-c", script]);
    Ran::of(&mut command)
}

#[test]
fn the_end_of_a_run_names_each_call_once() {
    let ground = Ground::new();
    ground.world.write("w/.mcp.json", "mine");
    let script = "for i in 1 2 3; do unshare -U true; unshare -m true; done; chroot / true; \
        echo evil > .mcp.json; true";
    let ran = run(&ground, &[], script).ok();
    let named = |what: &str| {
        let lines = ran.err.lines().filter(|line| line.starts_with("refused: "));
        lines.filter(|line| line.contains(what)).count()
    };
    assert_eq!(
        named("the system call unshare, which unshare"),
        1,
        "{}",
        ran.err
    );
    assert_eq!(
        named("the system call chroot, which chroot"),
        1,
        "{}",
        ran.err
    );
    assert_eq!(named("to allow it: --nesting"), 2, "{}", ran.err);
    assert_eq!(named(".mcp.json was left as it is"), 1, "{}", ran.err);

    let ran = run(&ground, &["--json"], "chroot / true; true").ok();
    let last: Value = serde_json::from_str(ran.err.lines().last().unwrap()).unwrap();
    assert_eq!(last["refused"][0]["kind"], "syscall", "{last}");
    assert_eq!(last["refused"][0]["object"], "chroot", "{last}");
    assert_eq!(last["refused"][0]["allow"], "--nesting", "{last}");

    let quiet = run(&ground, &["-q"], "chroot / true; true").ok();
    assert!(!quiet.err.contains("refused:"), "{}", quiet.err);
    let nothing = run(&ground, &[], "true").ok();
    assert!(!nothing.err.contains("refused:"), "{}", nothing.err);
    // What the filter is told to allow is not refused.
    let nested = run(&ground, &["--nesting"], "unshare -U true").ok();
    assert!(!nested.err.contains("refused:"), "{}", nested.err);
}

/// What a program calls itself is its own business, and reaches a terminal as letters.
#[test]
fn a_name_of_the_programs_choosing_does_no_harm() {
    let ground = Ground::new();
    let script = "evil=$(printf '/tmp/\\033[2J'); cp /usr/bin/unshare \"$evil\"; \
        \"$evil\" -U true 2>/dev/null; true";
    let ran = run(&ground, &["--name", "s"], script).ok();
    assert!(ran.err.contains("unshare, which"), "{}", ran.err);
    assert!(!ran.err.contains("\u{1b}[2J"), "{:?}", ran.err);
    let told = ground.say(&["why", "unshare"]).ok().says("was refused to");
    assert!(!told.out.contains('\u{1b}'), "{:?}", told.out);
    let line = &refusals(&ground, "s")[0];
    assert!(
        text(line, "program").starts_with("\u{1b}[2J (pid"),
        "{line}"
    );
}

/// Calls refused in a loop, under ever new names: few lines, no memory, and others get their turn.
#[test]
fn a_flood_of_refusals_is_few_lines_and_keeps_nobody_waiting() {
    const TIMES: u64 = 20_000;
    let ground = Ground::new();
    support::compile(&ground.world, "flood", FLOOD);
    ground.sleeper("s");
    ground.exec("s", &["./flood", "1"]).ok();
    let held = || {
        let status = format!("/proc/{}/status", ground.first("s"));
        let status = std::fs::read_to_string(status).unwrap();
        // Pages of the program's own file come and go as they are used.
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let digits = line.unwrap().trim().trim_end_matches(" kB");
        digits.parse::<u64>().unwrap()
    };
    let before = held();
    let many = TIMES.to_string();
    let forever = "1000000000";
    let mut floods: Vec<_> = [many.as_str(), many.as_str(), forever, forever]
        .into_iter()
        .map(|times| {
            let mut command = ground.bare();
            command.args(["exec", "s", "--", "./flood", times]);
            command.stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    // Two of them never end by themselves: all this is done in between.
    ground.exec("s", &["true"]).ok();
    ground
        .exec_sh("s", "echo kept > file && cat file")
        .ok()
        .says("kept");
    for flood in floods.drain(..2) {
        let output = flood.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(said, format!("refused {TIMES}\n"));
    }
    assert!(floods[0].try_wait().unwrap().is_none(), "the control");
    let after = held();
    assert!(
        after <= before + 512,
        "{before} kB before, {after} kB after"
    );
    ground.say(&["stop", "-t", "0", "s"]).ok();
    for mut flood in floods {
        flood.wait().unwrap();
    }
    let told = refusals(&ground, "s");
    assert!(told.len() < 64, "{} lines", told.len());
    let counts = told.iter().map(|line| line["count"].as_u64().unwrap());
    assert!(counts.sum::<u64>() > 2 * TIMES, "{told:?}");
    ground.say(&["history", "--verify"]).ok().says("whole");
}

/// Without guards there is no listener: nothing is seen, and `why` says so.
#[test]
fn where_nothing_is_seen_it_is_said() {
    let ground = Ground::new();
    let policy = ground
        .world
        .write("unguarded.toml", "[guard]\nenabled = false\n");
    let flags = ["--name", "s", "--profile", policy.to_str().unwrap()];
    ground.start(&flags, &["sleep", "1000"]);
    assert_ne!(ground.exec("s", &["unshare", "-U", "true"]).code, 0);
    assert_eq!(refusals(&ground, "s"), Vec::<Value>::new());
    let told = ground.say(&["why", "unshare"]).ok();
    told.says("refuses some uses of unshare (EPERM): nobody but the program");
}
