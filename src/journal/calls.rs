//! What the filter of a run says about a system call, and whether anybody would have been told.

use std::collections::BTreeSet;

use nix::errno::Errno;

use crate::filter::{self, Arch, Number, Profile, REFUSAL, Verdict};

/// A sentence about a call, from the walls that a run had; nothing where there is no such call.
pub(super) fn outlook(id: &str, call: &str, layers: &[String]) -> Option<String> {
    if Arch::native().is_none_or(|arch| filter::number(call, arch) == Number::Unknown) {
        return None;
    }
    let name = layers
        .iter()
        .find_map(|layer| layer.strip_prefix("seccomp "));
    let Some(name) = name else {
        return Some(format!("In {id}, no filter looks at system calls."));
    };
    let listens = layers.iter().any(|layer| layer == "guard");
    let Ok(profile) = Profile::builtin(name) else {
        return Some(format!(
            "In {id}, the filter is {name}: what that file says about {call} is not kept here."
        ));
    };
    Some(match refusals(&profile, call) {
        (_, errnos) if errnos.is_empty() => format!(
            "In {id}, the filter `{name}` allows {call}: if it failed, the kernel itself or another \
             wall said so."
        ),
        (always, errnos) => {
            let some = if always { "" } else { "some uses of " };
            let said: Vec<_> = errnos.iter().map(|errno| errno_name(*errno)).collect();
            let seen = match seen(&profile, call, &errnos, listens) {
                Seen::All => "that would have been written down",
                Seen::Some => "of these, EPERM alone would have been written down",
                Seen::None => "nobody but the program is told of that",
            };
            let said = said.join(", ");
            format!("In {id}, the filter `{name}` refuses {some}{call} ({said}): {seen}.")
        }
    })
}

enum Seen {
    All,
    Some,
    None,
}

fn seen(profile: &Profile, call: &str, errnos: &BTreeSet<u16>, listens: bool) -> Seen {
    let is_heard = listens && errnos.contains(&REFUSAL) && filter::is_heard(profile, call);
    match (is_heard, errnos.len()) {
        (false, _) => Seen::None,
        (true, 1) => Seen::All,
        (true, _) => Seen::Some,
    }
}

/// Whether a call is refused whatever its arguments are, and with which numbers.
fn refusals(profile: &Profile, call: &str) -> (bool, BTreeSet<u16>) {
    let mut verdicts: Vec<_> = profile
        .rules_about(call)
        .map(|rule| (rule.verdict, rule.conditions.is_empty()))
        .collect();
    if !verdicts.iter().any(|(_, decides)| *decides) {
        verdicts.push((profile.default_verdict(), true));
    }
    let errnos = verdicts.iter().filter_map(|(verdict, _)| match verdict {
        Verdict::Errno(errno) => Some(*errno),
        _ => None,
    });
    let always = verdicts
        .iter()
        .all(|(verdict, _)| *verdict != Verdict::Allow);
    (always, errnos.collect())
}

fn errno_name(errno: u16) -> String {
    format!("{:?}", Errno::from_raw(i32::from(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: &str, layers: &[&str]) -> String {
        let layers: Vec<String> = layers.iter().map(|&layer| layer.to_owned()).collect();
        outlook("a", call, &layers).unwrap_or_default()
    }

    const USUAL: &[&str] = &["namespaces", "seccomp default", "landlock abi 7", "guard"];

    #[test]
    fn it_says_what_would_have_been_seen() {
        for (call, expected) in [
            (
                "ptrace",
                "refuses ptrace (EPERM): that would have been written down",
            ),
            (
                "unshare",
                "refuses some uses of unshare (EPERM): that would have",
            ),
            (
                "clone3",
                "refuses clone3 (ENOSYS): nobody but the program is told",
            ),
            (
                "chmod",
                "refuses some uses of chmod (EPERM): nobody but the program",
            ),
            ("futex", "allows futex"),
        ] {
            let said = said(call, USUAL);
            assert!(said.contains(expected), "{said}");
        }
        let socket = said("socket", USUAL);
        assert!(socket.contains("of these, EPERM alone"), "{socket}");
        assert!(socket.contains("EAFNOSUPPORT"), "{socket}");
    }

    #[test]
    fn without_a_listener_nothing_is_seen() {
        let quiet = said("ptrace", &["namespaces", "seccomp default"]);
        assert!(quiet.contains("nobody but the program"), "{quiet}");
        let none = said("ptrace", &["namespaces"]);
        assert!(none.contains("no filter"), "{none}");
        let own = said("ptrace", &["seccomp /etc/own.json", "guard"]);
        assert!(own.contains("/etc/own.json"), "{own}");
        assert_eq!(said("package", USUAL), "");
    }
}
