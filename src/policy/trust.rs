//! Which project policies the user has read and agreed to. Trust is in the content: an edit ends it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::PolicyError;
use super::expand::Environment;

#[derive(Debug)]
pub struct TrustStore {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    version: u32,
    /// Path of a policy file, and the SHA-256 of what was agreed to.
    policies: BTreeMap<String, String>,
}

impl Trusted {
    const VERSION: u32 = 1;

    fn none() -> Self {
        Self {
            version: Self::VERSION,
            policies: BTreeMap::new(),
        }
    }
}

impl TrustStore {
    /// The caller's own store; nothing is read or made yet.
    pub fn of(env: Environment<'_>) -> Result<Self, PolicyError> {
        let folder = super::xdg_folder("XDG_STATE_HOME", ".local/state", env);
        let path = folder.ok_or(PolicyError::NoState)?.join("trust.json");
        Ok(Self { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn trusts(&self, policy: &Path, content: &str) -> Result<bool, PolicyError> {
        let trusted = self.read().map_err(|e| self.failed("read", e))?;
        Ok(key(policy)
            .ok()
            .and_then(|key| trusted.policies.get(&key).cloned())
            .is_some_and(|digest| digest == hex_digest(content)))
    }

    pub fn add(&self, policy: &Path, content: &str) -> Result<(), PolicyError> {
        let key = key(policy)?;
        self.change(|list| list.insert(key, hex_digest(content)).is_some())?;
        Ok(())
    }

    /// Whether there was something to forget.
    pub fn remove(&self, policy: &Path) -> Result<bool, PolicyError> {
        let key = key(policy)?;
        self.change(|list| list.remove(&key).is_some())
    }

    fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, String>) -> bool,
    ) -> Result<bool, PolicyError> {
        let _alone = self.lock().map_err(|e| self.failed("lock", e))?;
        let mut trusted = self.read().map_err(|e| self.failed("read", e))?;
        let answer = change(&mut trusted.policies);
        self.write(&trusted).map_err(|e| self.failed("write", e))?;
        Ok(answer)
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> PolicyError {
        PolicyError::Trust {
            doing,
            path: self.path.clone(),
            source,
        }
    }

    /// Held while the list is read, changed and replaced; two commands cannot lose an entry.
    fn lock(&self) -> io::Result<Flock<fs::File>> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let file = private(OpenOptions::new().write(true).create(true).truncate(false))
            .open(self.path.with_extension("lock"))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
    }

    /// A list that is absent trusts nobody; one that cannot be read is an error.
    fn read(&self) -> io::Result<Trusted> {
        let text = match super::read::policy_text(&self.path, super::read::Links::Refuse) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Trusted::none()),
            Err(PolicyError::Read { source, .. }) => return Err(source),
            Err(PolicyError::Unfit { why, .. }) => return Err(io::Error::other(why)),
            Err(other) => return Err(io::Error::other(other)),
        };
        let trusted: Trusted = serde_json::from_str(&text)?;
        if trusted.version != Trusted::VERSION {
            return Err(io::Error::other(format!(
                "version {} is not known",
                trusted.version
            )));
        }
        Ok(trusted)
    }

    fn write(&self, trusted: &Trusted) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file =
            private(OpenOptions::new().write(true).create(true).truncate(true)).open(&new)?;
        serde_json::to_writer_pretty(&mut file, trusted)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }
}

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits())
}

/// The file's one true name. The file itself may be gone; its folder may not.
fn key(policy: &Path) -> Result<String, PolicyError> {
    let failed = |source| PolicyError::Read {
        path: policy.to_owned(),
        source,
    };
    let whole = std::path::absolute(policy).map_err(failed)?;
    let canonical = match (whole.parent(), whole.file_name()) {
        (Some(folder), Some(name)) => fs::canonicalize(folder).map_err(failed)?.join(name),
        _ => whole,
    };
    canonical
        .into_os_string()
        .into_string()
        .map_err(|name| PolicyError::NotUtf8(name.into()))
}

fn hex_digest(content: &str) -> String {
    Sha256::digest(content.as_bytes())
        .iter()
        .fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_sha_256() {
        assert_eq!(
            hex_digest("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn trust_is_in_the_content_and_can_be_taken_back() {
        let home = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: home.path().join("state/trust.json"),
        };
        let policy = home.path().join(".cowork.toml");
        assert!(!store.trusts(&policy, "a").unwrap());
        store.add(&policy, "a").unwrap();
        assert!(store.trusts(&policy, "a").unwrap());
        assert!(
            store
                .trusts(&home.path().join("./state/../.cowork.toml"), "a")
                .unwrap()
        );
        assert!(!store.trusts(&policy, "b").unwrap());
        assert!(store.remove(&policy).unwrap());
        assert!(!store.remove(&policy).unwrap());
        assert!(!store.trusts(&policy, "a").unwrap());
    }

    #[test]
    fn a_broken_list_is_not_an_empty_one() {
        let home = tempfile::tempdir().unwrap();
        let store = TrustStore {
            path: home.path().join("trust.json"),
        };
        let policy = home.path().join(".cowork.toml");
        for broken in ["", "[]", r#"{"version":2,"policies":{}}"#] {
            fs::write(&store.path, broken).unwrap();
            assert!(store.trusts(&policy, "a").is_err(), "{broken}");
            assert!(store.add(&policy, "a").is_err(), "{broken}");
        }
    }
}
