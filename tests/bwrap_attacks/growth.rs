//! A start with many mounts: the work grows with their number and not with its square.

use std::process::Command;

use crate::launchers::{Launcher, distribution_has_old_holes, has};
use crate::support::{Ran, World};

/// How many system calls a start with this many binds makes, in all its processes.
fn calls(launcher: Launcher, binds: usize) -> usize {
    let world = World::new();
    let work = world.work().display().to_string();
    let started = launcher.command(&world);
    let mut strace = Command::new("strace");
    let counts = world.path("counts");
    strace.args(["-f", "-c", "-o", counts.to_str().unwrap()]);
    strace.arg(started.get_program()).args(started.get_args());
    strace.args(["--ro-bind", "/", "/", "--tmpfs", "/mnt"]);
    for number in 0..binds {
        strace.args(["--ro-bind", &work, &format!("/mnt/{number}")]);
    }
    Ran::of(strace.arg("true")).ok();
    let counts = std::fs::read_to_string(counts).unwrap();
    let total = counts
        .lines()
        .find(|line| line.ends_with(" total"))
        .unwrap();
    let mut columns = total.split_whitespace();
    columns.nth(3).unwrap().parse().unwrap()
}

/// How much more the second half of the largest costs than the second half of the middle one:
/// two when each costs the same.
fn growth(launcher: Launcher, smallest: usize) -> f64 {
    let [small, middle, large] = [1, 2, 4].map(|times| calls(launcher, smallest * times));
    assert!(small < middle && middle < large);
    (large - middle) as f64 / (middle - small) as f64
}

#[test]
fn a_thousand_binds_cost_a_thousand_times_one() {
    if !has("strace") {
        return;
    }
    if distribution_has_old_holes() {
        let control = growth(Launcher::Distribution, 100);
        assert!(control > 2.15, "{control}");
    }
    let ours = growth(Launcher::Ours, 250);
    assert!(ours < 2.05, "{ours}");
}
