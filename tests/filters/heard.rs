//! Filters whose refusals pid 1 hears of refuse what they refused before, with the same numbers.

use std::collections::BTreeSet;

use cowork_linux::broker;
use cowork_linux::filter::{self, Arch, Filter, Heard, Instruction, Profile};

use serde_json::Value;

use crate::machine::{Call, run};
use crate::meaning::{Meaning, interesting, name_of};
use crate::{ALLOW, ENOSYS, EPERM, NOTIFY, committed, updating};

const PROFILES: [&str; 3] = ["default", "nested", "debug"];
const EBUSY: u32 = 0x0005_0010;

/// The programs that are made from profiles, under the names of their files.
pub(crate) fn compiled(arch: Arch) -> Vec<(String, Filter)> {
    let mut all = vec![("guard".to_owned(), filter::compile_guard(arch).unwrap())];
    for name in PROFILES {
        let profile = Profile::builtin(name).unwrap();
        let Heard { every, program } = Heard::compile(&profile, arch).unwrap();
        all.push((format!("{name}.every"), every));
        all.push((format!("{name}.program"), program));
    }
    all
}

#[test]
fn the_programs_are_what_is_made_of_the_profiles_today() {
    for arch in Arch::ALL {
        for (name, today) in compiled(arch) {
            let same = committed(&name, arch) == today;
            assert!(
                same,
                "{name}, {arch}: run UPDATE_FILTERS=1 cargo test --test filters"
            );
        }
    }
    if updating() {
        return; // the next build embeds what this run writes
    }
    let native = Arch::native().unwrap();
    assert!(filter::guard().unwrap() == committed("guard", native));
    for name in PROFILES {
        let embedded = Heard::builtin(name).unwrap();
        assert!(embedded.every == committed(&format!("{name}.every"), native));
        assert!(embedded.program == committed(&format!("{name}.program"), native));
    }
    assert_eq!(Heard::builtin("no-inet"), None);
}

/// A program and what is loaded with it.
struct Chain {
    alone: Vec<Instruction>,
    every: Vec<Instruction>,
    program: Vec<Instruction>,
}

/// What becomes of a call.
#[derive(Debug, PartialEq, Eq)]
struct Fate {
    /// As seen by the program.
    answer: u32,
    /// Pid 1 was asked.
    is_asked: bool,
}

impl Chain {
    fn of(name: &str, arch: Arch) -> Self {
        let read = |name: &str| committed(name, arch).instructions().collect();
        Self {
            alone: read(name),
            every: read(&format!("{name}.every")),
            program: read(&format!("{name}.program")),
        }
    }

    /// The kernel takes the strictest answer, and of equal ones that of the newest filter. A
    /// question without anybody to hear it is answered with `ENOSYS`.
    fn fate(&self, call: Call) -> Fate {
        let (older, newer) = (run(&self.every, call), run(&self.program, call));
        let strictest = older.min(newer);
        let is_asked = strictest == NOTIFY && newer == NOTIFY;
        let answer = match strictest {
            NOTIFY if !is_asked => ENOSYS,
            NOTIFY => {
                // What is not the broker's is refused, and that is all pid 1 looks at.
                match broker::answers(i64::from(call.number)) {
                    true => ALLOW,
                    false => 0x0005_0000 | u32::from(filter::REFUSAL),
                }
            }
            other => other,
        };
        Fate { answer, is_asked }
    }
}

fn each_call(mut check: impl FnMut(&str, Arch, &Chain, Option<&str>, Call)) {
    for name in PROFILES {
        let meaning = Meaning::of(name);
        for arch in Arch::ALL {
            let chain = Chain::of(name, arch);
            for number in 0..600 {
                let called = name_of(number, arch);
                let rules = meaning.rules_for(called.as_deref());
                let mut all = interesting(&rules);
                all.extend(flags().map(|flags| [flags; 6]));
                for args in all {
                    let arch_number = arch.audit();
                    let call = Call {
                        number,
                        arch: arch_number,
                        args,
                    };
                    check(name, arch, &chain, called.as_deref(), call);
                }
            }
        }
    }
}

/// Arguments that calls to guarded mounts are told apart by.
fn flags() -> impl Iterator<Item = u64> {
    (0..24).map(|bit| 1 << bit)
}

/// One walk for both questions, because it is a long one.
#[test]
fn every_call_is_answered_as_it_was_and_pid_1_hears_of_eperm_alone() {
    let native = Arch::native().unwrap();
    let guarded = guarded();
    let mut refused = BTreeSet::new();
    each_call(|name, arch, chain, called, call| {
        let before = run(&chain.alone, call);
        let (older, newer) = (run(&chain.every, call), run(&chain.program, call));
        let context = || format!("{name} on {arch}: {called:?} {:x?}", call.args);
        let is_guarded = called.is_some_and(|called| guarded.contains(called));
        let wants_listener = called == Some("seccomp") && call.args[1] & 8 != 0;
        if before == EPERM && !is_guarded {
            assert_eq!((older, newer), (NOTIFY, NOTIFY), "{}", context());
            refused.insert((name.to_owned(), called.unwrap().to_owned()));
        } else {
            assert_eq!(older, before, "{}", context());
            assert!(
                newer == ALLOW || is_guarded || wants_listener,
                "{}",
                context()
            );
        }
        if arch != native {
            return; // the broker knows this machine's numbers only
        }
        let now = chain.fate(call).answer;
        match wants_listener {
            // Where there was a listener the kernel said the same.
            true => assert_eq!(now, EBUSY),
            false => assert_eq!(now, before, "{}", context()),
        }
    });
    // A table of nothing would agree with everything.
    assert!(refused.len() > 150, "{}", refused.len());
}

/// The calls that are asked about in any case, straight from the JSON.
fn guarded() -> BTreeSet<String> {
    let guard: Value = serde_json::from_str(include_str!("../../seccomp/guard.json")).unwrap();
    let rules = guard["syscalls"].as_array().unwrap();
    let has_reason = |rule: &Value| rule["comment"].as_str().is_some_and(|why| why.len() > 5);
    assert!(rules.iter().all(has_reason), "a rule does not say why");
    let asking = rules
        .iter()
        .filter(|rule| rule["action"] == "SCMP_ACT_NOTIFY");
    let names = asking.flat_map(|rule| rule["names"].as_array().unwrap());
    names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn the_broker_answers_what_the_guard_asks_and_nothing_else() {
    let guarded = guarded();
    let native = Arch::native().unwrap();
    for number in 0..600 {
        let called = name_of(number, native);
        assert_eq!(
            broker::answers(i64::from(number)),
            called
                .as_ref()
                .is_some_and(|called| guarded.contains(called)),
            "{number} {called:?}"
        );
    }
}

#[test]
fn the_guard_asks_about_changes_only() {
    for arch in Arch::ALL {
        let program: Vec<_> = committed("guard", arch).instructions().collect();
        let answer = |call: &str, args: [u64; 6]| {
            let filter::Number::Is(number) = filter::number(call, arch) else {
                return None;
            };
            let arch = arch.audit();
            Some(run(&program, Call { number, arch, args }))
        };
        let open = |flags: i32| answer("openat", [0, 0, flags as u64, 0, 0, 0]).unwrap();
        for flags in [
            0,
            libc::O_CLOEXEC,
            libc::O_DIRECTORY,
            libc::O_NOFOLLOW,
            libc::O_PATH,
        ] {
            assert_eq!(open(flags), ALLOW, "{flags:#x}");
        }
        for flags in [
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_CREAT,
            libc::O_TRUNC,
            libc::O_TMPFILE,
            libc::O_TMPFILE & !libc::O_DIRECTORY,
        ] {
            assert_eq!(open(flags), NOTIFY, "{flags:#x}");
        }
        assert_eq!(answer("read", [0; 6]), Some(ALLOW));
        for call in ["unlinkat", "fchmodat2", "openat2", "umask", "renameat2"] {
            assert_eq!(answer(call, [0; 6]), Some(NOTIFY), "{call}");
        }
        for (writes, expected) in [(0, ALLOW), (2, NOTIFY), (5, ALLOW), (7, NOTIFY)] {
            let got = answer("faccessat2", [0, 0, writes, 0, 0, 0]);
            assert_eq!(got, Some(expected));
        }
        // Other doors are the box's own filter's.
        let args = [0; 6];
        let elsewhere = Call {
            number: 263,
            arch: 0x4000_0003,
            args,
        };
        assert_eq!(run(&program, elsewhere), ALLOW);
    }
}

/// Without this a program's own listener would count before ours as soon as ours is gone.
#[test]
fn no_program_gets_a_listener_of_its_own() {
    for name in PROFILES {
        for arch in Arch::ALL {
            let program: Vec<_> = committed(&format!("{name}.program"), arch)
                .instructions()
                .collect();
            let filter::Number::Is(number) = filter::number("seccomp", arch) else {
                panic!("{arch} has no seccomp");
            };
            let arch = arch.audit();
            for others in 0..128 {
                for high in [0, 1 << 32, u64::MAX << 32] {
                    let args = [1, high | others, 0x1000, 0, 0, 0];
                    let got = run(&program, Call { number, arch, args });
                    let expected = if others & 8 == 0 { ALLOW } else { EBUSY };
                    assert_eq!(got, expected, "{name}: {others:#x}");
                }
            }
        }
    }
}

fn of_json(json: &str) -> Chain {
    let arch = Arch::native().unwrap();
    let profile = Profile::from_json(json).unwrap();
    let heard = Heard::compile(&profile, arch).unwrap();
    Chain {
        alone: filter::compile(&profile, arch)
            .unwrap()
            .instructions()
            .collect(),
        every: heard.every.instructions().collect(),
        program: heard.program.instructions().collect(),
    }
}

fn native(call: &str) -> Call {
    let arch = Arch::native().unwrap();
    let filter::Number::Is(number) = filter::number(call, arch) else {
        panic!("no {call} here");
    };
    Call {
        number,
        arch: arch.audit(),
        args: [0; 6],
    }
}

/// Whatever a user's profile says, pid 1 is not waited for while it waits itself.
#[test]
fn a_profile_of_ones_own_is_heard_where_ours_would_be() {
    let chain = of_json(
        r#"{"extends": "default", "syscalls": [
            {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["execve", "chdir", "write", "sendmsg", "seccomp", "mkdirat"],
             "action": "SCMP_ACT_ERRNO"},
            {"names": ["kcmp"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13},
            {"names": ["bpf"], "action": "SCMP_ACT_NOTIFY"}]}"#,
    );
    for quiet in [
        "execve", "chdir", "write", "sendmsg", "seccomp", "mkdirat", "kcmp",
    ] {
        let fate = chain.fate(native(quiet));
        assert_eq!(fate.answer, run(&chain.alone, native(quiet)), "{quiet}");
        assert!(!fate.is_asked, "{quiet}");
    }
    assert_eq!(chain.fate(native("ptrace")).answer, ALLOW);
    let expected = Fate {
        answer: EPERM,
        is_asked: true,
    };
    assert_eq!(chain.fate(native("mount")), expected);
    // What a profile hands to somebody else is nobody's here, as it was.
    assert_eq!(chain.fate(native("bpf")).answer, ENOSYS);
}

#[test]
fn a_program_is_short_enough_to_load_quickly() {
    for arch in Arch::ALL {
        for (name, filter) in compiled(arch) {
            let count = filter.instructions().len();
            assert!(count <= 400, "{name} on {arch}: {count} instructions");
        }
    }
}
