//! Where Claude's gateway leads.

use hyper::Uri;

use super::wrong::Wrong;
use crate::policy::egress::{Host, Name};

/// The host of Claude's key, and how it is spoken to. The program has no say in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaudeTarget {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    /// What goes before every path, without a slash at its end.
    pub(super) prefix: String,
}

impl ClaudeTarget {
    /// The host that a secret names. The caller's own `ANTHROPIC_BASE_URL` says how to reach it,
    /// if it is that host's.
    pub fn new(host: &Name, base_url: Option<&str>) -> Self {
        base_url
            .and_then(|url| Self::read(host, url))
            .unwrap_or_else(|| Self {
                host: Host::Name(host.clone()),
                port: 443,
                is_tls: true,
                prefix: String::new(),
            })
    }

    fn read(host: &Name, url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let said = Name::parse(uri.host()?).ok()?;
        let usual = if is_tls { 443 } else { 80 };
        (said == *host).then(|| Self {
            host: Host::Name(said),
            port: uri.port_u16().unwrap_or(usual),
            is_tls,
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The host, for those who make the rules: without one that allows it nobody gets there.
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether certificates are needed to speak to it.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(super) fn path(&self, asked: &Uri) -> Result<Uri, Wrong> {
        let path = asked.path_and_query().map_or("/", |path| path.as_str());
        match self.prefix.is_empty() {
            true => Ok(asked.clone()),
            false => format!("{}{path}", self.prefix)
                .parse()
                .map_err(|_| Wrong::request("the request names no path")),
        }
    }
}
