//! Where this machine's package managers get their packages from, so that a box can be let there:
//! a company's mirror if there is one, what the tools come with if not. No host is known here: the
//! tools' own files say theirs.
//!
//! Only the user's and the system's own configuration is read. A project's `.npmrc` or
//! `.cargo/config.toml` came with somebody's repository and has no say in what may be reached.

mod apt;
mod cargo;
mod go;
mod npm;
mod pip;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::plan::Registries;
use crate::policy::egress::{Class, Host, HostPattern, Ports, Rule, Target, classify};

const LARGEST: u64 = 256 << 10;
/// More than any machine has; a file made to be long changes nothing.
const MOST_RULES: usize = 256;
const MOST_NOTES: usize = 16;

/// Asks every package manager's configuration.
pub(super) fn registries(env: &[(OsString, OsString)]) -> Registries {
    look(env, Path::new("/"))
}

fn look(env: &[(OsString, OsString)], root: &Path) -> Registries {
    let mut search = Search {
        env,
        root,
        found: Registries::default(),
    };
    npm::look(&mut search);
    pip::look(&mut search);
    cargo::look(&mut search);
    go::look(&mut search);
    apt::look(&mut search);
    search.found
}

struct Search<'a> {
    env: &'a [(OsString, OsString)],
    /// The whole system's files are below it.
    root: &'a Path,
    found: Registries,
}

impl Search<'_> {
    /// A variable that is set, not empty, and text.
    fn variable(&self, name: &str) -> Option<String> {
        let (_, value) = self.env.iter().find(|(n, _)| n == OsStr::new(name))?;
        value
            .to_str()
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    }

    /// A folder that a variable names, if it is a whole path.
    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    fn home(&self) -> Option<PathBuf> {
        self.folder("HOME")
    }

    fn config_home(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME")
            .or_else(|| self.home().map(|home| home.join(".config")))
    }

    fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn note(&mut self, text: String) {
        if self.found.notes.len() < MOST_NOTES && !self.found.notes.contains(&text) {
            self.found.notes.push(text);
        }
    }

    /// The text of a configuration file; what is odd about it is noted, and it is left out.
    fn text(&mut self, path: &Path) -> Option<String> {
        match read(path) {
            Ok(text) => text,
            Err(why) => {
                let path = path.display();
                self.note(format!("registries: {path} was not read: {why}"));
                None
            }
        }
    }

    /// Lets the box reach the host of an address that a configuration names. Whatever else is in
    /// it, such as a password, is not looked at.
    fn add(&mut self, tool: &str, url: &str, from: &str) {
        match place(url) {
            Place::Elsewhere => {}
            Place::At(pattern) => {
                let said = format!("bundle registries: {tool}, {from}");
                self.rule(Rule {
                    private: true,
                    ..Rule::new(pattern, said)
                });
            }
            Place::Here(port) => self.note(format!(
                "registries: {tool} of this machine uses a registry of its own at port {port} \
                 ({from}); --host-port {port} lets the box reach it"
            )),
            Place::Odd => self.note(format!(
                "registries: {tool} names a registry that is no host to allow ({from})"
            )),
        }
    }

    /// What a tool does when nobody has told it anything is in files of its own: those of the first
    /// one that names hosts count.
    fn usual(&mut self, tool: &str, files: &[PathBuf], hosts: fn(&str) -> Vec<String>) {
        for file in files {
            let found = self.text(file).map(|text| hosts(&text));
            let found = found.unwrap_or_default();
            for host in &found {
                self.usual_host(tool, host);
            }
            if !found.is_empty() {
                return;
            }
        }
        self.note(format!(
            "registries: nothing here says where {tool} gets packages from; --allow-host HOST \
             lets the box reach it"
        ));
    }

    fn usual_host(&mut self, tool: &str, host: &str) {
        if let Ok(pattern) = HostPattern::parse(&format!("{host}:443")) {
            let said = format!("bundle registries: {tool}, as it comes");
            self.rule(Rule::new(pattern, said));
        }
    }

    fn rule(&mut self, rule: Rule) {
        let rules = &mut self.found.rules;
        if rules.iter().any(|known| known.pattern == rule.pattern) {
            return;
        }
        if rules.len() < MOST_RULES {
            rules.push(rule);
        } else {
            self.note(format!(
                "registries: only the first {MOST_RULES} are allowed"
            ));
        }
    }
}

/// The hosts that follow this mark in a text, each once.
fn hosts_after(text: &str, mark: &str) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for (at, _) in text.match_indices(mark) {
        let rest = &text[at + mark.len()..];
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        let host = rest.split(|c| !is_part(c)).next().unwrap_or_default();
        if host.contains('.') && !hosts.iter().any(|known| known == host) {
            hosts.push(host.to_owned());
        }
    }
    hosts
}

enum Place {
    At(HostPattern),
    /// This machine's loopback.
    Here(u16),
    /// A file, or another thing that takes no network.
    Elsewhere,
    /// An address that could not be meant, or no address at all.
    Odd,
}

/// Which host an address leads to, and at which port.
fn place(url: &str) -> Place {
    let url = url.trim();
    let url = ["sparse+", "git+", "registry+", "mirror+", "tor+"]
        .into_iter()
        .fold(url, |url, prefix| url.strip_prefix(prefix).unwrap_or(url));
    let Some((scheme, rest)) = url.split_once("://") else {
        return Place::Elsewhere;
    };
    let usual = match scheme.to_ascii_lowercase().as_str() {
        "https" => 443,
        "http" | "mirror" => 80,
        "ssh" => 22,
        _ => return Place::Elsewhere,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest[..end].rsplit('@').next().unwrap_or_default();
    let after_brackets = authority.find(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[after_brackets..].split_once(':') {
        Some((host, "")) => (&authority[..after_brackets + host.len()], Some(usual)),
        Some((host, port)) => (&authority[..after_brackets + host.len()], port.parse().ok()),
        None => (authority, Some(usual)),
    };
    let (Ok(host), Some(port)) = (Host::parse(host), port.filter(|port| *port != 0)) else {
        return Place::Odd;
    };
    let target = match host {
        Host::Name(name) if name.is_localhost() => return Place::Here(port),
        Host::Name(name) => Target::Exact(name),
        Host::Address(address) => match classify(address) {
            Class::Loopback => return Place::Here(port),
            Class::Public | Class::Private | Class::Shared => Target::Net(address.into()),
            _ => return Place::Odd,
        },
    };
    Place::At(HostPattern {
        target,
        ports: Ports::one(port),
    })
}

/// The content of a regular file of sensible size; never waits. None if there is no such file.
fn read(path: &Path) -> Result<Option<String>, String> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e.kind().to_string()),
    };
    let kind = file.metadata().map_err(|e| e.kind().to_string())?;
    if !kind.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| e.kind().to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err("it is larger than 256 KiB".to_owned());
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| "it is not UTF-8 text".to_owned())
}

/// `key = value` lines as most of these files have them; a line that begins with a space goes on
/// with the value before it.
fn settings(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';', '[']) {
            continue;
        }
        if line.starts_with([' ', '\t'])
            && !trimmed.contains('=')
            && let Some((_, value)) = found.last_mut()
        {
            value.push(' ');
            value.push_str(trimmed);
            continue;
        }
        if let Some((key, value)) = trimmed.split_once('=') {
            let value = value.trim().trim_matches(['"', '\'']);
            found.push((key.trim().to_owned(), value.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests;
