//! Memory that a box shares by System V's means: segments, semaphores, messages. It stays when those
//! who asked for it are gone, so that no process answers for it; the kernel's own tables do.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;

use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// What one of a set of semaphores takes, and what a message takes besides its text.
const SEMAPHORE: u64 = 64;
const MESSAGE: u64 = 64;
/// The tables of as many objects as the kernel allows are shorter.
const LONGEST: u64 = 8 << 20;

/// Columns of the kernel's tables, and how much memory each unit in them stands for.
const COUNTED: [(&str, u64); 5] = [
    ("rss", 1),
    ("swap", 1),
    ("nsems", SEMAPHORE),
    ("cbytes", 1),
    ("qnum", MESSAGE),
];

/// The tables of one box, opened in there.
#[derive(Debug, Default)]
pub(super) struct SystemV(Vec<File>);

impl SystemV {
    /// Reading anything but the kernel's own tables could hold whoever reads up.
    pub(super) fn new(tables: Vec<OwnedFd>) -> Self {
        let is_kernels = |table: &OwnedFd| {
            fstatfs(table).is_ok_and(|seen| seen.filesystem_type() == PROC_SUPER_MAGIC)
        };
        let tables = tables.into_iter().filter(is_kernels);
        Self(tables.map(File::from).collect())
    }

    /// Bytes, as of now.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().filter_map(read).map(|text| sum(&text)).sum()
    }
}

fn read(mut table: &File) -> Option<String> {
    let mut text = String::new();
    table.rewind().ok()?;
    table.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Adds up the columns that are known, whichever of the tables it is.
fn sum(table: &str) -> u64 {
    let mut lines = table.lines();
    let names = lines.next().unwrap_or_default().split_ascii_whitespace();
    let unit = |name| COUNTED.iter().find(|(known, _)| *known == name);
    let units: Vec<u64> = names
        .map(|name| unit(name).map_or(0, |(_, bytes)| *bytes))
        .collect();
    let of_line = |line: &str| -> u64 {
        let numbers = line.split_ascii_whitespace().zip(&units);
        numbers
            .filter(|(_, unit)| **unit > 0)
            .filter_map(|(text, unit)| Some(text.parse::<u64>().ok()?.saturating_mul(*unit)))
            .fold(0, u64::saturating_add)
    };
    lines.map(of_line).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_known_by_their_names() {
        let segments = "       key      shmid perms size cpid lpid nattch uid rss swap\n\
                        -1 0 1600 9000 5 5 0 1000 8192 4096\n 7 1 600 1 5 5 1 1000 1 2\n";
        assert_eq!(sum(segments), 8192 + 4096 + 3);
        let sets = "key semid perms nsems uid\n 0 3 600 1000 0\n";
        assert_eq!(sum(sets), 64_000);
        let queues = "key msqid perms cbytes qnum lspid\n 0 3 600 100 2 0\n";
        assert_eq!(sum(queues), 228);
        assert_eq!(sum(""), 0);
        assert_eq!(sum("rss\nmuch\n-1\n18446744073709551615\n5\n"), u64::MAX);
    }

    #[test]
    fn only_the_kernels_own_tables_are_read() {
        let (waits_for_ever, _held) = std::io::pipe().unwrap();
        let table = File::open("/proc/sysvipc/shm").unwrap();
        let tables = SystemV::new(vec![waits_for_ever.into(), table.into()]);
        assert_eq!(tables.0.len(), 1);
        tables.bytes();
    }

    #[test]
    fn the_kernels_own_tables_have_these_columns() {
        for (table, names) in [
            ("shm", &["rss", "swap"][..]),
            ("sem", &["nsems"]),
            ("msg", &["cbytes", "qnum"]),
        ] {
            let text = std::fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap();
            let first = text.lines().next().unwrap();
            for name in names {
                let is_there = first.split_ascii_whitespace().any(|one| one == *name);
                assert!(is_there, "{table}: {first}");
            }
        }
    }
}
