//! The contestants: the bare program, cowork-linux with everything on, and bwrap with the same mounts.

use crate::measure::{Answer, Contestant};
use crate::translate;
use std::env;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A program to start, as it is called outside and inside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload(&'static [&'static str]);

impl Payload {
    pub(crate) const STATIC: Self = Self(&["/bin/busybox", "true"]);
    pub(crate) const DYNAMIC: Self = Self(&["/usr/bin/true"]);
    /// Gives back what it reads, and so ends with its input.
    pub(crate) const ECHO: Self = Self(&["/bin/busybox", "cat"]);
    pub(crate) const COUNT_MOUNTS: Self =
        Self(&["/bin/busybox", "wc", "-l", "/proc/self/mountinfo"]);

    fn words(self) -> impl Iterator<Item = String> {
        self.0.iter().map(ToString::to_string)
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join(" "))
    }
}

/// Where the tools are, and a scratch directory with folders to mount.
#[derive(Debug)]
pub(crate) struct Boxes {
    cowork: String,
    /// Name and path; the last one is the base of the ratios.
    bwraps: Vec<(String, String)>,
    pub(crate) scratch: TempDir,
}

impl Boxes {
    pub(crate) fn find() -> Answer<Self> {
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/.build/cowork-linux");
        let cowork = env::var("COWORK_BIN").unwrap_or_else(|_| built.to_owned());
        let mut bwraps = Vec::new();
        for path in [Some("bwrap".to_owned()), env::var("BENCH_BWRAP").ok()]
            .into_iter()
            .flatten()
        {
            let version = Command::new(&path).arg("--version").output();
            let version = version.map_err(|error| format!("{path} does not start: {error}"))?;
            let version = String::from_utf8_lossy(&version.stdout)
                .trim()
                .replace("bubblewrap", "bwrap");
            bwraps.push((version, path));
        }
        let boxes = Self {
            cowork,
            bwraps,
            scratch: TempDir::with_prefix("cowork-bench.")?,
        };
        DirBuilder::new().mode(0o700).create(boxes.state())?;
        boxes.check_that_ours_starts()?;
        Ok(boxes)
    }

    /// Or the fastest launcher would be one that does nothing.
    fn check_that_ours_starts(&self) -> Answer<()> {
        let mut ours = self.ours(Payload(&["/bin/busybox", "echo", "started"]), 1)?;
        match ours.output()?.trim() {
            "started" => Ok(()),
            other => Err(format!("{} ran nothing: it printed {other:?}", self.cowork).into()),
        }
    }

    pub(crate) fn base_name(&self) -> &str {
        self.bwraps.last().map_or("none", |(name, _)| name)
    }

    pub(crate) fn bare(&self, payload: Payload) -> Contestant {
        Contestant {
            name: "none (bare exec)".into(),
            argv: payload.words().collect(),
            files: Vec::new(),
            state: self.state(),
        }
    }

    /// Ours first, the base last.
    pub(crate) fn all(&self, payload: Payload, folders: usize) -> Answer<Vec<Contestant>> {
        let mut all = vec![self.ours(payload, folders)?];
        for (name, path) in &self.bwraps {
            all.push(self.bwrap(name, path, payload, folders)?);
        }
        Ok(all)
    }

    pub(crate) fn ours_and_base(
        &self,
        payload: Payload,
        folders: usize,
    ) -> Answer<[Contestant; 2]> {
        let (name, path) = self
            .bwraps
            .last()
            .ok_or("there is no bwrap to compare with")?;
        Ok([
            self.ours(payload, folders)?,
            self.bwrap(name, path, payload, folders)?,
        ])
    }

    fn ours(&self, payload: Payload, folders: usize) -> Answer<Contestant> {
        let argv = self.our_words(&["-q"], payload, folders)?;
        Ok(Contestant {
            name: "cowork-linux".into(),
            argv,
            files: Vec::new(),
            state: self.state(),
        })
    }

    fn our_words(&self, flags: &[&str], payload: Payload, folders: usize) -> Answer<Vec<String>> {
        let mut words = vec![self.cowork.clone(), "run".into()];
        words.extend(flags.iter().map(ToString::to_string));
        for folder in self.folders(folders)? {
            words.extend(["--mount".into(), folder.to_string_lossy().into_owned()]);
        }
        words.push("--".into());
        words.extend(payload.words());
        Ok(words)
    }

    /// No seccomp, no Landlock, no limits: only namespaces and the mounts of our own plan.
    fn bwrap(
        &self,
        name: &str,
        path: &str,
        payload: Payload,
        folders: usize,
    ) -> Answer<Contestant> {
        let argv = self.our_words(&["--dry-run", "--json"], payload, folders)?;
        let mut dry_run = Contestant {
            name: "cowork-linux --dry-run".into(),
            argv,
            files: Vec::new(),
            state: self.state(),
        };
        let plan = dry_run.output()?;
        let mounts = translate::mounts(&plan, &self.folders(folders)?, self.scratch.path())?;
        let mut argv = vec![path.to_owned(), "--unshare-all".into()];
        argv.extend(mounts.arguments);
        argv.push("--".into());
        argv.extend(payload.words());
        Ok(Contestant {
            name: name.to_owned(),
            argv,
            files: mounts.files,
            state: self.state(),
        })
    }

    fn state(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    /// Folders to mount, made when first asked for.
    fn folders(&self, count: usize) -> Answer<Vec<PathBuf>> {
        let all = self.scratch.path().join("folders");
        let folders: Vec<_> = (0..count)
            .map(|number| all.join(format!("f{number}")))
            .collect();
        for folder in &folders {
            fs::create_dir_all(folder)?;
        }
        Ok(folders)
    }
}
