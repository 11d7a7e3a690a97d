//! Rules of single differences: each checks that both sides are as they should be, makes them
//! equal, and tells whether they were not.

use crate::facts::Facts;
use crate::mounts::COVERED;

type Found = Result<bool, String>;

/// Where the texts of the help begin.
const SECOND_COLUMN: usize = 33;

const MORE_OPTIONS: [&str; 6] = [
    "--argv0",
    "--level-prefix",
    "--overlay-src",
    "--overlay",
    "--tmp-overlay",
    "--ro-overlay",
];

const OWN_OPTIONS: [&str; 6] = [
    "--not-a-security-boundary",
    "--cowork-profile",
    "--cowork-seccomp",
    "--cowork-landlock",
    "--cowork-limit",
    "--cowork-dry-run",
];

fn help(facts: &mut Facts) -> Result<&mut Vec<String>, String> {
    let is_help = |lines: &&mut Vec<String>| lines.iter().any(|line| line.starts_with("usage: "));
    let mut sections = facts.0.values_mut();
    sections.find(is_help).ok_or("no help".to_owned())
}

/// Takes options out of our help, with the lines on which their texts go on.
fn without_options(ours: &mut Facts, options: &[&str]) -> Found {
    let lines = help(ours)?;
    for option in options {
        let begins = |line: &String| line.split_whitespace().next() == Some(*option);
        let at = lines.iter().position(begins);
        let at = at.ok_or(format!("no {option} in the help"))?;
        let after = lines[at + 1..].iter();
        let more = after.take_while(|line| line.starts_with("          "));
        let end = at + 1 + more.count();
        lines.drain(at..end);
    }
    Ok(true)
}

pub(crate) fn more_options(_: &mut Facts, ours: &mut Facts) -> Found {
    without_options(ours, &MORE_OPTIONS)
}

pub(crate) fn own_options(_: &mut Facts, ours: &mut Facts) -> Found {
    without_options(ours, &OWN_OPTIONS)
}

/// Leaves of the help the options with their values, which callers look for.
pub(crate) fn words_of_the_help(peer: &mut Facts, ours: &mut Facts) -> Found {
    let differ = help(peer)? != help(ours)?;
    for side in [peer, ours] {
        let lines = help(side)?;
        lines.retain(|line| !line.starts_with("          "));
        for line in lines {
            if line.starts_with("    --") {
                line.truncate(SECOND_COLUMN);
            }
        }
    }
    Ok(differ)
}

pub(crate) fn root_of_the_root(peer: &mut Facts, _: &mut Facts) -> Found {
    let known = "/ <- (outside) | 0 /newroot |";
    let found = peer.change("mounts", |line| {
        let rest = line.strip_prefix(known)?;
        Some(format!("/ <- (outside) | 0 / |{rest}"))
    });
    Ok(found)
}

pub(crate) fn propagation(peer: &mut Facts, _: &mut Facts) -> Found {
    let found = peer.change("mounts", |line| {
        let (before, tags) = line.rsplit_once('|')?;
        let kept = |tag: &&str| !["master", "propagate_from"].contains(tag);
        let kept: Vec<&str> = tags.split_whitespace().filter(kept).collect();
        Some(format!("{before}| {}", kept.join(" "))).filter(|changed| changed != line)
    });
    Ok(found)
}

pub(crate) fn covered_flags(peer: &mut Facts, ours: &mut Facts) -> Found {
    let differ = peer.get("mounts") != ours.get("mounts");
    let mut found = false;
    for side in [peer, ours] {
        found |= side.change("mounts", |line| {
            let mut fields: Vec<&str> = line.split(" | ").collect();
            line.ends_with(COVERED).then(|| {
                fields[2] = "any flags";
                fields.join(" | ")
            })
        });
    }
    Ok(found && differ)
}

/// Ours has more read-only covers in a procfs.
pub(crate) fn kernel_settings(peer: &mut Facts, ours: &mut Facts) -> Found {
    let mut theirs = peer.get("mounts").to_vec();
    let Some(lines) = ours.0.get_mut("mounts") else {
        return Ok(false);
    };
    let before = lines.len();
    lines.retain(|line| {
        if let Some(at) = theirs.iter().position(|other| other == line) {
            theirs.remove(at);
            return true;
        }
        let place = line.split(" <- ").next().unwrap_or_default();
        let name = place.rsplit('/').next().unwrap_or_default();
        let is_cover = ["sys", "irq", "bus", "sysrq-trigger"].contains(&name);
        !(is_cover && line.contains(" | ro,") && line.contains(" | proc proc "))
    });
    Ok(lines.len() < before)
}

pub(crate) fn followed_no_links(_: &mut Facts, ours: &mut Facts) -> Found {
    let found = ours.change("mounts", |line| {
        let at = line.find(",nosymfollow |")?;
        Some(line[..at].to_owned() + &line[at + ",nosymfollow".len()..])
    });
    Ok(found)
}

/// Leaves of the options of an overlay whether it is writable and where its marks are.
pub(crate) fn host_paths(peer: &mut Facts, ours: &mut Facts) -> Found {
    let differ = peer.get("mounts") != ours.get("mounts");
    for side in [peer, ours] {
        side.change("mounts", |line| {
            let (before, options) = line.split_once(",lowerdir")?;
            let marks = options.contains("userxattr");
            Some(format!("{before}, marks of the user: {marks}"))
        });
    }
    Ok(differ)
}

/// Entries of the environment that have no name, or no value.
pub(crate) fn no_variables(peer: &mut Facts, _: &mut Facts) -> Found {
    let mut found = false;
    for section in ["environment", "environment, sorted"] {
        let lines = peer.0.get_mut(section).ok_or("no environment")?;
        let before = lines.len();
        lines.retain(|line| line.find('=').is_some_and(|at| at > 0));
        found |= lines.len() < before;
    }
    Ok(found)
}

pub(crate) fn closed_namespaces(peer: &mut Facts, _: &mut Facts) -> Found {
    let lines = peer.0.get_mut("descriptors").ok_or("no descriptors")?;
    let before = lines.len();
    lines.retain(|line| !(line.ends_with(" user") || line.ends_with(" pid")));
    Ok(lines.len() < before)
}

/// No set of ours has what the other's has not.
pub(crate) fn rights_again(peer: &mut Facts, ours: &mut Facts) -> Found {
    let mut differ = false;
    for name in ["effective ", "permitted ", "bounding "] {
        let (theirs, own) = (capabilities(peer, name)?, capabilities(ours, name)?);
        if own & !theirs != 0 {
            return Err(format!("ours has more: {name}{own:x}"));
        }
        differ |= own != theirs;
    }
    Ok(differ)
}

/// Takes a set out of the facts.
fn capabilities(facts: &mut Facts, name: &str) -> Result<u64, String> {
    let lines = facts.0.get_mut("rights").ok_or("no rights")?;
    let at = lines.iter().position(|line| line.starts_with(name));
    let line = lines.remove(at.ok_or("no such set")?);
    u64::from_str_radix(&line[name.len()..], 16).map_err(|error| error.to_string())
}

/// The host is as it was, while the other one has changed it.
pub(crate) fn nothing_on_the_host(peer: &mut Facts, ours: &mut Facts) -> Found {
    let before = peer.get("host, before");
    if peer.get("host") == before {
        return Ok(false);
    }
    if ours.get("host") != before {
        return Err(format!("ours changed the host: {:#?}", ours.get("host")));
    }
    if ours.get("ended") != ["ended 1", "left 0"] {
        return Err(format!("ours: {:?}", ours.get("ended")));
    }
    peer.0.clear();
    ours.0.clear();
    Ok(true)
}

/// What was asked for above the root is at the root.
pub(crate) fn dotdot(peer: &mut Facts, ours: &mut Facts) -> Found {
    let has = |facts: &Facts, name: &str| {
        let mut lines = facts.get("list").iter();
        lines.any(|line| line.starts_with(name))
    };
    if has(ours, "/up/file ") && !has(peer, "/up") {
        for section in ["list", "mounts"] {
            let lines = ours.0.entry(section.to_owned()).or_default();
            lines.retain(|line| !line.starts_with("/up"));
        }
        return Ok(true);
    }
    if has(ours, "/sub/deep ") && !has(peer, "/sub") {
        // The tools are then put into what is bound there.
        for section in ["list", "mounts", "host"] {
            peer.0.remove(section);
            ours.0.remove(section);
        }
        return Ok(true);
    }
    Ok(false)
}

/// Ours keeps a name of the directory that has a link in it; the other one may not be able to.
pub(crate) fn directory_by_name(peer: &mut Facts, ours: &mut Facts) -> Found {
    let [by_link, resolved] = ["PWD={W}/src/link", "PWD={W}/src/dir"];
    if !ours.get("environment").iter().any(|line| line == by_link) {
        return Err("ours does not keep it".to_owned());
    }
    for section in ["environment", "environment, sorted"] {
        peer.change(section, |line| {
            (line == resolved).then(|| by_link.to_owned())
        });
    }
    Ok(true)
}
