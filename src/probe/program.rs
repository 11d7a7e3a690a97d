//! Finds the program named on the command line and what it needs to run, when it lives outside
//! the system's directories: a home, /opt, /nix. Shown read-only, at the same path as outside.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use super::source::{holds_keys, seen};
use crate::plan::Needed;
use crate::policy::Access;

const SYSTEM: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
];
const ON_PATH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];
/// Installations below a home that stand or fall as a whole; `*` is one folder.
const TOOLCHAINS: [&str; 24] = [
    ".nvm/versions/node/*",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".volta",
    ".bun",
    ".deno",
    ".rustup",
    ".linuxbrew",
    "miniconda3",
    "anaconda3",
    ".npm-global",
    ".cargo/bin",
    "go/bin",
    ".sdkman/candidates/*/*",
    ".local/share/claude",
    ".local/share/mise/installs/*/*",
    ".local/share/fnm/node-versions/*",
    ".local/share/pnpm",
    ".local/share/uv/python/*",
    ".local/share/uv/tools/*",
    ".local/share/pipx/venvs/*",
    ".local/pipx/venvs/*",
    ".local/lib/node_modules",
];
const MOST_HOPS: usize = 16;

/// What a program needs besides the system.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ProgramNeeds {
    pub visible: Vec<Needed>,
    /// Folders that belong on PATH, first ones first.
    pub path: Vec<PathBuf>,
    /// Variables without which it would look in the wrong home.
    pub env: Vec<(OsString, OsString)>,
}

/// Looks for `name` as the caller's shell would and collects what it needs. A program that is
/// not found may still exist inside, so that is no error here.
pub fn needed_by(name: &OsStr, search: &OsStr, home: Option<&Path>) -> ProgramNeeds {
    let mut needs = ProgramNeeds::default();
    collect(name, search, home, &mut needs, 0);
    needs
}

fn collect(name: &OsStr, search: &OsStr, home: Option<&Path>, needs: &mut ProgramNeeds, depth: u8) {
    let Some(found) = find(name, search).filter(|_| depth < 5) else {
        return;
    };
    let Some(folder) = found.parent() else { return };
    let by_name = !name.as_bytes().contains(&b'/');
    if by_name && !ON_PATH.iter().any(|known| folder == Path::new(known)) {
        add_once(&mut needs.path, folder.to_owned());
    }
    let file = follow(found, home, needs);
    if let Some(home) = home {
        homes(&file, home, needs);
    }
    for interpreter in interpreters(&file) {
        collect(&interpreter, search, home, needs, depth + 1);
    }
}

/// The first executable file of that name, with the links in its folder's path resolved.
fn find(name: &OsStr, search: &OsStr) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let found = match name.as_bytes().contains(&b'/') {
        true => Some(PathBuf::from(name))
            .filter(|path| path.is_absolute())
            .filter(runs),
        false => std::env::split_paths(search)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(runs),
    }?;
    let folder = fs::canonicalize(found.parent()?).ok()?;
    Some(folder.join(found.file_name()?))
}

/// Walks from link to link to the file itself; each link outside the system is made visible.
fn follow(start: PathBuf, home: Option<&Path>, needs: &mut ProgramNeeds) -> PathBuf {
    let mut at = start;
    for _ in 0..MOST_HOPS {
        let Ok(to) = fs::read_link(&at) else { break };
        show(&at, Some(&to), home, needs);
        let Some(folder) = at.parent() else { break };
        let next = folder.join(to);
        let resolved = next.parent().and_then(|dir| fs::canonicalize(dir).ok());
        match (resolved, next.file_name()) {
            (Some(dir), Some(name)) => at = dir.join(name),
            _ => break,
        }
    }
    show(&at, None, home, needs);
    at
}

fn show(path: &Path, link: Option<&Path>, home: Option<&Path>, needs: &mut ProgramNeeds) {
    if SYSTEM.iter().any(|known| path.starts_with(known)) {
        return;
    }
    // A script names its interpreter; a hostile one names a key that happens to be executable.
    if home.is_some_and(|home| holds_keys(path, home)) {
        return;
    }
    let root = installation(path, home).unwrap_or_else(|| path.to_owned());
    if needs
        .visible
        .iter()
        .any(|known| root.starts_with(&known.path))
    {
        return;
    }
    if root == path
        && let Some(to) = link
    {
        needs.visible.push(Needed {
            why: format!("it leads to the program: {}", to.display()),
            link_to: Some(to.to_owned()),
            ..needed(&root, None)
        });
        return;
    }
    let Ok(metadata) = fs::metadata(&root) else {
        return;
    };
    needs.visible.retain(|known| !known.path.starts_with(&root));
    needs.visible.push(needed(&root, Some(&metadata)));
}

fn needed(path: &Path, metadata: Option<&fs::Metadata>) -> Needed {
    Needed {
        path: path.to_owned(),
        seen: metadata.map(seen).unwrap_or_default(),
        is_folder: metadata.is_some_and(fs::Metadata::is_dir),
        why: "the program lives there".to_owned(),
        link_to: None,
        access: Access::Read,
    }
}

/// The folder a program was installed into, when it needs more than its own file.
fn installation(file: &Path, home: Option<&Path>) -> Option<PathBuf> {
    if file.starts_with("/nix/store") {
        return Some(PathBuf::from("/nix/store"));
    }
    if file.starts_with("/opt") {
        return Some(file.components().take(3).collect()).filter(|root| root != file);
    }
    if let Some(root) = home.and_then(|home| toolchain(file, home)) {
        return Some(root);
    }
    if let Some(root) = file
        .ancestors()
        .skip(1)
        .find(|up| up.join("pyvenv.cfg").is_file())
    {
        return Some(root.to_owned());
    }
    let parts: Vec<Component<'_>> = file.components().collect();
    if let Some(at) = parts
        .iter()
        .position(|part| part.as_os_str() == "node_modules")
    {
        return Some(parts[..=at].iter().collect());
    }
    let prefix = file.parent().filter(|dir| dir.ends_with("bin"))?.parent()?;
    let too_wide = prefix == Path::new("/")
        || home.is_some_and(|home| home.starts_with(prefix) || prefix == home.join(".local"));
    let whole = ["lib", "lib64", "libexec", "share"]
        .iter()
        .any(|n| prefix.join(n).is_dir());
    (whole && !too_wide).then(|| prefix.to_owned())
}

fn toolchain(file: &Path, home: &Path) -> Option<PathBuf> {
    let below = file.strip_prefix(home).ok()?;
    TOOLCHAINS.iter().find_map(|pattern| {
        let wanted = Path::new(pattern);
        let length = wanted.components().count();
        let fits = below.components().count() > length
            && wanted
                .components()
                .zip(below.components())
                .all(|(want, have)| want.as_os_str() == "*" || want == have);
        fits.then(|| home.join(below.components().take(length).collect::<PathBuf>()))
    })
}

/// Tools that look for the rest of themselves below the home have to be told the old one.
fn homes(file: &Path, home: &Path, needs: &mut ProgramNeeds) {
    let mut tell = |name: &str, value: PathBuf| {
        add_once(&mut needs.env, (name.into(), value.into_os_string()));
    };
    let rustup = home.join(".rustup");
    if file.starts_with(home.join(".cargo/bin")) && rustup.is_dir() {
        tell("RUSTUP_HOME", rustup.clone());
        show(&rustup.join("settings.toml"), None, Some(home), needs);
    } else if file.starts_with(home.join(".pyenv")) {
        tell("PYENV_ROOT", home.join(".pyenv"));
    } else if file.starts_with(home.join(".volta")) {
        tell("VOLTA_HOME", home.join(".volta"));
    }
}

/// The programs named in the first line of a script.
fn interpreters(file: &Path) -> Vec<OsString> {
    let mut head = [0u8; 256];
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let read = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(file);
    let Ok(length) = read.and_then(|mut file| file.read(&mut head)) else {
        return Vec::new();
    };
    let Some(line) = head[..length].strip_prefix(b"#!") else {
        return Vec::new();
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(|b| b.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return Vec::new();
    };
    let mut found = vec![OsStr::from_bytes(first).to_owned()];
    if Path::new(OsStr::from_bytes(first)).ends_with("env") {
        let is_name = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
        found.extend(
            words
                .find(is_name)
                .map(|word| OsStr::from_bytes(word).to_owned()),
        );
    }
    found
}

fn add_once<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(dir: &Path, name: &str, content: &str) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_node_program_brings_its_own_version_of_node() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        let node = home.join(".nvm/versions/node/v20");
        program(&node, "bin/node", "\x7fELF");
        program(
            &node,
            "lib/node_modules/agent/cli.js",
            "#!/usr/bin/env node\n",
        );
        std::os::unix::fs::symlink("../lib/node_modules/agent/cli.js", node.join("bin/agent"))
            .unwrap();
        let search = node.join("bin");
        let needs = needed_by(OsStr::new("agent"), search.as_os_str(), Some(&home));
        let shown: Vec<_> = needs.visible.iter().map(|n| n.path.clone()).collect();
        assert_eq!(shown, [node]);
        assert_eq!(needs.path, [search]);
    }

    #[test]
    fn a_lone_program_in_a_private_bin_shows_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(home.join(".local/share")).unwrap();
        let file = program(&home, ".local/bin/tool", "#!/bin/sh\n");
        program(&home, ".local/bin/other-with-token", "secret");
        let search = home.join(".local/bin");
        let needs = needed_by(OsStr::new("tool"), search.as_os_str(), Some(&home));
        let shown: Vec<_> = needs.visible.iter().map(|n| n.path.clone()).collect();
        assert_eq!(shown, [file]);
    }

    #[test]
    fn system_programs_need_nothing() {
        let needs = needed_by(OsStr::new("sh"), OsStr::new("/usr/bin:/bin"), None);
        assert_eq!(needs, ProgramNeeds::default());
    }
}
