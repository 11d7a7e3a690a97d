//! The variables of a program, and who is given the token. They start empty: nothing of what the
//! helper was started with reaches a session.

use std::ffi::OsString;
use std::fmt;

use serde_json::{Map, Value};

use crate::policy::SessionId;
use crate::policy::egress::HTTP_PORT;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// What means something outside only, or would lead a program elsewhere. `*` is any ending.
const DROPPED: [&str; 12] = [
    // A program that thinks it runs in another of its kind behaves differently.
    "CLAUDECODE",
    "ELECTRON_*",
    "NODE_OPTIONS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "DBUS_SESSION_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];
pub(super) const TOKEN: &str = "CLAUDE_CODE_OAUTH_TOKEN";
/// With one of these Claude Code has another way to log in, which the token would overrule.
const OTHER_LOGINS: [&str; 2] = ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"];
/// Claude at a provider of cloud services; `CLAUDE_CODE_USE_BEDROCK` and its like.
const PROVIDER: &str = "CLAUDE_CODE_USE_";

/// What the app said about a program that is to be started.
#[derive(Debug)]
pub(super) struct SpawnEnv<'a> {
    pub(super) session: &'a SessionId,
    /// As it was sent: `claude`, `/usr/local/bin/claude`, `bash`.
    pub(super) command: &'a str,
    /// `params.env`.
    pub(super) sent: Option<&'a Map<String, Value>>,
    /// The helper's own, for the language alone.
    pub(super) lang: Option<OsString>,
    /// Whether a list of hosts decides: only then are programs told of the proxy that says why
    /// it refuses one.
    pub(super) has_list: bool,
}

/// All variables of the program; nothing else is to be added to them.
pub(super) fn variables(spawn: &SpawnEnv<'_>, token: Option<&Token>) -> Vec<(OsString, OsString)> {
    let mut all = Variables::default();
    let name = spawn.session.as_str();
    all.set("PATH", PATH);
    all.set("HOME", format!("/sessions/{name}"));
    all.set("USER", name);
    all.set("LOGNAME", name);
    all.set("SHELL", "/bin/bash");
    let lang = spawn.lang.clone().filter(|lang| !lang.is_empty());
    all.set("LANG", lang.unwrap_or_else(|| "C.UTF-8".into()));
    all.set("TERM", "dumb");
    all.set("TMPDIR", "/tmp");
    all.set("IS_SANDBOX", "1");
    all.set("COWORK_SESSION", name);
    let is_claude = is_claude(spawn.command);
    for (name, value) in spawn.sent.into_iter().flatten() {
        match value.as_str().filter(|value| is_fit(name, value)) {
            // Programs other than Claude never hold the token, whichever way it came.
            Some(_) if name == TOKEN && !is_claude => {}
            Some(value) => all.set(name, value),
            None => {}
        }
    }
    if spawn.has_list {
        let proxy = format!("http://127.0.0.1:{HTTP_PORT}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            all.set(name, &proxy);
            all.set(name.to_ascii_lowercase(), &proxy);
        }
        for name in ["NO_PROXY", "no_proxy"] {
            all.set(name, "localhost,127.0.0.1,::1");
        }
        all.set("NODE_USE_ENV_PROXY", "1");
    }
    if let Some(token) = token.filter(|_| is_claude && wants_token(spawn.sent)) {
        all.set(TOKEN, token.expose());
    }
    all.0
}

/// Names in `params.env` whose values are no texts, or that cannot be variables; for a log.
pub(super) fn unfit(sent: Option<&Map<String, Value>>) -> Vec<&str> {
    let all = sent.into_iter().flatten();
    all.filter(|(name, value)| !value.as_str().is_some_and(|value| can_be(name, value)))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Whether this is Claude Code itself, by whatever path it is called.
pub(super) fn is_claude(command: &str) -> bool {
    command.rsplit('/').next() == Some("claude")
}

fn can_be(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn is_fit(name: &str, value: &str) -> bool {
    let is_dropped = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    };
    // An empty ANTHROPIC_API_KEY, which the app really sends, would win over every other login.
    !value.is_empty() && can_be(name, value) && !DROPPED.iter().any(is_dropped)
}

pub(super) fn wants_token(sent: Option<&Map<String, Value>>) -> bool {
    let Some(sent) = sent else { return true };
    let is_set = |name: &str| {
        let value = sent.get(name).and_then(Value::as_str);
        value.is_some_and(|value| !value.is_empty())
    };
    let is_on = |name: &String| {
        let value = sent.get(name).and_then(Value::as_str).unwrap_or_default();
        !matches!(value, "" | "0" | "false")
    };
    // Even an empty one: whoever sends that wants none.
    !sent.contains_key(TOKEN)
        && !OTHER_LOGINS.into_iter().any(is_set)
        && !sent
            .keys()
            .any(|name| name.starts_with(PROVIDER) && is_on(name))
}

#[derive(Default)]
struct Variables(Vec<(OsString, OsString)>);

impl Variables {
    fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name, value)),
        }
    }
}

/// What Claude Code logs in with. Printed nowhere, kept in memory alone, and wiped when another
/// takes its place.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(Vec<u8>);

impl Token {
    /// None if it cannot be one: it is empty, or no variable can hold it.
    pub(super) fn new(text: String) -> Option<Self> {
        let token = Self(text.into_bytes());
        (!token.0.is_empty() && !token.0.contains(&0)).then_some(token)
    }

    pub(super) fn expose(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fill(0);
        // Somebody could be looking, as far as the compiler knows.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(command: &str, sent: Value, token: Option<&str>, has_list: bool) -> Map<String, Value> {
        let session = SessionId::parse("t-sess-one").unwrap();
        let spawn = SpawnEnv {
            session: &session,
            command,
            sent: sent.as_object(),
            lang: None,
            has_list,
        };
        let token = token.and_then(|token| Token::new(token.to_owned()));
        let all = variables(&spawn, token.as_ref()).into_iter();
        let text = |text: OsString| text.into_string().unwrap();
        all.map(|(name, value)| (text(name), text(value).into()))
            .collect()
    }

    #[test]
    fn s25_a_program_starts_with_what_it_cannot_do_without() {
        let all = of("bash", json!({}), None, false);
        let expected = json!({
            "PATH": PATH, "HOME": "/sessions/t-sess-one", "USER": "t-sess-one",
            "LOGNAME": "t-sess-one", "SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "dumb",
            "TMPDIR": "/tmp", "IS_SANDBOX": "1", "COWORK_SESSION": "t-sess-one",
        });
        assert_eq!(Value::from(all), expected);
    }

    #[test]
    fn s25_the_apps_variables_come_on_top_and_those_of_its_desktop_do_not() {
        let sent = json!({
            "CLAUDE_CONFIG_DIR": "/sessions/t-sess-one/mnt/.claude", "TERM": "xterm", "TZ": "UTC",
            "ANTHROPIC_API_KEY": "", "CLAUDECODE": "1", "ELECTRON_RUN_AS_NODE": "1",
            "NODE_OPTIONS": "--require /x", "LD_PRELOAD": "/y", "LD_LIBRARY_PATH": "/y",
            "SSH_AUTH_SOCK": "/x", "DBUS_SESSION_BUS_ADDRESS": "unix:x", "DISPLAY": ":0",
            "WAYLAND_DISPLAY": "w", "XAUTHORITY": "/x", "XDG_RUNTIME_DIR": "/run/user/0",
            "ELECTRONIC": "stays",
        });
        let all = of("bash", sent, None, false);
        assert_eq!(all["CLAUDE_CONFIG_DIR"], "/sessions/t-sess-one/mnt/.claude");
        assert_eq!((&all["TERM"], &all["TZ"]), (&json!("xterm"), &json!("UTC")));
        assert_eq!(all["ELECTRONIC"], "stays");
        assert_eq!(all.len(), 10 + 3, "{all:?}");
    }

    #[test]
    fn what_cannot_be_a_variable_is_dropped_and_named() {
        let sent = json!({
            "N": 1, "B": true, "L": ["x"], "O": {}, "Z": null, "": "x", "A=B": "x", "NUL\0": "x",
            "V": "a\0b", "GOOD": "yes",
        });
        let all = of("bash", sent.clone(), None, false);
        assert_eq!(all["GOOD"], "yes");
        assert_eq!(all.len(), 10 + 1, "{all:?}");
        assert_eq!(unfit(sent.as_object()).len(), 9);
        assert!(unfit(None).is_empty());
    }

    #[test]
    fn i6_a_proxy_is_named_only_where_a_list_decides_and_then_it_wins() {
        let sent = json!({"HTTPS_PROXY": "http://outside:1"});
        assert_eq!(
            of("bash", sent.clone(), None, false)["HTTPS_PROXY"],
            "http://outside:1"
        );
        assert!(
            !of("bash", json!({}), None, false)
                .keys()
                .any(|name| { name.to_ascii_lowercase().contains("proxy") })
        );
        let all = of("bash", sent, None, true);
        for name in ["HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
            assert_eq!(all[name], "http://127.0.0.1:3128", "{name}");
        }
        assert_eq!(all["NO_PROXY"], "localhost,127.0.0.1,::1");
    }

    #[test]
    fn s26_only_claude_without_another_login_is_given_the_token() {
        let token = |command: &str, sent: Value| {
            let all = of(command, sent, Some("sk-ant-oat"), false);
            all.get(TOKEN).and_then(Value::as_str).map(str::to_owned)
        };
        let given = Some("sk-ant-oat".to_owned());
        for command in ["claude", "/usr/local/bin/claude"] {
            assert_eq!(token(command, json!({})), given);
            assert_eq!(token(command, json!({"ANTHROPIC_API_KEY": ""})), given);
            assert_eq!(
                token(command, json!({"CLAUDE_CODE_USE_BEDROCK": "0"})),
                given
            );
        }
        for command in [
            "bash",
            "claude/",
            "/claude/bash",
            "claude2",
            "Claude",
            "",
            "xclaude",
        ] {
            assert_eq!(token(command, json!({})), None, "{command}");
            // Not even if the app itself puts it there.
            assert_eq!(
                token(command, json!({ TOKEN: "sk-ant-oat" })),
                None,
                "{command}"
            );
        }
        for other in [
            json!({"ANTHROPIC_API_KEY": "k"}),
            json!({"ANTHROPIC_AUTH_TOKEN": "k"}),
            json!({"CLAUDE_CODE_USE_VERTEX": "1"}),
            json!({ TOKEN: "" }),
        ] {
            assert_eq!(token("claude", other.clone()), None, "{other}");
        }
        assert_eq!(token("claude", json!({ TOKEN: "own" })), Some("own".into()));
    }

    #[test]
    fn a_token_says_nothing_and_an_impossible_one_is_none() {
        let token = Token::new("sk-ant-oat-secret".into()).unwrap();
        assert_eq!(
            format!("{token:?} {:#?}", Some(&token))
                .matches("secret")
                .count(),
            0
        );
        assert!(Token::new(String::new()).is_none());
        assert!(Token::new("a\0b".into()).is_none());
    }
}
