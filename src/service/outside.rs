//! The token kept outside: it is a secret of the session's gateway, which puts it into Claude Code's
//! requests on their way to the one host that it is for. What the program holds in its place is
//! worth nothing to anybody.

use std::ffi::OsString;
use std::process::Command;

use hyper::Uri;

use super::boxes::{Entry, Ready};
use super::environment::{self, TOKEN, Token};
use super::profile::Profile;
use super::request::Spawn;
use crate::policy::egress::{CLAUDE_PORT, Name};
use crate::report;

const API: &str = "api.anthropic.com";
const BASE: &str = "ANTHROPIC_BASE_URL";
/// What the gateway holds before the app has sent a token.
const NONE_YET: &str = "no-token-yet";
const STAND_IN: &str = "kept-outside-the-session";

/// Where the token may go.
#[derive(Debug, Clone)]
pub(super) struct Outside {
    host: String,
    port: u16,
    /// The helper's own, where that is not the usual one.
    pub(super) base: Option<String>,
}

impl Outside {
    /// The API that the helper was started for.
    pub(super) fn new(base: Option<String>) -> Self {
        let base = base.filter(|base| host_of(base).is_some());
        let uri = base.as_deref().and_then(|base| base.parse::<Uri>().ok());
        let is_plain = uri.as_ref().and_then(Uri::scheme_str) == Some("http");
        let usual = if is_plain { 80 } else { 443 };
        let host = base.as_deref().and_then(host_of);
        Self {
            host: host.unwrap_or_else(|| API.to_owned()),
            port: uri.and_then(|uri| uri.port_u16()).unwrap_or(usual),
            base,
        }
    }

    /// Makes a session's gateway ready to hold the token.
    pub(super) fn equip(&self, command: &mut Command) {
        command
            .args(["--secret", &format!("{TOKEN}@{}", self.host)])
            // Until the app has said what may be reached.
            .args(["--allow-host", &format!("{}:{}", self.host, self.port)])
            .env(TOKEN, NONE_YET);
        if let Some(base) = &self.base {
            command.env(BASE, base);
        }
    }

    /// Takes the token to the gateway, and out of what the program is given.
    pub(super) async fn keep(
        &self,
        profile: &Profile,
        entry: &Entry,
        ready: &mut Ready<'_>,
        asked: &Spawn,
        env: &mut Vec<(OsString, OsString)>,
    ) -> Result<(), String> {
        let sent = |name: &str| {
            let text = asked.env.get(name).and_then(|value| value.as_str());
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        env.retain(|(name, _)| name != TOKEN);
        let token = match sent(TOKEN).and_then(Token::new) {
            None if environment::wants_token(Some(&asked.env)) => profile.token_for(asked),
            sent => sent,
        };
        let Some(token) = token else { return Ok(()) };
        if let Some(base) = sent(BASE).filter(|base| host_of(base).as_ref() != Some(&self.host)) {
            let base = host_of(&base).unwrap_or_else(|| "another host".to_owned());
            return Err(format!(
                "cannot keep the token outside, because it is for {} and the app sends Claude Code to \
                 {base}; start the helper with {BASE} set to that, or without --token-outside",
                self.host
            ));
        }
        if ready.token.as_ref() != Some(&token) {
            let told = async {
                let conversation = entry.conversation(profile).await?;
                conversation.secret(TOKEN, &token.expose()).await
            };
            told.await.map_err(|error| report::in_one_line(&error))?;
            ready.token = Some(token);
        }
        env.retain(|(name, _)| name != BASE);
        env.push((TOKEN.into(), STAND_IN.into()));
        env.push((
            BASE.into(),
            format!("http://127.0.0.1:{CLAUDE_PORT}").into(),
        ));
        Ok(())
    }
}

fn host_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    // A single word would be a host as well.
    uri.scheme()?;
    let name = Name::parse(uri.host()?).ok()?;
    Some(name.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_for_one_host() {
        let host = |base: Option<&str>| Outside::new(base.map(str::to_owned)).host;
        assert_eq!(host(None), API);
        assert_eq!(
            host(Some("https://Claude.Example.org/v2")),
            "claude.example.org"
        );
        for odd in ["", "nonsense", "https://", "http://192.0.2.1/"] {
            assert_eq!(host(Some(odd)), API, "{odd}");
        }
        let mut command = Command::new("x");
        Outside::new(None).equip(&mut command);
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(
            words,
            [
                "--secret",
                "CLAUDE_CODE_OAUTH_TOKEN@api.anthropic.com",
                "--allow-host",
                "api.anthropic.com:443"
            ]
        );
    }
}
