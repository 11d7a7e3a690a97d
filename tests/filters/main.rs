//! The committed filter programs say what their JSON says: a small interpreter runs them over
//! every call, and a second reading of the JSON, sharing no code with the compiler, judges.
//!
//! `UPDATE_FILTERS=1 cargo test --test filters` writes the programs anew from the JSON.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // the lint spares tests, but not the functions they share

mod heard;
mod machine;
mod meaning;
mod random;

use std::fs;
use std::path::PathBuf;
use std::sync::Once;

use cowork_linux::filter::{self, Arch, Filter, FilterError, Instruction, Profile};

use machine::{Call, run};
use meaning::{Meaning, interesting, name_of};

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;
const EOPNOTSUPP: u32 = 0x0005_005f;
const EAFNOSUPPORT: u32 = 0x0005_0061;
const I386: u32 = 0x4000_0003;
const ARM: u32 = 0x4000_0028;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seccomp")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_FILTERS").is_some()
}

/// A committed program; rewritten first if the caller asked for it.
fn committed(name: &str, arch: Arch) -> Filter {
    static UPDATE: Once = Once::new();
    let path = |name: &str, arch| folder().join(format!("compiled/{name}.{arch}.bpf"));
    UPDATE.call_once(|| {
        if !updating() {
            return;
        }
        for arch in Arch::ALL {
            for name in filter::builtin_names() {
                fs::write(path(name, arch), compiled(name, arch).bytes()).unwrap();
            }
            for (name, filter) in heard::compiled(arch) {
                fs::write(path(&name, arch), filter.bytes()).unwrap();
            }
        }
    });
    Filter::from_bytes(arch, fs::read(path(name, arch)).unwrap()).unwrap()
}

fn compiled(name: &str, arch: Arch) -> Filter {
    filter::compile(&Profile::builtin(name).unwrap(), arch).unwrap()
}

fn each(mut check: impl FnMut(&str, Arch)) {
    for name in filter::builtin_names() {
        for arch in Arch::ALL {
            check(name, arch);
        }
    }
}

/// What a built-in filter answers to one call by name.
fn answer(profile: &str, arch: Arch, call: &str, args: &[u64]) -> u32 {
    let program: Vec<_> = committed(profile, arch).instructions().collect();
    let filter::Number::Is(number) = filter::number(call, arch) else {
        panic!("{arch} has no {call}");
    };
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    let arch = arch.audit();
    run(
        &program,
        Call {
            number,
            arch,
            args: all,
        },
    )
}

fn answers(profile: &str, call: &str, args: &[u64], expected: u32) {
    for arch in Arch::ALL {
        let got = answer(profile, arch, call, args);
        assert_eq!(
            got, expected,
            "{profile} on {arch}: {call} {args:x?} gave {got:#x}"
        );
    }
}

fn refused(json: &str) -> String {
    let error = Profile::from_json(json).unwrap_err();
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn one_rule(rule: &str) -> String {
    format!(r#"{{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}]}}"#)
}

#[test]
fn every_program_says_what_its_json_says() {
    each(|name, arch| {
        let meaning = Meaning::of(name);
        let program: Vec<_> = committed(name, arch).instructions().collect();
        for number in 0..600 {
            let call = name_of(number, arch);
            let rules = meaning.rules_for(call.as_deref());
            for args in interesting(&rules) {
                let expected = meaning.verdict(&rules, &args);
                let got = run(
                    &program,
                    Call {
                        number,
                        arch: arch.audit(),
                        args,
                    },
                );
                assert_eq!(
                    got, expected,
                    "{name} on {arch}: {number} {call:?} {args:x?}"
                );
            }
        }
    });
}

#[test]
fn every_program_is_what_the_compiler_makes_today() {
    each(|name, arch| {
        let same = committed(name, arch) == compiled(name, arch);
        assert!(
            same,
            "{name}, {arch}: run UPDATE_FILTERS=1 cargo test --test filters"
        );
    });
}

#[test]
fn the_embedded_programs_are_the_committed_ones() {
    if updating() {
        return; // the next build embeds what this run writes
    }
    let native = Arch::native().unwrap();
    for name in filter::builtin_names() {
        let embedded = filter::builtin(name).unwrap();
        assert!(embedded == committed(name, native), "{name}");
    }
}

#[test]
#[allow(clippy::print_stdout)] // `--nocapture` shows the sizes
fn every_program_is_short_enough_to_load_quickly() {
    each(|name, arch| {
        let count = committed(name, arch).instructions().len();
        println!("{name} on {arch}: {count} instructions");
        assert!(count <= 400, "{name} on {arch}: {count} instructions");
    });
}

#[test]
fn no_call_number_takes_a_long_walk() {
    each(|name, arch| {
        let program: Vec<_> = committed(name, arch).instructions().collect();
        for number in 0..500 {
            let mut at = 2;
            let mut steps = 0;
            while program[at].code != 0x06 && (program[at].code != 0x20 || program[at].k == 0) {
                let Instruction { code, jt, jf, k } = program[at];
                at += 1 + match code {
                    0x05 => k as usize,
                    0x15 => usize::from(if number == k { jt } else { jf }),
                    0x35 => usize::from(if number >= k { jt } else { jf }),
                    _ => 0,
                };
                steps += 1;
            }
            assert!(
                steps <= 14,
                "{name} on {arch}: {number} takes {steps} steps"
            );
        }
    });
}

#[test]
fn other_doors_into_the_kernel_are_shut() {
    each(|name, arch| {
        let program: Vec<_> = committed(name, arch).instructions().collect();
        let args = [0; 6];
        for number in 0..600 {
            let others = Arch::ALL
                .iter()
                .map(|a| a.audit())
                .filter(|a| *a != arch.audit());
            for arch in others.chain([I386, ARM, 0, u32::MAX]) {
                assert_eq!(run(&program, Call { number, arch, args }), ENOSYS);
            }
        }
    });
}

#[test]
fn x32_numbers_do_not_exist() {
    for name in filter::builtin_names() {
        let program: Vec<_> = committed(name, Arch::X86_64).instructions().collect();
        for number in (0x4000_0000..0x4000_0600).chain([0x7fff_ffff, 0x8000_0000, u32::MAX]) {
            let call = Call {
                number,
                arch: Arch::X86_64.audit(),
                args: [2; 6],
            };
            assert_eq!(run(&program, call), ENOSYS, "{name}: {number:#x}");
        }
    }
}

#[test]
fn every_rule_says_why() {
    for name in filter::builtin_names() {
        for rule in Profile::builtin(name).unwrap().rules() {
            let comment = rule.comment.as_deref().unwrap_or("");
            assert!(comment.len() > 5, "{name}: {:?} has no comment", rule.names);
        }
    }
}

#[test]
fn nobody_types_into_the_terminal() {
    for high in [0, 1 << 32, 0xffff_ffff << 32] {
        for profile in ["default", "nested", "debug"] {
            answers(profile, "ioctl", &[0, high | 0x5412], EPERM);
            answers(profile, "ioctl", &[0, high | 0x541c], EPERM);
            answers(profile, "ioctl", &[0, high | 0x5413], ALLOW);
        }
    }
}

#[test]
fn namespaces_are_only_for_the_nested_profile() {
    for flag in [
        0x0002_0000,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
    ] {
        for call in ["clone", "unshare"] {
            answers("default", call, &[flag], EPERM);
            answers("default", call, &[flag | 1 << 32 | 17], EPERM);
            answers("debug", call, &[flag], EPERM);
            answers("nested", call, &[flag], ALLOW);
        }
    }
    answers("default", "unshare", &[0x80], EPERM);
    answers("default", "unshare", &[0x400], ALLOW);
    answers("default", "clone", &[0x003d_0f00], ALLOW);
    for profile in ["default", "nested", "debug"] {
        answers(profile, "clone3", &[], ENOSYS);
    }
}

#[test]
fn odd_sockets_are_not_made() {
    for family in (0..64).filter(|family| ![1, 2, 10, 16].contains(family)) {
        answers("default", "socket", &[family, 1, 0], EAFNOSUPPORT);
    }
    answers("default", "socket", &[2, 0x80001, 0], ALLOW);
    answers("default", "socket", &[2, 3, 1], EPERM);
    answers("default", "socket", &[2, 0x8000a, 0], EPERM);
    answers("default", "socket", &[2, 1, 262], 0x0005_005d);
    answers("default", "socket", &[16, 0x80003, 0], ALLOW);
    answers("default", "socket", &[16, 3, 12], 0x0005_005d);
    answers("default", "sendto", &[3, 0, 0, 0x2000_4000], EOPNOTSUPP);
    answers("default", "sendmsg", &[3, 0, 0x4000], ALLOW);
    answers("no-inet", "socket", &[10, 1, 0], EAFNOSUPPORT);
    answers("no-inet", "socket", &[1 << 32 | 2, 1, 0], EAFNOSUPPORT);
    answers("no-inet", "socket", &[1, 1, 0], ALLOW);
}

#[test]
fn the_gateway_speaks_to_the_network_and_to_nothing_else() {
    let gateway = |call: &str, args: &[u64], expected| answers("gateway", call, args, expected);
    for call in [
        "execve",
        "execveat",
        "ptrace",
        "mount",
        "setns",
        "unshare",
        "memfd_create",
        "kill",
    ] {
        gateway(call, &[0; 6], ENOSYS);
    }
    for (family, kind, protocol) in [
        (2, 0x80801, 6),
        (10, 1, 0),
        (2, 2, 17),
        (10, 0x80002, 0),
        (16, 3, 0),
    ] {
        gateway("socket", &[family, kind, protocol], ALLOW);
    }
    for (family, kind, protocol) in [
        (1, 1, 0),
        (2, 3, 6),
        (2, 1, 262),
        (17, 3, 3),
        (16, 3, 12),
        (40, 1, 0),
    ] {
        gateway("socket", &[family, kind, protocol], EAFNOSUPPORT);
    }
    // A thread, a process, a thread in a namespace.
    gateway("clone", &[0x003d_0f00], ALLOW);
    gateway("clone", &[17], EPERM);
    gateway("clone", &[0x003d_0f00 | 0x1000_0000], EPERM);
    gateway("openat", &[0, 0, 0x8_0000], ALLOW);
    for flags in [1, 2, 0x40, 0x241] {
        gateway("openat", &[0, 0, flags], EPERM);
    }
    // Read, read and run from a file, written and run, run from nowhere.
    gateway("mmap", &[0, 4096, 3, 0x22], ALLOW);
    gateway("mmap", &[0, 4096, 5, 2], ALLOW);
    gateway("mmap", &[0, 4096, 7, 2], EPERM);
    gateway("mmap", &[0, 4096, 5, 0x22], EPERM);
    gateway("mprotect", &[0, 4096, 3], ALLOW);
    gateway("mprotect", &[0, 4096, 5], EPERM);
    gateway("prlimit64", &[0, 3, 0, 1], ALLOW);
    gateway("prlimit64", &[0, 3, 1, 0], EPERM);
    gateway("setsockopt", &[0, 1, 2], ALLOW);
    gateway("setsockopt", &[0, 1, 26], EPERM);
}

#[test]
fn only_the_debug_profile_looks_into_processes() {
    for call in [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "pidfd_getfd",
    ] {
        answers("default", call, &[], EPERM);
        answers("nested", call, &[], EPERM);
        answers("debug", call, &[], ALLOW);
    }
    answers("default", "personality", &[0x40000], EPERM);
    answers("debug", "personality", &[0x40000], ALLOW);
    for call in ["perf_event_open", "keyctl", "bpf", "userfaultfd"] {
        for profile in ["default", "nested", "debug"] {
            answers(profile, call, &[], EPERM);
        }
    }
}

#[test]
fn a_misspelt_call_is_named() {
    let rule = r#"{"names": ["opennat"], "action": "SCMP_ACT_ALLOW"}"#;
    assert_eq!(
        refused(&one_rule(rule)),
        "no system call is named `opennat`"
    );
}

#[test]
fn what_is_not_understood_is_named() {
    let cases = [
        (
            r#"{"names": ["read"], "action": "SCMP_ACT_ALLOW", "includes": {}}"#,
            "`includes`",
        ),
        (
            r#"{"names": ["read"], "action": "SCMP_ACT_ALOW"}"#,
            "`SCMP_ACT_ALOW`",
        ),
        (
            r#"{"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "EQ"}]}"#,
            "`EQ`",
        ),
    ];
    for (rule, named) in cases {
        let message = refused(&one_rule(rule));
        assert!(message.contains(named), "{message}");
    }
    let message = refused(r#"{"defaultAction": "SCMP_ACT_ALLOW", "archMap": []}"#);
    assert!(message.contains("`archMap`"), "{message}");
    let message = refused(r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["PDP11"]}"#);
    assert!(message.contains("`PDP11`"), "{message}");
    let message = refused(r#"{"extends": "defualt"}"#);
    assert!(
        message.contains("`defualt`") && message.contains("no-inet"),
        "{message}"
    );
}

#[test]
fn a_profile_for_another_machine_is_refused() {
    let json = r#"{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_S390X"]}"#;
    let profile = Profile::from_json(json).unwrap();
    let result = filter::compile(&profile, Arch::Aarch64);
    assert!(matches!(result, Err(FilterError::WrongArch { .. })));
}
