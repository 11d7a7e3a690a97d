//! The argument lists, by theme.

mod commands;
mod contents;
mod lives;
mod namespaces;
mod newer;
mod places;
mod process;
mod sources;
mod words;

pub(crate) const ALL: [&[&str]; 9] = [
    commands::NAMES,
    contents::NAMES,
    lives::NAMES,
    namespaces::NAMES,
    newer::NAMES,
    places::NAMES,
    process::NAMES,
    sources::NAMES,
    words::NAMES,
];
