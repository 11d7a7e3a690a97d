//! Secrets that stay outside. The box holds a stand-in that is worth nothing; the value is put in
//! its place here, on requests to the one host it is for, in headers and nowhere else.
//!
//! What a host sends back in its headers is looked through, so that a host that repeats a header
//! does not tell the box. Bodies are not: a host that repeats its requests' headers in an answer's
//! body must not be given a secret.

mod basic;
mod errors;
mod value;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use crate::policy::egress::{Host, Name, SecretSource, SecretSpec};

pub use errors::SecretError;
use value::Value;

/// What every stand-in starts with, so that it is known for one wherever it turns up.
pub const STAND_IN: &str = "cowork-secret-";
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Shorter values could be part of anything, and are not looked for in what comes back.
const SHORTEST_HIDDEN: usize = 8;

/// What the box holds in the secrets' place. A secret that is for several hosts has one, because
/// it is one variable in the box.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandIns(BTreeMap<String, String>);

impl StandIns {
    pub fn new(specs: &[SecretSpec]) -> Result<Self, SecretError> {
        let mut all = BTreeMap::new();
        for spec in specs {
            all.insert(spec.name.clone(), random()?);
        }
        Ok(Self(all))
    }

    /// The variables of the box, and what they hold there.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.0.iter();
        all.map(|(name, stand_in)| (name.as_str(), stand_in.as_str()))
    }
}

/// One secret and the host that it is for.
#[derive(Debug)]
struct Secret {
    name: String,
    host: Name,
    header: Option<HeaderName>,
    /// It may be renewed while the session runs.
    value: RefCell<Value>,
    stand_in: String,
}

/// All secrets of a session.
#[derive(Debug, Default)]
pub struct Secrets(Vec<Secret>);

impl Secret {
    fn take(
        spec: &SecretSpec,
        stand_in: &str,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SecretError> {
        let name = || spec.name.clone();
        let bytes = match &spec.from {
            SecretSource::Said(value) => value.clone().into_bytes(),
            SecretSource::Variable(from) => {
                let found = variable(from).ok_or_else(|| SecretError::NotSet {
                    name: name(),
                    variable: from.clone(),
                    host: spec.host.to_string(),
                })?;
                std::os::unix::ffi::OsStringExt::into_vec(found)
            }
            SecretSource::File(path) => {
                value::read(path).map_err(|source| SecretError::Unreadable {
                    name: name(),
                    path: path.clone(),
                    source,
                })?
            }
        };
        let value = Value::new(bytes).map_err(|why| SecretError::Unfit { name: name(), why })?;
        let header = spec.header.as_deref().map(|header| {
            HeaderName::from_bytes(header.as_bytes()).map_err(|_| SecretError::Header {
                name: name(),
                header: header.to_owned(),
            })
        });
        Ok(Self {
            name: spec.name.clone(),
            host: spec.host.clone(),
            header: header.transpose()?,
            value: RefCell::new(value),
            stand_in: stand_in.to_owned(),
        })
    }

    fn is_in(&self, value: &HeaderValue) -> bool {
        position(value.as_bytes(), self.stand_in.as_bytes()).is_some()
            || basic::decoded(value)
                .is_some_and(|text| position(&text, self.stand_in.as_bytes()).is_some())
    }

    /// The header's value with the secret in the stand-in's place, if the stand-in is there.
    fn put_into(&self, value: &HeaderValue) -> Option<HeaderValue> {
        let value_now = self.value.borrow();
        let (stand_in, secret) = (self.stand_in.as_bytes(), value_now.bytes());
        let plain = replaced(value.as_bytes(), stand_in, secret);
        let bytes = plain.or_else(|| {
            let text = basic::decoded(value)?;
            Some(basic::encoded(&replaced(&text, stand_in, secret)?))
        })?;
        sensitive(&bytes)
    }

    /// Sees to it that this header holds the secret and nothing else.
    fn set(&self, headers: &mut HeaderMap, name: &HeaderName) {
        let around = headers
            .get_all(name)
            .iter()
            .find_map(|value| self.put_into(value));
        let value = around.or_else(|| {
            let value = self.value.borrow();
            let bytes = value.bytes();
            let is_bare = !bytes.contains(&b' ');
            match *name == AUTHORIZATION && is_bare {
                true => sensitive(&[b"Bearer ", bytes].concat()),
                false => sensitive(bytes),
            }
        });
        headers.remove(name);
        headers.extend(value.map(|value| (name.clone(), value)));
    }

    /// Which header the secrets go into that Claude knows by name.
    fn claude_header(&self) -> Option<HeaderName> {
        match (&self.header, self.name.as_str()) {
            (Some(header), _) => Some(header.clone()),
            (None, "ANTHROPIC_API_KEY") => Some(X_API_KEY),
            (None, "ANTHROPIC_AUTH_TOKEN" | "CLAUDE_CODE_OAUTH_TOKEN") => Some(AUTHORIZATION),
            (None, _) => None,
        }
    }

    /// Puts the secret wherever the stand-in is.
    fn replace(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if let Some(new) = self.put_into(value) {
                *value = new;
            }
        }
    }
}

impl Secrets {
    /// Takes the values from where they are said to be; `variable` is the caller's environment.
    ///
    /// A box is born as a copy of its launcher: its first process looks for the values in its own
    /// memory and overwrites them before anything else.
    pub fn take(
        specs: &[SecretSpec],
        stand_ins: &StandIns,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SecretError> {
        let mut all = Vec::with_capacity(specs.len());
        for spec in specs {
            if let Some(stand_in) = stand_ins.0.get(&spec.name) {
                all.push(Secret::take(spec, stand_in, &variable)?);
            }
        }
        Ok(Self(all))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Vec<u8>> {
        let all = self.0.iter();
        all.map(|secret| secret.value.borrow().bytes().to_vec())
    }

    /// Another value from now on, for every host that it is for; what stands for it in the box stays.
    pub(super) fn renew(&self, name: &str, value: &str) -> Result<(), String> {
        let mut is_known = false;
        for secret in self.0.iter().filter(|secret| secret.name == name) {
            let new = Value::new(value.as_bytes().to_vec())
                .map_err(|why| format!("the secret {name} cannot be used: {why}"))?;
            secret.value.replace(new);
            is_known = true;
        }
        match is_known {
            true => Ok(()),
            false => Err(format!("it was started without a secret {name}")),
        }
    }

    fn of<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a Secret> {
        self.0
            .iter()
            .filter(move |secret| matches!(host, Host::Name(name) if *name == secret.host))
    }

    /// Whether a request to this host would be given one.
    pub(super) fn has_for(&self, host: &Host) -> bool {
        self.of(host).next().is_some()
    }

    /// Puts this host's secrets into a request to it.
    pub(super) fn add(&self, host: &Host, headers: &mut HeaderMap) {
        for secret in self.of(host) {
            match &secret.header {
                Some(name) => secret.set(headers, name),
                None => secret.replace(headers),
            }
        }
    }

    /// The same for Claude's door: there the key is always sent, and no other than the user's.
    pub(super) fn add_for_claude(&self, host: &Host, headers: &mut HeaderMap) {
        for name in [X_API_KEY, AUTHORIZATION] {
            let mut values = headers.get_all(&name).iter();
            let is_ours = values.any(|value| self.of(host).any(|secret| secret.is_in(value)));
            if !is_ours {
                headers.remove(&name);
            }
        }
        for secret in self.of(host) {
            match secret.claude_header() {
                Some(name) => secret.set(headers, &name),
                None => secret.replace(headers),
            }
        }
    }

    /// Takes the values out of what the host sent back.
    pub(super) fn hide(&self, host: &Host, headers: &mut HeaderMap) {
        for secret in self.of(host) {
            let value = secret.value.borrow();
            let value = value.bytes();
            if value.len() < SHORTEST_HIDDEN {
                continue;
            }
            for header in headers.values_mut() {
                let hidden = replaced(header.as_bytes(), value, secret.stand_in.as_bytes());
                if let Some(new) = hidden.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok()) {
                    *header = new;
                }
            }
        }
    }
}

fn sensitive(bytes: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A value that nobody can guess and everybody can tell from a real one.
fn random() -> Result<String, SecretError> {
    let mut random = [0; 16];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut random)
        .map_err(|_| SecretError::NoRandomness)?;
    let mut text = STAND_IN.to_owned();
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The bytes with every occurrence of one part replaced, if there is any.
fn replaced(bytes: &[u8], part: &[u8], by: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes;
    let mut made = Vec::new();
    while let Some(at) = position(rest, part) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(by);
        rest = &rest[at + part.len()..];
    }
    (rest.len() < bytes.len()).then(|| {
        made.extend_from_slice(rest);
        made
    })
}

#[cfg(test)]
mod tests;
