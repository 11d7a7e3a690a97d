//! A home, a project, and the ways to ask about them.

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cowork_linux::cli::policy as command;
use cowork_linux::policy::{
    Key, Policy, PolicyError, PolicyFile, Resolved, Sources, Unfit, resolve,
};

/// A home and a project of one test.
pub(crate) struct World(tempfile::TempDir);

impl World {
    pub(crate) fn new() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        for folder in ["home/.config/cowork-linux", "work", "etc"] {
            fs::create_dir_all(world.path(folder)).unwrap();
        }
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        self.mode(name, 0o644);
        path
    }

    pub(crate) fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    pub(crate) fn user(&self, text: &str) {
        self.write("home/.config/cowork-linux/policy.toml", text);
    }

    pub(crate) fn project(&self, text: &str) -> PathBuf {
        self.write("work/.cowork.toml", text)
    }

    pub(crate) fn env(&self) -> impl Fn(&str) -> Option<OsString> + use<> {
        let home = self.path("home");
        move |name| (name == "HOME").then(|| home.clone().into_os_string())
    }

    pub(crate) fn resolve(
        &self,
        profile: Option<&str>,
        flags: PolicyFile,
    ) -> Result<Resolved, PolicyError> {
        resolve(&Sources {
            profile,
            project_dir: Some(&self.path("work")),
            flags,
            env: &self.env(),
        })
    }

    pub(crate) fn plain(&self) -> Result<Resolved, PolicyError> {
        self.resolve(None, PolicyFile::default())
    }

    pub(crate) fn named(&self, profile: &str) -> Result<Resolved, PolicyError> {
        self.resolve(Some(profile), PolicyFile::default())
    }

    pub(crate) fn policy(&self) -> Policy {
        self.plain().unwrap().policy
    }

    pub(crate) fn unfit(&self) -> Unfit {
        match self.plain() {
            Err(PolicyError::Unfit { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn trust(&self) -> Result<String, PolicyError> {
        let mut out = Vec::new();
        command::trust(&mut out, Some(&self.path("work")), &self.env())?;
        Ok(String::from_utf8(out).unwrap())
    }
}

/// An error with its causes and its remedy, as it is printed.
pub(crate) fn whole(error: &PolicyError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text += &format!("\nbecause: {one}");
        cause = one.source();
    }
    text + &error
        .help()
        .map(|help| format!("\nhelp: {help}"))
        .unwrap_or_default()
}

pub(crate) fn refusal(result: Result<Resolved, PolicyError>) -> String {
    whole(&result.unwrap_err())
}

pub(crate) fn widening(result: Result<Resolved, PolicyError>) -> Vec<Key> {
    match result {
        Err(PolicyError::Widens { keys, .. }) => keys,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn flags(text: &str) -> PolicyFile {
    PolicyFile::parse(text).unwrap()
}
