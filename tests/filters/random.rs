//! Calls and profiles nobody thought of.

use cowork_linux::filter::{self, Arch, Profile};
use proptest::prelude::*;
use serde_json::Value;

use crate::machine::{Call, run};
use crate::meaning::{Meaning, interesting, name_of};
use crate::{ALLOW, ENOSYS, committed};

const NAMES: [&str; 3] = ["read", "write", "ioctl"];
const OPS: [&str; 7] = ["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"];

/// Values that meet each other often.
fn word() -> impl Strategy<Value = u64> {
    let half = prop_oneof![Just(0), Just(1), Just(2), Just(u32::MAX), any::<u32>()];
    (half.clone(), half).prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low))
}

/// A program far longer than a conditional jump reaches.
#[test]
fn jumps_lead_where_they_should_in_a_long_program() {
    let arch = Arch::X86_64;
    let calls: Vec<(u32, String)> = (0..460)
        .filter_map(|number| Some((number, name_of(number, arch)?)))
        .collect();
    let rules: Vec<Value> = calls
        .iter()
        .map(|(number, name)| {
            serde_json::json!({
                "names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 + number % 90,
                "args": [{"index": number % 6, "value": number, "op": "SCMP_CMP_GT"}],
            })
        })
        .collect();
    let json = serde_json::json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules});
    let profile = Profile::from_json(&json.to_string()).unwrap();
    let filter = filter::compile(&profile, arch).unwrap();
    let program: Vec<_> = filter.instructions().collect();
    assert!(program.len() > 2000, "{}", program.len());
    let meaning = Meaning {
        default: ALLOW,
        rules,
    };
    for (number, name) in calls {
        let about = meaning.rules_for(Some(&name));
        for args in interesting(&about) {
            let got = run(
                &program,
                Call {
                    number,
                    arch: arch.audit(),
                    args,
                },
            );
            assert_eq!(got, meaning.verdict(&about, &args), "{name} {args:x?}");
        }
    }
}

proptest! {
    #[test]
    fn any_call_gets_what_the_json_says(
        number in prop_oneof![0_u32..600, any::<u32>()],
        args in prop::array::uniform6(word()),
        which in 0..filter::builtin_names().len(),
    ) {
        let name = filter::builtin_names()[which];
        for arch in Arch::ALL {
            let program: Vec<_> = committed(name, arch).instructions().collect();
            let call = name_of(number, arch);
            let expected = if arch == Arch::X86_64 && number >= 0x4000_0000 {
                ENOSYS
            } else {
                let meaning = Meaning::of(name);
                meaning.verdict(&meaning.rules_for(call.as_deref()), &args)
            };
            prop_assert_eq!(run(&program, Call { number, arch: arch.audit(), args }), expected);
        }
    }

    /// Profiles nobody wrote: every comparison, several rules for one call, any verdict order.
    #[test]
    fn any_profile_compiles_to_what_it_says(
        rules in prop::collection::vec(
            (0..3_usize, prop::collection::vec((0..3_u64, 0..7_usize, word(), word()), 1..3), 1..5_u32),
            0..12,
        ),
        calls in prop::collection::vec(prop::array::uniform6(word()), 1..20),
    ) {
        let rules: Vec<Value> = rules.into_iter().map(|(call, args, errno)| {
            let args: Vec<Value> = args.iter().map(|(index, op, value, two)| {
                let masked = OPS[*op] == "MASKED_EQ";
                let value = if masked { value | 1 } else { *value };
                serde_json::json!({
                    "index": index, "op": format!("SCMP_CMP_{}", OPS[*op]),
                    "value": value, "valueTwo": if masked { two & value } else { 0 },
                })
            }).collect();
            serde_json::json!({
                "names": [NAMES[call]], "args": args,
                "action": "SCMP_ACT_ERRNO", "errnoRet": errno,
            })
        }).collect();
        let json = serde_json::json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules});
        let Ok(profile) = Profile::from_json(&json.to_string()) else {
            return Ok(()); // it compared one argument twice
        };
        let filter = filter::compile(&profile, Arch::X86_64).unwrap();
        let program: Vec<_> = filter.instructions().collect();
        let meaning = Meaning { default: ALLOW, rules };
        for args in calls {
            for (number, name) in [(0, "read"), (1, "write"), (16, "ioctl")] {
                let got = run(&program, Call { number, arch: Arch::X86_64.audit(), args });
                prop_assert_eq!(got, meaning.verdict(&meaning.rules_for(Some(name)), &args));
            }
        }
    }
}
