//! What the attacks have in common: answers of a probe, a tree before and after, a trap.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{self, Ran, World};

/// Starts every probe: `try("name", call)` prints `name=0`, or `name=` and the error's name.
pub(crate) const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
static void say(const char *name, long ret) {
    if (ret >= 0) printf("%s=0\n", name);
    else printf("%s=%s\n", name, errno ? strerrorname_np(errno) : "(no errno)");
    fflush(stdout);
}
#define try(name, call) do { errno = 0; long ret_ = (long)(call); say(name, ret_); } while (0)
"#;

pub(crate) fn probe(world: &World, name: &str, source: &str) -> PathBuf {
    support::compile(world, name, &format!("{PRELUDE}\n{source}"))
}

/// What a probe answered.
#[derive(Debug)]
pub(crate) struct Answers(BTreeMap<String, String>);

impl Answers {
    pub(crate) fn of(ran: &Ran) -> Self {
        let pairs = ran.out.lines().filter_map(|line| line.split_once('='));
        let pairs = pairs.map(|(name, answer)| (name.to_owned(), answer.to_owned()));
        Self(pairs.collect())
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("(no answer)", String::as_str)
    }

    /// The call went through: the control of an attack.
    #[track_caller]
    pub(crate) fn worked(&self, name: &str) {
        assert_eq!(self.get(name), "0", "{name} of {self:?}");
    }

    #[track_caller]
    pub(crate) fn refused(&self, name: &str, with: &[&str]) {
        assert!(
            with.contains(&self.get(name)),
            "{name} is not {with:?} in {self:?}"
        );
    }

    pub(crate) fn starting_with(&self, start: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self
            .0
            .iter()
            .map(|(name, answer)| (name.as_str(), answer.as_str()));
        let start = start.to_owned();
        all.filter(move |(name, _)| name.starts_with(&start))
    }
}

/// Every entry of a tree with its kind, mode, size, time of change and, for links, target.
pub(crate) fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            waiting.extend(
                // A session's home is closed, to whoever looks from outside as well.
                std::fs::read_dir(&path)
                    .into_iter()
                    .flatten()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        let target = std::fs::read_link(&path).unwrap_or_default();
        let what = (
            meta.mode(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.nlink(),
        );
        found.insert(path, format!("{what:?} {}", target.display()));
    }
    found
}

/// A program that runs while the test looks at it; ended with the test.
#[derive(Debug)]
pub(crate) struct Living {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Living {
    /// Starts it, and waits until it has printed its first line.
    pub(crate) fn start(command: &mut Command) -> (Self, String) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut living = Self { child, lines };
        let line = living.line();
        (living, line)
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Kills the launcher and nobody else; returns when nobody holds its output any more.
    pub(crate) fn kill_and_hear_the_end(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.hear_the_end()
    }

    pub(crate) fn hear_the_end(&mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Closes its input and waits for it.
    pub(crate) fn end(mut self) -> i32 {
        drop(self.child.stdin.take());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `cowork-linux run -q [flags] --mount W -- program`, not started yet.
pub(crate) fn run(world: &World, flags: &[&str], program: &[&str]) -> Command {
    let mut command = world.cowork();
    command
        .args(["run", "-q"])
        .args(flags)
        .arg("--mount")
        .arg(world.work());
    command.arg("--").args(program);
    command
}

pub(crate) fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(") ")
                .map(|(_, rest)| !rest.starts_with('Z'))
        })
        .unwrap_or(false)
}
