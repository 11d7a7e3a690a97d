//! A second reading of the JSON profiles, sharing no code with the compiler.

use std::collections::BTreeSet;
use std::fs;

use cowork_linux::filter::Arch;
use libseccomp::{ScmpArch, ScmpSyscall};
use serde_json::Value;

use crate::{ALLOW, NOTIFY, folder};

/// The rules of a built-in profile, straight from its JSON.
pub(crate) struct Meaning {
    pub(crate) default: u32,
    pub(crate) rules: Vec<Value>,
}

impl Meaning {
    pub(crate) fn of(name: &str) -> Self {
        let text = fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let own: Value = serde_json::from_str(&text).unwrap();
        let rules = own["syscalls"].as_array().unwrap().clone();
        let Some(base) = own["extends"].as_str() else {
            return Self {
                default: action(&own["defaultAction"], &own["defaultErrnoRet"]),
                rules,
            };
        };
        let mut whole = Self::of(base);
        let replaced: Vec<Value> = rules.iter().flat_map(names).cloned().collect();
        for rule in &mut whole.rules {
            let list = rule["names"].as_array_mut().unwrap();
            list.retain(|name| !replaced.contains(name));
        }
        whole.rules.extend(rules);
        whole
    }

    /// The rules for one call, where `None` is a call nobody named.
    pub(crate) fn rules_for(&self, name: Option<&str>) -> Vec<&Value> {
        let about = |rule: &&Value| names(rule).any(|known| known.as_str() == name);
        self.rules.iter().filter(about).collect()
    }

    /// The verdict by rules from `rules_for`.
    pub(crate) fn verdict(&self, rules: &[&Value], args: &[u64; 6]) -> u32 {
        let holds = |rule: &&&Value| {
            let mut conditions = rule["args"].as_array().into_iter().flatten();
            conditions.all(|one| compare(one, args[number(&one["index"]) as usize]))
        };
        match rules.iter().find(holds) {
            Some(rule) => action(&rule["action"], &rule["errnoRet"]),
            None => self.default,
        }
    }
}

/// Every combination of argument values around those the rules compare with.
pub(crate) fn interesting(rules: &[&Value]) -> BTreeSet<[u64; 6]> {
    let mut values = vec![BTreeSet::from([0, u64::MAX]); 6];
    for rule in rules {
        for one in rule["args"].as_array().into_iter().flatten() {
            let (value, two) = (number(&one["value"]), number(&one["valueTwo"]));
            let near = |v: u64| [v, v ^ 1, v.wrapping_add(1), v | 1 << 32, v | 1 << 63];
            let around = [two, value, two | !value].into_iter().flat_map(near);
            values[number(&one["index"]) as usize].extend(around);
        }
    }
    let mut all = BTreeSet::from([[0; 6]]);
    for (index, values) in values.iter().enumerate() {
        let so_far = all.clone();
        for (mut args, value) in so_far
            .into_iter()
            .flat_map(|args| values.iter().map(move |v| (args, *v)))
        {
            args[index] = value;
            all.insert(args);
        }
    }
    all
}

fn names(rule: &Value) -> impl Iterator<Item = &Value> {
    rule["names"].as_array().unwrap().iter()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn action(name: &Value, errno: &Value) -> u32 {
    match name.as_str().unwrap() {
        "SCMP_ACT_ALLOW" => ALLOW,
        "SCMP_ACT_NOTIFY" => NOTIFY,
        "SCMP_ACT_ERRNO" => 0x0005_0000 + errno.as_u64().unwrap_or(1) as u32,
        other => panic!("no built-in profile uses {other}"),
    }
}

fn compare(condition: &Value, arg: u64) -> bool {
    let (value, two) = (number(&condition["value"]), number(&condition["valueTwo"]));
    match condition["op"].as_str().unwrap() {
        "SCMP_CMP_NE" => arg != value,
        "SCMP_CMP_LT" => arg < value,
        "SCMP_CMP_LE" => arg <= value,
        "SCMP_CMP_EQ" => arg == value,
        "SCMP_CMP_GE" => arg >= value,
        "SCMP_CMP_GT" => arg > value,
        "SCMP_CMP_MASKED_EQ" => arg & value == two,
        other => panic!("no comparison is named {other}"),
    }
}

/// Names of calls too young for the oldest libseccomp we build with, told a second time so
/// that a slip in the compiler's table shows.
const YOUNG: &[(u32, &str)] = &[
    (447, "memfd_secret"),
    (448, "process_mrelease"),
    (449, "futex_waitv"),
    (450, "set_mempolicy_home_node"),
    (451, "cachestat"),
    (452, "fchmodat2"),
    (453, "map_shadow_stack"),
    (454, "futex_wake"),
    (455, "futex_wait"),
    (456, "futex_requeue"),
    (457, "statmount"),
    (458, "listmount"),
    (462, "mseal"),
    (467, "open_tree_attr"),
];

pub(crate) fn name_of(number: u32, arch: Arch) -> Option<String> {
    let token = match arch {
        Arch::X86_64 => ScmpArch::X8664,
        Arch::Aarch64 => ScmpArch::Aarch64,
    };
    let young = YOUNG.iter().find(|(young, _)| *young == number);
    young.map(|(_, name)| (*name).to_owned()).or_else(|| {
        ScmpSyscall::from(number as i32)
            .get_name_by_arch(token)
            .ok()
    })
}
