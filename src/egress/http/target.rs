//! Whom a request is for. Every spelling that could be read in two ways is no answer.

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri, Version};

use super::wrong::Wrong;
use crate::policy::egress::Host;

/// A host and a port, as a request names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Target {
    /// As it stands in a Host header: the port only where it is not the usual one.
    pub(super) fn authority(&self, usual: u16) -> String {
        match self.port == usual {
            true => self.host.to_string(),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// How the Host header disagrees.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Disagreement {
    /// It is missing, twice there, or no host at all.
    Malformed(Wrong),
    /// It is another one.
    Other(String),
}

/// `CONNECT host:port`.
pub(super) fn of_connect(uri: &Uri) -> Result<Target, Wrong> {
    let authority = match (uri.scheme(), uri.authority(), uri.path_and_query()) {
        (None, Some(authority), None) => authority.as_str(),
        _ => {
            return Err(Wrong::request(
                "CONNECT names a host and a port, such as example.com:443, and nothing else",
            ));
        }
    };
    match split(authority)? {
        (host, Some(port)) => Ok(Target { host, port }),
        (_, None) => Err(Wrong::request(
            "CONNECT names a port as well, such as example.com:443",
        )),
    }
}

/// `GET http://host[:port]/...`, as proxies are asked.
pub(super) fn of_absolute(uri: &Uri) -> Result<Target, Wrong> {
    absolute(uri, "http", 80)
}

fn absolute(uri: &Uri, scheme: &str, usual: u16) -> Result<Target, Wrong> {
    let (Some(said), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(Wrong::request(
            "this is a proxy: ask it for a whole address, such as http://example.com/",
        ));
    };
    if said != scheme {
        return Err(match said {
            "https" => Wrong::request(
                "this proxy passes https on without reading it: ask it to CONNECT to the host",
            ),
            _ => Wrong::request("this proxy speaks http, and https by CONNECT, nothing else"),
        });
    }
    let (host, port) = split(authority.as_str())?;
    Ok(Target {
        host,
        port: port.unwrap_or(usual),
    })
}

/// Whether a request on a connection to `expected` is for it. `usual` is the scheme's port.
pub(super) fn agrees(
    head: &Parts,
    scheme: &str,
    usual: u16,
    expected: &Target,
) -> Result<(), Disagreement> {
    if head.method == Method::CONNECT {
        // Whoever takes a CONNECT leads to others, which nobody could check.
        return Err(Disagreement::Malformed(Wrong::request(
            "CONNECT is for proxies, and the box has one of its own",
        )));
    }
    let other = |target: Target| Disagreement::Other(target.authority(usual));
    if head.uri.authority().is_some() {
        let target = absolute(&head.uri, scheme, usual).map_err(Disagreement::Malformed)?;
        if target != *expected {
            return Err(other(target));
        }
    }
    match host_header(&head.headers, head.version, usual) {
        Ok(Some(said)) if said != *expected => Err(other(said)),
        Ok(_) => Ok(()),
        Err(wrong) => Err(Disagreement::Malformed(wrong)),
    }
}

/// Requests have exactly one Host; only HTTP/1.0 did not know it yet.
fn host_header(headers: &HeaderMap, version: Version, usual: u16) -> Result<Option<Target>, Wrong> {
    let mut all = headers.get_all(HOST).iter();
    let said = match (all.next(), all.next()) {
        (None, _) if version == Version::HTTP_10 => return Ok(None),
        (None, _) => return Err(Wrong::request("there is no Host header")),
        (Some(said), None) => said,
        (Some(_), Some(_)) => return Err(Wrong::request("there is more than one Host header")),
    };
    let text = said
        .to_str()
        .map_err(|_| Wrong::request("the Host header is no host"))?;
    let (host, port) = split(text)?;
    Ok(Some(Target {
        host,
        port: port.unwrap_or(usual),
    }))
}

/// The path a host is asked for, query included: what is left of a target without its host.
pub(super) fn path(method: &Method, uri: &Uri) -> Result<Uri, Wrong> {
    if uri.path() == "*" && uri.authority().is_none() {
        return match *method {
            Method::OPTIONS => Ok(Uri::from_static("*")),
            _ => Err(Wrong::request("only OPTIONS is asked of a host as a whole")),
        };
    }
    let path = match uri.path_and_query() {
        Some(path) => path.as_str(),
        None => "/",
    };
    if !path.starts_with('/') {
        // A query right after the host is a query of its top.
        return format!("/{path}").parse().map_err(|_| no_path());
    }
    path.parse().map_err(|_| no_path())
}

fn no_path() -> Wrong {
    Wrong::request("the request names no path that could be asked for")
}

/// `host`, `host:port`, `[address]`, `[address]:port`.
fn split(text: &str) -> Result<(Host, Option<u16>), Wrong> {
    if text.contains('@') {
        return Err(Wrong::request(
            "a user and a password do not belong into an address: send an Authorization header",
        ));
    }
    let (host, port) = match text.rfind(']') {
        Some(end) if text.starts_with('[') => text.split_at(end + 1),
        _ => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return Err(Wrong::request("what follows a host is a colon and a port")),
        Some(digits) => Some(number(digits)?),
    };
    let host = Host::parse(host).map_err(|bad| Wrong::request(&bad.to_string()))?;
    Ok((host, port))
}

fn number(digits: &str) -> Result<u16, Wrong> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    match digits.parse() {
        Ok(port) if is_plain && port > 0 => Ok(port),
        _ => Err(Wrong::request("a port is a number from 1 to 65535")),
    }
}
