//! A helper as the app has it, and what can be seen of it from outside.

use std::process::{Child, ChildStdin, ExitStatus};
use std::time::{Duration, Instant};

use crate::ground::{Ground, patience};

/// A helper as the app has it.
#[derive(Debug)]
pub(crate) struct Helper {
    pub(crate) child: Child,
    /// Open for as long as the app lives.
    pub(crate) app: Option<ChildStdin>,
}

impl Helper {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + patience();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the helper goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn crashes(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.app.take());
        let deadline = Instant::now() + Duration::from_secs(15);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(
            std::thread::panicking(),
            "the app is gone, and the helper is not"
        );
    }
}

impl Ground {
    /// How many descriptors the helper has open.
    pub(crate) fn descriptors(&self) -> usize {
        let list = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        list.unwrap().count()
    }

    /// Waits until the helper has no more descriptors open than this.
    #[track_caller]
    pub(crate) fn has_at_most(&self, descriptors: usize, what: &str) {
        let deadline = Instant::now() + patience();
        while self.descriptors() > descriptors {
            let list = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
            let names = list
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.path()).ok());
            let mut names: Vec<_> = names.collect();
            names.sort();
            assert!(
                Instant::now() < deadline,
                "{what}: more than {descriptors}: {names:#?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The helper's memory, in KiB: what it has, and the most it ever had.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let words = line.unwrap_or_else(|| panic!("no {key}: {status}"));
            words.split_whitespace().next().unwrap().parse().unwrap()
        };
        (number("VmRSS:"), number("VmHWM:"))
    }

    /// What the helper has used of the processor, in ticks.
    pub(crate) fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let after = stat.rsplit_once(") ").unwrap().1;
        let fields: Vec<&str> = after.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}
