//! The launch on hosts with many mounts. The mounts are made in a private mount namespace in which this
//! program runs itself again; the host's own table is never touched.

use crate::boxes::{Boxes, Payload};
use crate::measure::{self, Answer, Table, rounds};
use std::env;
use std::fs;
use std::process::Command;

const ASKED: &str = "BENCH_HOST_MOUNTS";

/// The size of the host's table that the outer run prepared for us, if this is the inner run.
pub(crate) fn asked_to_measure() -> Option<usize> {
    env::var(ASKED).ok()?.parse().ok()
}

/// The inner run: prints its two medians for the outer one.
pub(crate) fn measure(boxes: &Boxes, total: usize) -> Answer<()> {
    let entries = fs::read_to_string("/proc/self/mountinfo")?.lines().count();
    if entries < total {
        return Err(format!("{entries} mounts where {total} were wanted").into());
    }
    let mut contestants = boxes.ours_and_base(Payload::STATIC, 1)?;
    let [ours, base] = measure::medians(&mut contestants, rounds(5))?;
    println!("medians {entries} {ours} {base}");
    Ok(())
}

/// The outer run.
pub(crate) fn run(boxes: &Boxes) -> Answer<()> {
    println!(
        "Launch to exit by number of mounts on the host, {} rounds, median, microseconds",
        rounds(5)
    );
    let mut table = Table::new(&["host mounts", "cowork-linux", "base", "/ base"]);
    for total in [20, 100, 500] {
        let output = in_private_namespace(boxes, total)?.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(medians) = text.lines().find_map(|line| line.strip_prefix("medians ")) else {
            println!(
                "  {total}: not measured: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            continue;
        };
        let numbers: Vec<f64> = medians.split(' ').flat_map(str::parse).collect();
        let [entries, ours, base] = numbers[..] else {
            return Err("unreadable medians".into());
        };
        table.row([
            format!("{entries:.0}"),
            format!("{ours:.0}"),
            format!("{base:.0}"),
            format!("{:.3}", ours / base),
        ]);
    }
    println!("{table}");
    Ok(())
}

/// This program again, where the mount table has at least this many entries.
///
/// An ordinary user has to be root of a user namespace to mount. For the measurement it becomes itself again
/// in a second one, so that both tools start as the user and without capabilities, as they do outside.
fn in_private_namespace(boxes: &Boxes, total: usize) -> Answer<Command> {
    const FILL: &str = r#"
        count=$(wc -l < /proc/self/mountinfo)
        while [ "$count" -lt "$1" ]; do
            mkdir -p "$2/$count" && mount --bind "$2/$count" "$2/$count" || exit 1
            count=$((count + 1))
        done
        shift 2
        exec "$@""#;
    let (user, group) = (nix::unistd::geteuid(), nix::unistd::getegid());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !user.is_root() {
        command.arg("--map-root-user");
    }
    let points = boxes.scratch.path().join("host-mounts");
    command
        .args(["sh", "-c", FILL, "fill", &total.to_string()])
        .arg(points);
    if !user.is_root() {
        command.args([
            "unshare",
            &format!("--map-user={user}"),
            &format!("--map-group={group}"),
        ]);
    }
    command
        .arg(env::current_exe()?)
        .env(ASKED, total.to_string());
    Ok(command)
}
