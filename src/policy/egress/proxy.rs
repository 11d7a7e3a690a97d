//! The proxy before ours, as companies have it. Its password is known to the environment alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::host::{Host, shown};
use super::parts::spoken;
use super::pattern::port;
use crate::policy::Environment;

/// `--upstream-proxy`: who dials for us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Upstream {
    Http { host: Host, port: u16 },
    Socks5 { host: Host, port: u16 },
}

/// What a policy says about it: the proxy, or to read it from the environment at launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum UpstreamChoice {
    Environment,
    At(Upstream),
}

/// For the proxy; printed nowhere, and written to no plan.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Where programs look for a proxy, the first that is set first.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

impl Upstream {
    /// Reads `http://host:port` and `socks5://host:port`; whatever else is said has no place in
    /// a flag or a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            // The text is not repeated: there may be a password in it.
            return Err(
                "a proxy's user and password have no place in flags and files; set HTTPS_PROXY to \
                 the address with both, and say `--upstream-proxy env`"
                    .to_owned(),
            );
        }
        let (upstream, _) = read(text).map_err(|why| format!("`{}` {why}", shown(text)))?;
        Ok(upstream)
    }

    /// The proxy that the environment names, with what it wants to hear.
    pub fn from_environment(env: Environment<'_>) -> Result<(Self, Option<Credentials>), String> {
        let (name, value) = said(env).next().ok_or_else(|| {
            format!(
                "no proxy is set in the environment; set one of {}",
                VARIABLES.join(", ")
            )
        })?;
        value
            .as_deref()
            .ok_or("is not written in UTF-8".to_owned())
            .and_then(read)
            .map_err(|why| format!("the value of {name} {why}"))
    }

    pub fn host(&self) -> &Host {
        let (Self::Http { host, .. } | Self::Socks5 { host, .. }) = self;
        host
    }

    pub fn port(&self) -> u16 {
        let (Self::Http { port, .. } | Self::Socks5 { port, .. }) = self;
        *port
    }
}

impl Credentials {
    /// What the environment says for exactly this proxy.
    pub fn of(upstream: &Upstream, env: Environment<'_>) -> Option<Self> {
        said(env)
            .filter_map(|(_, value)| read(&value?).ok())
            .find(|(named, _)| named == upstream)
            .and_then(|(_, credentials)| credentials)
    }
}

/// Variables that are set, and their texts if they are such.
fn said(env: Environment<'_>) -> impl Iterator<Item = (&'static str, Option<String>)> {
    VARIABLES
        .into_iter()
        .filter_map(move |name| env(name).map(|value| (name, value)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, value.into_string().ok()))
}

/// The end of a sentence says why it is none; it never holds a piece of the text.
fn read(text: &str) -> Result<(Upstream, Option<Credentials>), String> {
    let form = "is no proxy: write http://HOST:PORT or socks5://HOST:PORT";
    // Without a scheme it is an HTTP proxy, for those who read these variables.
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((before, place)) => (Some(credentials(before)?), place),
        None => (None, rest),
    };
    let after_brackets = place.find(']').map_or(0, |end| end + 1);
    let (host, number) = match place[after_brackets..].split_once(':') {
        Some((_, number)) => (&place[..place.len() - number.len() - 1], Some(number)),
        None => (place, None),
    };
    let host = Host::parse(host).map_err(|bad| format!("{form} ({})", bad.why))?;
    let number = number
        .map(port)
        .transpose()
        .map_err(|_| format!("{form} (a port is a number from 1 to 65535)"))?;
    let upstream = match scheme.to_ascii_lowercase().as_str() {
        "http" => Upstream::Http {
            host,
            port: number.unwrap_or(80),
        },
        // The second asks for what is done anyway: the proxy is given names, not addresses.
        "socks5" | "socks5h" => Upstream::Socks5 {
            host,
            port: number.unwrap_or(1080),
        },
        "https" => {
            return Err(
                "is a proxy that is spoken to in TLS, which cannot be done yet; most \
                        proxies take http:// at the same port"
                    .to_owned(),
            );
        }
        _ => return Err(form.to_owned()),
    };
    Ok((upstream, credentials))
}

fn credentials(text: &str) -> Result<Credentials, String> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let unfit = || "has a user or password that no proxy can be told".to_owned();
    let user = decoded(user).ok_or_else(unfit)?;
    let password = decoded(password).ok_or_else(unfit)?;
    if user.is_empty() || user.contains(':') {
        return Err(unfit());
    }
    Ok(Credentials { user, password })
}

/// `%40` is `@`. At most as long as SOCKS can carry.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = after else {
            return None;
        };
        let digit = |b: &u8| char::from(*b).to_digit(16);
        bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= 255 && !text.contains(char::is_control))
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { host, port } => write!(f, "http://{host}:{port}"),
            Self::Socks5 { host, port } => write!(f, "socks5://{host}:{port}"),
        }
    }
}

spoken!(UpstreamChoice);

impl UpstreamChoice {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "env" => Ok(Self::Environment),
            text => Upstream::parse(text).map(Self::At),
        }
    }

    /// The proxy itself. Its credentials are asked for where they are needed, by `Credentials::of`.
    pub fn resolve(&self, env: Environment<'_>) -> Result<Upstream, String> {
        match self {
            Self::Environment => Upstream::from_environment(env).map(|(upstream, _)| upstream),
            Self::At(upstream) => Ok(upstream.clone()),
        }
    }
}

impl fmt::Display for UpstreamChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("env"),
            Self::At(upstream) => upstream.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn proxies_are_read_and_said_in_one_form() {
        let cases = [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("http://proxy.example/", "http://proxy.example:80"),
            ("HTTP://PROXY.example.:8080", "http://proxy.example:8080"),
            ("proxy.example:3128", "http://proxy.example:3128"),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080"),
            (
                "socks5h://[2001:db8::1]:9050",
                "socks5://[2001:db8::1]:9050",
            ),
        ];
        for (text, said) in cases {
            assert_eq!(Upstream::parse(text).unwrap().to_string(), said, "{text}");
        }
        for bad in [
            "",
            "http://",
            "http://:80",
            "ftp://a.example",
            "socks4://a.example",
            "https://a.example",
            "http://a.example:0",
            "http://a.example:http",
            "http://a b",
            "http://a.example/path",
            "http://[::1",
        ] {
            assert!(Upstream::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_password_comes_from_the_environment_and_is_never_repeated() {
        let why = Upstream::parse("http://me:hunter2@proxy.example:3128").unwrap_err();
        assert!(
            why.contains("HTTPS_PROXY") && !why.contains("hunter2"),
            "{why}"
        );
        let set = |value: &'static str| {
            move |name: &str| (name == "ALL_PROXY").then(|| OsString::from(value))
        };
        let (upstream, credentials) =
            Upstream::from_environment(&set("socks5://me:a%40b%3A%25@proxy.example")).unwrap();
        assert_eq!(upstream.to_string(), "socks5://proxy.example:1080");
        let credentials = credentials.unwrap();
        assert_eq!(
            (&*credentials.user, &*credentials.password),
            ("me", "a@b:%")
        );
        assert!(!format!("{credentials:?}").contains("me"));
        for bad in [
            "http://me:hunter2%zz@proxy.example",
            "http://me:hunter2@",
            "http://me:hunter2%0d%0a@proxy.example",
            "http://:hunter2@proxy.example",
            "gopher://me:hunter2@proxy.example",
            "http://me:hunter2@proxy.example:99999",
            "http://me:hunter2@pro xy",
        ] {
            let why = Upstream::from_environment(&set(bad)).unwrap_err();
            assert!(
                why.contains("ALL_PROXY") && !why.contains("hunter2"),
                "{why}"
            );
        }
        assert!(
            Upstream::from_environment(&|_| None)
                .unwrap_err()
                .contains("HTTPS_PROXY")
        );
    }

    #[test]
    fn credentials_go_to_the_proxy_they_were_given_for_and_to_no_other() {
        let env = |name: &str| match name {
            "HTTPS_PROXY" => Some(OsString::from("http://one.example:1")),
            "all_proxy" => Some(OsString::from("http://me:secret@two.example:2/")),
            _ => None,
        };
        let of = |text: &str| Credentials::of(&Upstream::parse(text).unwrap(), &env);
        assert_eq!(of("http://two.example:2").unwrap().password, "secret");
        assert!(of("http://one.example:1").is_none());
        assert!(of("http://two.example:3").is_none());
        assert!(of("socks5://two.example:2").is_none());
        let first = UpstreamChoice::Environment.resolve(&env).unwrap();
        assert_eq!(first.to_string(), "http://one.example:1");
    }
}
