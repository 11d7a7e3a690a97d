//! How a difference that is meant is told from a fault. The table is in `differences.rs`.

use crate::compare::changes;
use crate::facts::Facts;
use crate::support;

#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) between: Between,
    pub(crate) whose: Whose,
    pub(crate) cases: Cases,
    pub(crate) rule: Rule,
}

/// What makes the difference.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Between {
    /// The other bubblewrap is older than the one we follow.
    Versions,
    /// Ours does better than any bubblewrap.
    Designs,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose {
    Anyones,
    Roots,
    Users,
}

impl Whose {
    pub(crate) fn is_this(self) -> bool {
        match self {
            Self::Anyones => true,
            Self::Roots => support::is_root(),
            Self::Users => !support::is_root(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Cases {
    /// It is in each of these.
    Named(&'static [&'static str]),
    /// It may be anywhere, and is in this one.
    Every(&'static str),
}

impl Cases {
    pub(crate) fn names(self) -> Vec<&'static str> {
        match self {
            Self::Named(names) => names.to_vec(),
            Self::Every(name) => vec![name],
        }
    }

    fn has(self, case: &str) -> bool {
        matches!(self, Self::Every(_)) || self.names().contains(&case)
    }
}

type Section = (&'static str, &'static [&'static str]);

#[derive(Debug)]
pub(crate) enum Rule {
    /// Sections that are exactly so on either side; the others are equal.
    Sections {
        peer: &'static [Section],
        ours: &'static [Section],
    },
    /// The other one does not come as far as ours and says this. Sections of ours have at least
    /// these lines.
    Works {
        peer_says: &'static str,
        ours: &'static [Section],
    },
    /// Only the other one has these lines.
    Less {
        section: &'static str,
        lines: &'static [&'static str],
    },
    /// Makes both equal, and tells whether they were not.
    By(fn(&mut Facts, &mut Facts) -> Result<bool, String>),
}

impl Difference {
    pub(crate) fn concerns(&self, case: &str) -> bool {
        self.cases.has(case) && self.whose.is_this()
    }

    /// Makes both equal where they differ as they should.
    pub(crate) fn take_out(
        &self,
        case: &str,
        peer: &mut Facts,
        ours: &mut Facts,
    ) -> Result<(), String> {
        let found = match &self.rule {
            Rule::Sections {
                peer: theirs,
                ours: own,
            } => sections(peer, theirs, ours, own)?,
            Rule::Works {
                peer_says,
                ours: own,
            } => works(peer, peer_says, ours, own)?,
            Rule::Less { section, lines } => less(section, lines, peer, ours)?,
            Rule::By(rule) => rule(peer, ours)?,
        };
        if !found && self.cases.names().contains(&case) {
            return Err("it is not there any more".to_owned());
        }
        Ok(())
    }
}

fn sections(
    peer: &mut Facts,
    theirs: &[Section],
    ours: &mut Facts,
    own: &[Section],
) -> Result<bool, String> {
    exactly("bwrap", theirs, peer)?;
    exactly("ours", own, ours)?;
    let names = || theirs.iter().chain(own).map(|(section, _)| *section);
    let differ = names().all(|section| peer.get(section) != ours.get(section));
    for section in names() {
        peer.0.remove(section);
        ours.0.remove(section);
    }
    Ok(differ)
}

fn exactly(who: &str, sections: &[Section], facts: &Facts) -> Result<(), String> {
    for (section, lines) in sections {
        let wanted: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let found = facts.get(section);
        if found != wanted {
            return Err(format!(
                "{section} of {who} is not what is written down (here as bwrap's):\n{}",
                changes(&wanted, found)
            ));
        }
    }
    Ok(())
}

fn works(
    peer: &mut Facts,
    peer_says: &str,
    ours: &mut Facts,
    own: &[Section],
) -> Result<bool, String> {
    let failure: [Section; 1] = [("ended", &["ended 1", "left 0"])];
    exactly("bwrap", &failure, peer)?;
    let said = peer.get("stderr");
    if said != [peer_says] {
        return Err(format!("bwrap says {said:?}"));
    }
    for (section, lines) in own {
        let found = ours.get(section);
        let missing = lines.iter().find(|line| !found.iter().any(|l| l == *line));
        if let Some(line) = missing {
            return Err(format!("ours has no `{line}` in {section}: {found:#?}"));
        }
    }
    peer.0.clear();
    ours.0.clear();
    Ok(true)
}

fn less(section: &str, lines: &[&str], peer: &mut Facts, ours: &mut Facts) -> Result<bool, String> {
    for line in lines {
        let list = peer.0.entry(section.to_owned()).or_default();
        let at = list.iter().position(|found| found == line);
        let at = at.ok_or(format!("bwrap has no `{line}` in {section}: {list:#?}"))?;
        list.remove(at);
    }
    // A section without lines is none.
    ours.0.entry(section.to_owned()).or_default();
    Ok(true)
}
