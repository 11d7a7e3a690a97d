//! The same argument lists for the distribution's bwrap and for ours: exit code, messages, JSON,
//! what the command sees and what the host keeps have to be the same, but for what
//! `differences.rs` lists.
//!
//! `COWORK_TEST_BWRAP` names a program to test in place of ours, `COWORK_TEST_BWRAP_PEER` one to
//! compare with in place of the distribution's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
mod support;

mod case;
mod cases;
mod compare;
mod differences;
mod facts;
mod mounts;
mod normal;
mod rules;
mod world;

use std::collections::BTreeSet;

#[test]
fn every_difference_is_of_cases_that_there_are() {
    let known: BTreeSet<&str> = cases::ALL.into_iter().flatten().copied().collect();
    assert!(known.len() > 650, "only {} cases", known.len());
    let mut named = BTreeSet::new();
    for difference in differences::DIFFERENCES {
        assert!(named.insert(difference.name), "{} twice", difference.name);
        for case in difference.cases.names() {
            assert!(known.contains(case), "{}: {case}", difference.name);
        }
    }
}
