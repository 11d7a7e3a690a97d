//! The program's environment: starts empty, gets what a program cannot do without, then what
//! the policy passes or sets, then what was asked for on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::{Door, Egress, Facts, OwnFolder, Request, Session};
use crate::policy::egress::{SecretSource, SecretSpec};
use crate::policy::{InsidePath, Isolation, Policy};

/// Where the certificates are that programs are to trust, if TLS ends at the gateway.
pub(super) const CERTIFICATES: &str = "/etc/cowork-certificates.pem";
/// What curl, OpenSSL, Python, Node, git, pip, cargo and others look for them by.
const CERTIFICATE_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
];
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn variables(
    policy: &Policy,
    facts: &Facts,
    request: &Request,
    (session, first_mount): (&Session, Option<&InsidePath>),
    egress: Option<&Egress>,
) -> Vec<(OsString, OsString)> {
    let mut env = Variables(Vec::with_capacity(24));
    let (_, _, user) = super::build::inside_identity(facts);
    env.set("PATH", search_path(request, session));
    env.set("HOME", session.home.as_path());
    env.set("USER", &user);
    env.set("LOGNAME", &user);
    env.set("SHELL", &facts.shell);
    if policy.lock.isolation == Isolation::Landlock {
        env.set("TMPDIR", session.on_the_host(OwnFolder::Tmp));
        // A system-wide configuration that is there and cannot be read stops git.
        env.set("GIT_CONFIG_NOSYSTEM", "1");
    }
    let is_secret = |name: &OsString| {
        let from = |secret: &SecretSpec| match &secret.from {
            SecretSource::Variable(variable) => variable.as_str() == name,
            SecretSource::Said(_) | SecretSource::File(_) => false,
        };
        egress.is_some_and(|egress| egress.secrets.iter().any(from))
    };
    for (name, value) in facts.env.iter().filter(|(name, _)| !is_secret(name)) {
        if policy.env.pass.iter().any(|pattern| matches(pattern, name)) {
            env.set(name, value);
        }
    }
    if let (true, Some((name, email))) = (policy.env.git_identity, &facts.git_identity) {
        for role in ["AUTHOR", "COMMITTER"] {
            env.set(format!("GIT_{role}_NAME"), name);
            env.set(format!("GIT_{role}_EMAIL"), email);
        }
    }
    if let Some(egress) = egress {
        network(&mut env, egress, request.hostname.as_deref());
    }
    for (name, value) in &policy.env.set {
        env.set(name, value);
    }
    env.set("IS_SANDBOX", "1");
    env.set("COWORK_SESSION", session.id.as_str());
    if let Some(first) = first_mount {
        env.set("PWD", first.as_path());
    }
    for (name, value) in &request.env {
        env.set(name, value);
    }
    // Last, so that nothing puts a secret where its stand-in belongs.
    for (name, value) in &request.disguise.variables {
        env.set(name, value);
    }
    if request.disguise.certificates.is_some() {
        for name in CERTIFICATE_VARIABLES {
            env.set(name, CERTIFICATES);
        }
    }
    env.0
}

/// Says where the proxies are, also where connections find the gateway by themselves: a proxy can
/// say in words why it refuses. What the caller's own proxy is has no meaning in the box.
///
/// The proxy for everything else is the HTTP one too. Libraries that cannot speak SOCKS, such as
/// Python's httpx without its extra, fail on a variable that names it before they connect anywhere.
fn network(env: &mut Variables, egress: &Egress, hostname: Option<&str>) {
    let port = |door: Door| egress.doors.contains(&door).then(|| door.port());
    if let Some(port) = port(Door::Http) {
        let proxy = format!("http://127.0.0.1:{port}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            env.set(name, &proxy);
            env.set(name.to_ascii_lowercase(), &proxy);
        }
        let host = hostname.unwrap_or("cowork");
        let own = format!("localhost,127.0.0.1,::1,{host}");
        env.set("NO_PROXY", &own);
        env.set("no_proxy", &own);
        env.set("NODE_USE_ENV_PROXY", "1");
    }
    if let Some(port) = port(Door::Claude) {
        env.set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"));
    }
}

fn search_path(request: &Request, session: &Session) -> OsString {
    let mut path = OsString::new();
    for dir in &request.path {
        path.push(dir);
        path.push(":");
    }
    path.push(SYSTEM_PATH);
    path.push(":");
    path.push(session.home.as_path().join(".local/bin"));
    path
}

fn matches(pattern: &str, name: &OsStr) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.as_bytes().starts_with(start.as_bytes()),
        None => name.as_bytes() == pattern.as_bytes(),
    }
}

struct Variables(Vec<(OsString, OsString)>);

impl Variables {
    fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        let (name, value) = (name.as_ref(), value.as_ref().to_owned());
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }
}
