//! Gives one argument list to both and compares what came of it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::case::Case;
use crate::differences::DIFFERENCES;
use crate::facts::Facts;
use crate::rules::{Between, Difference};
use crate::support;
use crate::world::Pair;

/// The bubblewrap whose command line we take.
const OUR_VERSION: &str = "bubblewrap 0.11.1";
/// The older one whose differences from that are known here.
const OLDER_VERSION: &str = "bubblewrap 0.8.0";

/// Who is compared with whom.
struct Rivals {
    peer: PathBuf,
    versions_differ: bool,
    /// Not a real bubblewrap tried in its place.
    ours_is_ours: bool,
    /// What each of them says it can do.
    peer_help: String,
    our_help: String,
}

fn said(program: &PathBuf, argument: &str) -> Option<String> {
    let ran = Command::new(program).arg(argument).output().ok()?;
    Some(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// None where there is nothing to compare with.
#[allow(clippy::print_stderr)]
fn rivals() -> Option<&'static Rivals> {
    static RIVALS: OnceLock<Option<Rivals>> = OnceLock::new();
    RIVALS
        .get_or_init(|| {
            let found = find_rivals();
            let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
            match found {
                Ok(rivals) => Some(rivals),
                Err(why) => {
                    assert!(
                        !required.split(',').any(|name| name == "bwrap"),
                        "{why}, and COWORK_TEST_REQUIRE asks for bwrap"
                    );
                    eprintln!("SKIPPED: {why}");
                    None
                }
            }
        })
        .as_ref()
}

fn find_rivals() -> Result<Rivals, String> {
    let peer = std::env::var_os("COWORK_TEST_BWRAP_PEER")
        .map_or_else(|| support::DISTRIBUTION_BWRAP.into(), PathBuf::from);
    let version = said(&peer, "--version").ok_or(format!("{} is missing", peer.display()))?;
    let version = version.trim();
    if ![OUR_VERSION, OLDER_VERSION].contains(&version) {
        return Err(format!("{version} is not known to this test"));
    }
    let works = Command::new(&peer)
        .args(["--unshare-all", "--ro-bind", "/", "/", "true"])
        .output()
        .is_ok_and(|ran| ran.status.success());
    if !works {
        return Err(format!("{} cannot make a sandbox here", peer.display()));
    }
    let folder = tempfile::tempdir().unwrap();
    let ours = support::bwrap_in(folder.path());
    let our_version = said(&ours, "--version").unwrap_or_default();
    Ok(Rivals {
        versions_differ: our_version.trim() != version,
        ours_is_ours: std::env::var_os("COWORK_TEST_BWRAP").is_none(),
        peer_help: said(&peer, "--help").unwrap_or_default(),
        our_help: said(&ours, "--help").unwrap_or_default(),
        peer,
    })
}

/// Whether a bubblewrap with this help knows every option of the case.
fn knows(help: &str, case: &Case) -> bool {
    let listed: BTreeSet<&str> = help.split_whitespace().collect();
    NEWER
        .iter()
        .filter(|option| case.options.iter().any(|word| word == **option))
        .all(|option| listed.contains(option))
}

/// Options that the older version does not have, or has only as some distributions build it.
const NEWER: [&str; 8] = [
    "--argv0",
    "--level-prefix",
    "--bind-fd",
    "--ro-bind-fd",
    "--overlay-src",
    "--overlay",
    "--tmp-overlay",
    "--ro-overlay",
];

#[track_caller]
pub(crate) fn check(name: &str, case: &Case) {
    let Some(rivals) = rivals() else { return };
    if !knows(&rivals.our_help, case) && !rivals.ours_is_ours {
        return;
    }
    let pair = Pair::of(case);
    let program = support::bwrap_in(pair.folder());
    let compared = knows(&rivals.peer_help, case);
    // At the same time: most of it is waiting for the kernel.
    let (peer, mut ours) = std::thread::scope(|scope| {
        let peer = compared.then(|| scope.spawn(|| Facts::of(&pair.peer, &rivals.peer, case)));
        let ours = Facts::of(&pair.ours, &program, case);
        (peer.map(|thread| thread.join().unwrap()), ours)
    });
    let mut faults = unexpected(case, &ours);
    if let Some(mut peer) = peer {
        for difference in DIFFERENCES.iter().filter(|one| rivals.has(one, name)) {
            if let Err(why) = difference.take_out(name, &mut peer, &mut ours) {
                let (name, reason) = (difference.name, difference.why);
                let _ = writeln!(faults, "known difference, {name} ({reason}): {why}");
            }
        }
        for side in [&mut peer, &mut ours] {
            side.0.entry("mounts".to_owned()).or_default().sort();
            // What the loader says of programs that have one; the static one has none.
            let said = side.0.entry("stderr".to_owned()).or_default();
            said.retain(|line| !line.contains("ERROR: ld.so: object "));
        }
        faults += &unequal(&peer, &ours);
    } else {
        assert!(
            !case.expected.is_empty(),
            "{name} has nothing to compare with"
        );
    }
    assert!(
        faults.is_empty(),
        "\n{name}: bwrap {} {}\n{}{faults}",
        case.options.join(" "),
        case.command.join(" "),
        arranged(case),
    );
}

impl Rivals {
    fn has(&self, difference: &Difference, case: &str) -> bool {
        let here = match difference.between {
            Between::Versions => self.versions_differ,
            Between::Designs => self.ours_is_ours,
        };
        here && difference.concerns(case)
    }
}

fn arranged(case: &Case) -> String {
    if case.arranged.is_empty() {
        return String::new();
    }
    format!("called with: {}\n", case.arranged.join(" "))
}

/// What a bubblewrap of our version ought to show and ours does not.
fn unexpected(case: &Case, ours: &Facts) -> String {
    let mut faults = String::new();
    for expected in &case.expected {
        let lines = ours.get(expected.section);
        let missing = expected.lines.iter().any(|line| !lines.contains(line));
        let more = expected.exactly && lines.len() != expected.lines.len();
        if missing || more {
            let wanted = &expected.lines;
            let _ = writeln!(
                faults,
                "{}, as version 0.11.1 has it:\n{}",
                expected.section,
                changes(wanted, lines)
            );
        }
    }
    faults
}

/// Sections that there are without a command that runs.
const OUTSIDE: [&str; 6] = ["ended", "stderr", "stdout", "info", "status", "host"];

fn unequal(peer: &Facts, ours: &Facts) -> String {
    let sections: BTreeSet<&String> = peer.0.keys().chain(ours.0.keys()).collect();
    let mut faults = String::new();
    let ran = |facts: &Facts| facts.0.contains_key("did") || facts.0.contains_key("called");
    let one_ran = ran(peer) != ran(ours);
    if one_ran {
        let who = if ran(ours) { "ours" } else { "bwrap" };
        let _ = writeln!(faults, "the command ran only in {who}");
    }
    for section in sections {
        let (left, right) = (peer.get(section), ours.get(section));
        // What a command saw is of no interest beside one that did not run.
        let told = !one_ran || OUTSIDE.contains(&section.as_str());
        if left != right && told {
            let _ = write!(faults, "{section}:\n{}", changes(left, right));
        }
    }
    faults
}

/// Lines that only one of them has; all lines where just the order differs.
pub(crate) fn changes(peer: &[String], ours: &[String]) -> String {
    let only = |of: &[String], and: &[String], sign: &str| -> String {
        let mut others = and.to_vec();
        let mut text = String::new();
        for line in of {
            match others.iter().position(|other| other == line) {
                Some(at) => drop(others.remove(at)),
                None => text += &format!("  {sign} {line}\n"),
            }
        }
        text
    };
    let text = only(peer, ours, "bwrap:") + &only(ours, peer, "ours: ");
    if text.is_empty() {
        return format!("  another order: bwrap: {peer:?}\n                 ours:  {ours:?}\n");
    }
    text
}
