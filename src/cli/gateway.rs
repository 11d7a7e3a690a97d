//! What a gateway needs and no plan may hold: values of secrets, keys, the proxy's password.

use std::ffi::OsString;

use crate::egress::{
    Authority, ClaudeTarget, Means, Proxy, Roots, SecretError, Secrets, StandIns, TlsError,
};
use crate::plan::Disguise;
use crate::policy::Net;
use crate::policy::egress::Credentials;
use crate::session::Outfit;

#[derive(Debug, thiserror::Error)]
pub(super) enum Unequipped {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Unequipped {
    pub(super) fn help(&self) -> Option<String> {
        match self {
            Self::Secret(error) => error.help(),
            Self::Tls(error) => error.help(),
        }
    }
}

/// For the gateway outside, and for the box.
pub(super) fn equip(net: &Net) -> Result<(Outfit, Disguise), Unequipped> {
    let env = |name: &str| std::env::var_os(name);
    let upstream = net.upstream().map(|what| Proxy {
        what: what.clone(),
        credentials: Credentials::of(what, &env).map(|both| (both.user, both.password)),
    });
    let stand_ins = StandIns::new(&net.secrets)?;
    let secrets = Secrets::take(&net.secrets, &stand_ins, env)?;
    let base_url = env("ANTHROPIC_BASE_URL").and_then(|url| url.into_string().ok());
    let claude = net.claude_secret();
    let claude = claude.map(|secret| ClaudeTarget::new(&secret.host, base_url.as_deref()));
    let authority = match net.tls_audit.is_empty() {
        true => None,
        false => Some(Authority::new(&net.tls_audit)?),
    };
    let speaks_tls = authority.is_some() || claude.as_ref().is_some_and(ClaudeTarget::is_tls);
    let roots = match speaks_tls {
        true => Some(Roots::of_the_system()?),
        false => None,
    };
    let disguise = Disguise {
        variables: stand_ins
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect(),
        certificates: authority
            .as_ref()
            .zip(roots.as_ref())
            .map(|(authority, roots)| roots.bundle(authority)),
        claude_port: claude.as_ref().map(ClaudeTarget::port),
    };
    let http = Means::new(secrets, claude, authority, roots.as_ref())?;
    Ok((Outfit { upstream, http }, disguise))
}
