//! Values that are added outside, on the way to one host, and that no program inside ever sees.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::host::{Host, Name, shown};
use crate::policy::EnvName;

/// Where a secret's value comes from; the value itself is nowhere in a policy file or a plan that
/// is printed.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Said on the command line.
    Said(String),
    Variable(String),
    File(PathBuf),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The source as it is written; a value that was said stays unsaid.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Said(_) => f.write_str("..."),
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl Serialize for SecretSource {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// `--secret NAME[=VALUE|env:VAR|file:PATH]@HOST[:HEADER]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretSpec {
    /// The variable that holds a stand-in inside.
    pub name: String,
    pub from: SecretSource,
    pub host: Name,
    /// Set on every request; without one the stand-in is replaced wherever a header holds it.
    pub header: Option<String>,
}

const FORM: &str = "write NAME[=env:VARIABLE|=file:PATH]@HOST[:HEADER]";

impl SecretSpec {
    /// What a header can carry, with room to spare for the longest of tokens.
    pub const LONGEST_VALUE: usize = 8 << 10;

    pub fn parse(text: &str) -> Result<Self, String> {
        // No piece of the text is repeated that could be the secret.
        let (before, after) = text
            .rsplit_once('@')
            .ok_or_else(|| format!("a secret needs the host it is for; {FORM}"))?;
        let (name, source) = match before.split_once('=') {
            Some((name, source)) => (name, Some(source)),
            None => (before, None),
        };
        let name = EnvName::parse(name)
            .map_err(|_| format!("a secret's name is the name of a variable; {FORM}"))?;
        let name = String::from(name);
        let because = |why: String| format!("the secret {name} cannot be used: {why}");
        let (host, header) = match after.split_once(':') {
            Some((host, header)) => (host, Some(header)),
            None => (after, None),
        };
        let host = match Host::parse(host) {
            Ok(Host::Name(host)) => host,
            Ok(Host::Address(_)) => {
                return Err(because(
                    "it is for a host with a name, not for an address".into(),
                ));
            }
            Err(bad) => return Err(because(format!("the host after `@`: {}", bad.why))),
        };
        Ok(Self {
            from: origin(&name, source).map_err(because)?,
            header: header.map(self::header).transpose().map_err(because)?,
            name,
            host,
        })
    }

    /// Whether this may stand in a file: only where the value is, never the value.
    /// Whether Claude logs in with it.
    pub fn is_claudes(&self) -> bool {
        let names = [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ];
        names.contains(&self.name.as_str())
    }

    pub fn is_fit_for_files(&self) -> bool {
        !matches!(self.from, SecretSource::Said(_))
    }

    /// Whether a value can be sent in a header at all.
    pub fn check_value(value: &str) -> Result<(), &'static str> {
        match value {
            "" => Err("its value is empty"),
            value if value.len() > Self::LONGEST_VALUE => Err("its value is longer than 8K"),
            value if value.trim() != value => Err("its value has spaces around it"),
            value if value.chars().all(|c| c.is_ascii_graphic() || c == ' ') => Ok(()),
            _ => Err("its value has letters in it that no header can carry"),
        }
    }
}

fn origin(name: &str, source: Option<&str>) -> Result<SecretSource, String> {
    let Some(source) = source else {
        return Ok(SecretSource::Variable(name.to_owned()));
    };
    if let Some(variable) = source.strip_prefix("env:") {
        return EnvName::parse(variable)
            .map(|name| SecretSource::Variable(name.into()))
            .map_err(|_| "after `env:` comes the name of a variable".to_owned());
    }
    match source.strip_prefix("file:") {
        Some("") => Err("after `file:` comes a path".to_owned()),
        Some(path) if path.contains('\0') => Err("its path contains a NUL byte".to_owned()),
        Some(path) => Ok(SecretSource::File(Path::new(path).to_owned())),
        None => SecretSpec::check_value(source)
            .map(|()| SecretSource::Said(source.to_owned()))
            .map_err(str::to_owned),
    }
}

/// Headers that say where a request goes and how long it is; a secret in one of them would be a
/// way to be misunderstood.
const NEVER: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "keep-alive",
    "expect",
    "content-type",
];

fn header(text: &str) -> Result<String, String> {
    let token = matches!(text.len(), 1..=64)
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if token && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err("after the host comes the name of a header, not a port".to_owned());
    }
    if !token {
        return Err(format!("`{}` is no name of a header", shown(text)));
    }
    let lower = text.to_ascii_lowercase();
    if NEVER.contains(&lower.as_str()) || lower.starts_with("proxy-") {
        return Err(format!("the header `{text}` cannot carry a secret"));
    }
    Ok(text.to_owned())
}

impl fmt::Display for SecretSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}@{}", self.name, self.from, self.host)?;
        match &self.header {
            Some(header) => write!(f, ":{header}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_read_from_three_places() {
        let spec = SecretSpec::parse("ANTHROPIC_API_KEY@API.anthropic.com:x-api-key").unwrap();
        assert_eq!(spec.name, "ANTHROPIC_API_KEY");
        assert_eq!(
            spec.from,
            SecretSource::Variable("ANTHROPIC_API_KEY".into())
        );
        assert_eq!(spec.host.as_str(), "api.anthropic.com");
        assert_eq!(spec.header.as_deref(), Some("x-api-key"));
        let from = |text: &str| SecretSpec::parse(text).unwrap().from;
        assert_eq!(
            from("A=env:B_C@a.example"),
            SecretSource::Variable("B_C".into())
        );
        assert_eq!(
            from("A=file:/a@b@a.example"),
            SecretSource::File("/a@b".into())
        );
        assert_eq!(
            from("A=p@ss=word@a.example"),
            SecretSource::Said("p@ss=word".into())
        );
        assert_eq!(
            from("A=Bearer x@a.example:Authorization"),
            SecretSource::Said("Bearer x".into())
        );
    }

    #[test]
    fn a_value_is_repeated_nowhere() {
        let spec = SecretSpec::parse("A=hunter2@a.example").unwrap();
        let json = serde_json::to_string(&spec).unwrap();
        for shown in [spec.to_string(), format!("{spec:?}"), json] {
            assert!(
                !shown.contains("hunter2") && shown.contains("..."),
                "{shown}"
            );
        }
        assert!(!spec.is_fit_for_files());
        assert!(
            SecretSpec::parse("A=env:B@a.example")
                .unwrap()
                .is_fit_for_files()
        );
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        let long = format!("A={}@a.example", "x".repeat(9 << 10));
        let cases = [
            ("hunter2", "host"),
            ("A=hunter2", "host"),
            ("hunter 2@a.example", "variable"),
            ("=hunter2@a.example", "variable"),
            ("1A=hunter2@a.example", "variable"),
            ("A=hunter2@", "empty"),
            ("A=hunter2@1.2.3.4", "address"),
            ("A=hunter2@*.a.example", "pattern"),
            ("A=hunter2@a.example:443", "port"),
            ("A=hunter2@a.example:", "header"),
            ("A=hunter2@a.example:x y", "header"),
            ("A=hunter2@a.example:Host", "cannot carry"),
            ("A=hunter2@a.example:Proxy-Authorization", "cannot carry"),
            ("A=@a.example", "empty"),
            ("A=hunter2\r\nx: y@a.example", "letters"),
            ("A= hunter2@a.example", "spaces"),
            ("A=env:@a.example", "env:"),
            ("A=env:hunter 2@a.example", "env:"),
            ("A=file:@a.example", "file:"),
            (&long, "8K"),
        ];
        for (text, word) in cases {
            let why = SecretSpec::parse(text).unwrap_err();
            assert!(
                why.contains(word) && !why.contains("hunter"),
                "{text:?}: {why}"
            );
            assert!(why.len() < 200, "{why}");
        }
    }
}
