//! Users' own profiles, compiled once. An entry is named after everything it was made from, so
//! it is never out of date; one that cannot be used is made again.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Arch, Filter, FilterError, Heard, Profile, compile};

/// The profile as a filter: from `folder` if it was compiled before, else compiled and kept.
pub fn compiled(text: &str, arch: Arch, folder: &Path) -> Result<Filter, FilterError> {
    let entry = folder.join(format!("{}.bpf", key(text, arch)));
    if let Some(known) = known(&entry, arch) {
        return Ok(known);
    }
    let filter = compile(&Profile::from_json(text)?, arch)?;
    // Only speed is lost when it cannot be kept.
    let _ = keep(folder, &entry, filter.bytes());
    Ok(filter)
}

/// The same for the two filters whose refusals somebody hears of.
pub fn compiled_heard(text: &str, arch: Arch, folder: &Path) -> Result<Heard, FilterError> {
    let key = key(text, arch);
    let [of_all, of_program] =
        ["every", "program"].map(|which| folder.join(format!("{key}.{which}.bpf")));
    if let (Some(every), Some(program)) = (known(&of_all, arch), known(&of_program, arch)) {
        return Ok(Heard { every, program });
    }
    let heard = Heard::compile(&Profile::from_json(text)?, arch)?;
    let _ = keep(folder, &of_all, heard.every.bytes());
    let _ = keep(folder, &of_program, heard.program.bytes());
    Ok(heard)
}

fn known(entry: &Path, arch: Arch) -> Option<Filter> {
    Filter::from_bytes(arch, fs::read(entry).ok()?).ok()
}

fn key(text: &str, arch: Arch) -> String {
    let mut digest = Sha256::new();
    for part in [env!("CARGO_PKG_VERSION"), arch.name(), text] {
        digest.update(part.len().to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn keep(folder: &Path, entry: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let fresh = entry.with_extension(format!("new-{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&fresh, entry));
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["ptrace"], "action": "SCMP_ACT_ERRNO"}]}"#;

    #[test]
    fn a_profile_is_compiled_once_and_again_when_the_entry_is_broken() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        let first = compiled(PROFILE, Arch::X86_64, &folder).unwrap();
        let entry = fs::read_dir(&folder)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        assert_eq!(fs::read(&entry).unwrap(), first.bytes());
        fs::write(&entry, "torn").unwrap();
        assert_eq!(
            compiled(PROFILE, Arch::X86_64, &folder).unwrap().bytes(),
            first.bytes()
        );
        assert_eq!(fs::read(&entry).unwrap(), first.bytes());
        compiled(PROFILE, Arch::Aarch64, &folder).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }
}
