//! The mount table of a sandbox without its numbers.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::unnumbered;
use crate::world::Side;

/// At the end of a line, if nobody can see the mount.
pub(crate) const COVERED: &str = "covered";

/// `place <- parent's place | root | options | type source options`, sorted.
pub(crate) fn normal(side: &Side, lines: &[String]) -> Vec<String> {
    let table: Vec<Vec<&str>> = lines
        .iter()
        .map(|line| line.split(' ').take(5).collect())
        .collect();
    // On which another one lies, at the same place.
    let covered: BTreeSet<&str> = table
        .iter()
        .filter_map(|fields| fields.get(1))
        .copied()
        .filter(|id| is_covered(id, &table))
        .collect();
    let places: BTreeMap<&str, &str> = lines
        .iter()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.nth(3)?))
        })
        .collect();
    let mut normal: Vec<String> = lines
        .iter()
        .map(|line| one(side, line, &places, &covered).unwrap_or_else(|| line.clone()))
        .collect();
    normal.sort();
    normal
}

fn is_covered(id: &str, table: &[Vec<&str>]) -> bool {
    let place = table.iter().find(|fields| fields[0] == id);
    let Some(place) = place.and_then(|fields| fields.get(4)) else {
        return false;
    };
    let mut above = table.iter().filter(|fields| fields.get(1) == Some(&id));
    above.any(|fields| fields.get(4) == Some(place))
}

fn one(
    side: &Side,
    line: &str,
    places: &BTreeMap<&str, &str>,
    covered: &BTreeSet<&str>,
) -> Option<String> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let fields: Vec<&str> = mount.split(' ').collect();
    let [id, parent, device, root, place, options, tags @ ..] = fields.as_slice() else {
        return None;
    };
    // Filesystems without a disk get the next free number.
    let device = if device.starts_with("0:") {
        "0"
    } else {
        device
    };
    let above = places.get(parent).unwrap_or(&"(outside)");
    let is_terminal = filesystem.starts_with("devpts ") && *root != "/";
    let root = match is_terminal {
        true => "/N".to_owned(),
        false => unnumbered(&side.below(root)),
    };
    let tags = tags.iter().filter_map(|tag| tag.split(':').next());
    let hidden = covered.contains(id).then_some(COVERED);
    let end: Vec<&str> = tags.chain(hidden).collect();
    Some(format!(
        "{place} <- {above} | {device} {root} | {options} | {filesystem} | {}",
        end.join(" ")
    ))
}
