//! The network a box has with a gateway, seen from both sides. This program is the supervisor: it
//! starts boxes with the library, as one thread, and holds their doors itself.
//!
//! Run with a part of a test's name to run only those.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used
)]

#[allow(dead_code)]
#[path = "../walls/outside.rs"]
mod outside;
#[path = "../support/mod.rs"]
mod support;

mod arriving;
mod changing;
mod dialling;
mod ground;
mod without;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

type Case = (&'static str, fn());

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let cases = [
        arriving::CASES,
        changing::CASES,
        dialling::CASES,
        without::CASES,
    ];
    let mut failed = Vec::new();
    let mut count = 0;
    for (name, case) in cases.into_iter().flatten() {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        count += 1;
        let passed = catch_unwind(AssertUnwindSafe(case)).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    println!("{count} run, {} failed", failed.len());
    match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
