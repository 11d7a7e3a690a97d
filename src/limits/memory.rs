//! How much memory a box uses, as well as that can be told from outside without a control group.
//!
//! Three looks, each dearer and more exact than the one before; the dearer one is taken only
//! when the cheaper one could hide a box that is over its limit. The cheapest relies on what the
//! whole host uses, where others may give back what the box takes; so it is not always taken.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::census::{Census, Process, read_small};
use super::ground::Ground;
use crate::sys;

/// Of so many looks one does without the host's numbers.
const THOROUGH: u32 = 8;
/// No process has more files open that are worth looking at.
const FILES_PER_PROCESS: usize = 4096;

/// What the whole host uses of the two kinds of memory that no process answers for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Host {
    shared: u64,
    swapped: u64,
}

impl Host {
    pub(super) fn look() -> Self {
        let mut room = [0u8; 4096];
        let text = read_small("/proc/meminfo", &mut room).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        let kilobytes = |key| field(text, key).unwrap_or(0);
        Self {
            shared: kilobytes("Shmem:"),
            swapped: kilobytes("SwapTotal:").saturating_sub(kilobytes("SwapFree:")),
        }
    }
}

/// The number after a key, in bytes; the kernel writes kilobytes.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let number: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024)
}

#[derive(Debug)]
pub(super) struct Memory {
    /// The least that the host has been seen to use.
    least: Host,
    looks: u32,
    page: u64,
    /// The device of files in memory that lie in no folder.
    unnamed: Option<u64>,
}

impl Memory {
    pub(super) fn new() -> Self {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
        Self {
            least: Host::look(),
            looks: 0,
            page: page.ok().flatten().unwrap_or(4096) as u64,
            unnamed: sys::limits::device_of_unnamed_memory().ok(),
        }
    }

    /// What the box uses if that is more than the limit; otherwise a number that it is below.
    /// `is_last` when nobody will look again before somebody does something.
    pub(super) fn look(
        &mut self,
        census: &Census,
        ground: &Ground,
        limit: u64,
        is_last: bool,
    ) -> u64 {
        self.looks = self.looks.wrapping_add(1);
        let is_thorough = is_last || self.looks.is_multiple_of(THOROUGH);
        let more = self.more_on_the_host();
        let most = self.at_most(census, ground, more);
        if most <= limit && !is_thorough {
            return most;
        }
        let (counted, mapped) = sums(census, |process| status(process.pid));
        let unnamed = match is_thorough {
            true => self.unnamed(census),
            false => more.shared,
        };
        let most = counted + mapped + ground.in_memory() + unnamed;
        if most <= limit {
            return most;
        }
        self.exactly(census, ground)
    }

    /// More than the box can use: shared pages count for everybody who has them, and all that the
    /// host uses more of than it once did counts as the box's.
    fn at_most(&self, census: &Census, ground: &Ground, more: Host) -> u64 {
        let pages: u64 = census.living().map(|process| process.resident).sum();
        pages * self.page + ground.in_memory() + more.swapped + more.shared
    }

    fn more_on_the_host(&mut self) -> Host {
        let now = Host::look();
        self.least.shared = self.least.shared.min(now.shared);
        self.least.swapped = self.least.swapped.min(now.swapped);
        Host {
            shared: now.shared - self.least.shared,
            swapped: now.swapped - self.least.swapped,
        }
    }

    /// Pages that several have count in parts; files in memory count once, open or mapped.
    pub(super) fn exactly(&self, census: &Census, ground: &Ground) -> u64 {
        let (counted, mapped) = sums(census, |process| {
            rollup(process.pid).or_else(|| status(process.pid))
        });
        let unnamed = self.unnamed(census);
        // What is mapped is either in a folder in memory or unnamed. Which it is cannot be told
        // cheaply, so the larger of the two counts is taken rather than both.
        counted + mapped.max(ground.in_memory() + unnamed)
    }

    /// Files in memory that lie in no folder and are open in some process.
    fn unnamed(&self, census: &Census) -> u64 {
        let open = open_without_name(census);
        let device = self.unnamed;
        open.iter()
            .filter(|((on, _), _)| Some(*on) == device)
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// Adds up a process's own and its shared part.
fn sums(census: &Census, look: impl Fn(&Process) -> Option<(u64, u64)>) -> (u64, u64) {
    let parts = census.living().filter_map(look);
    parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Own and shared memory as the kernel counts it for the process alone.
fn status(pid: i32) -> Option<(u64, u64)> {
    let mut room = [0u8; 4096];
    let text = read_small(&format!("/proc/{pid}/status"), &mut room).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let bytes = |key| field(text, key).unwrap_or(0);
    // Page tables are memory too, and can be made large by touching little.
    let own = bytes("RssAnon:") + bytes("VmSwap:") + bytes("VmPTE:");
    Some((own, bytes("RssShmem:")))
}

/// The same with pages divided among those who share them; slow for large processes.
fn rollup(pid: i32) -> Option<(u64, u64)> {
    let mut room = [0u8; 4096];
    let text = read_small(&format!("/proc/{pid}/smaps_rollup"), &mut room).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let own = field(text, "Pss_Anon:")? + field(text, "SwapPss:").unwrap_or(0);
    Some((own, field(text, "Pss_Shmem:").unwrap_or(0)))
}

/// Files that processes hold open and that lie in no folder any more, each once: device and
/// number, and how much it takes.
pub(super) fn open_without_name(census: &Census) -> HashMap<(u64, u64), u64> {
    let mut found = HashMap::new();
    for process in census.living() {
        let Ok(files) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else {
            continue;
        };
        for file in files.flatten().take(FILES_PER_PROCESS) {
            let Ok(seen) = fs::metadata(file.path()) else {
                continue;
            };
            if seen.is_file() && seen.nlink() == 0 {
                found.insert((seen.dev(), seen.ino()), seen.blocks() * 512);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_bytes() {
        let text = "Name:\tx\nVmSwap:\t       8 kB\nRssAnon:\t     120 kB\n";
        assert_eq!(field(text, "RssAnon:"), Some(120 << 10));
        assert_eq!(field(text, "VmPTE:"), None);
    }

    #[test]
    fn the_looks_agree_about_this_process_and_the_cheap_ones_never_see_less() {
        let own = Process::look(std::process::id() as i32).unwrap();
        let census = Census {
            all: vec![own],
            is_cut: false,
        };
        let block = vec![1u8; 20 << 20];
        let memory = Memory::new();
        let ground = Ground::default();
        let census = Census {
            all: vec![Process::look(own.pid).unwrap()],
            ..census
        };
        let exact = memory.exactly(&census, &ground);
        let (counted, shared) = sums(&census, |process| status(process.pid));
        assert!(exact >= block.len() as u64, "{exact}");
        assert!(exact < 2 << 30);
        // Other tests run in this process meanwhile.
        let slack = 16 << 20;
        assert!(counted + shared + slack >= exact);
        assert!(memory.at_most(&census, &ground, Host::default()) + slack >= exact);
    }

    #[test]
    fn a_file_without_a_name_is_found_by_who_holds_it() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7u8; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let seen = file.metadata().unwrap();
        let census = Census {
            all: vec![Process::look(std::process::id() as i32).unwrap()],
            is_cut: false,
        };
        let found = open_without_name(&census);
        let bytes = found.get(&(seen.dev(), seen.ino()));
        assert!(bytes.is_some_and(|bytes| *bytes >= 1 << 20), "{found:?}");
    }
}
