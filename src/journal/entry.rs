//! What a line of a journal says.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A line of a journal, read and taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Counts from 1 over all runs of a session.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    #[serde(flatten)]
    pub what: What,
    /// Binds this line to the one before it.
    pub hash: String,
}

/// Something that happened. There is no field for the environment: its values are secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "what",
    rename_all = "kebab-case",
    rename_all_fields = "kebab-case",
    deny_unknown_fields
)]
pub enum What {
    Start {
        program: Vec<String>,
        mounts: Vec<MountNote>,
        network: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
        supervisor: i32,
        /// Such as `namespaces`, `seccomp default`, `landlock abi 7`, `guard`.
        layers: Vec<String>,
    },
    Exec {
        exec: u32,
        program: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    Exit {
        /// 0 is the session's own program.
        exec: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Why the kernel would not run it, as its number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_executed: Option<i32>,
    },
    Signal {
        signal: i32,
        by: String,
    },
    Limit {
        limit: String,
        value: String,
        /// `ended the session`, `refused`, `paused`.
        happened: String,
    },
    Change {
        /// What was changed while the session ran, such as `memory`.
        of: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        to: String,
    },
    Mount {
        source: String,
        place: String,
        mode: String,
        /// A source shared elsewhere that this one overlaps with, which was allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        overlaps: Option<String>,
        /// The source that was there before, without a moment in between.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replaces: Option<String>,
    },
    Unmount {
        place: String,
    },
    Refusal {
        kind: RefusalKind,
        object: String,
        rule: String,
        /// The flag or key that would allow it, as it is typed.
        allow: String,
        /// Who tried it the first time, as it calls itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        /// How often since the last line about the same; together they are how often.
        count: u64,
    },
    /// A connection that is over, or came to nothing. What a rule refused is a refusal.
    Connection {
        /// Milliseconds since 1970.
        began: u64,
        milliseconds: u64,
        /// How it came: `redirect`, `http`, `socks`, `claude`, `host-port`, `publish`.
        door: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<String>,
        host: String,
        port: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Bytes from the box, and to it.
        sent: u64,
        received: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A request, where HTTP could be seen.
    Request {
        began: u64,
        milliseconds: u64,
        method: String,
        url: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The last entry of a run; without it the end counts as missing.
    Stop {
        outcome: String,
        by: String,
    },
    /// Always a first line: older ones were dropped to stay within the limit.
    Cut {
        /// How many entries are gone since the beginning.
        dropped: u64,
        /// The hash of the last of them, from which the next line goes on.
        last: String,
        /// The run that goes on after the cut, as far as it was dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunNote>,
    },
    /// The run before ended without a stop; so much of a torn line was cut off.
    Mended {
        bytes: u64,
    },
    /// The journal that was here did not verify and was set aside under this name.
    Aside {
        file: String,
        why: String,
    },
    /// So many entries could not be written, because the disk was full or worse.
    Lost {
        entries: u64,
    },
    /// A kind that a newer version wrote.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// The kinds that must read as themselves: one with odd fields is not an `Other`.
pub(super) const KINDS: [&str; 16] = [
    "start",
    "exec",
    "exit",
    "signal",
    "limit",
    "change",
    "mount",
    "unmount",
    "refusal",
    "connection",
    "request",
    "stop",
    "cut",
    "mended",
    "aside",
    "lost",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MountNote {
    pub source: String,
    pub place: String,
    pub mode: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalKind {
    File,
    Syscall,
    Network,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Exit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<i32>,
}

impl Exit {
    pub fn is_success(self) -> bool {
        self.code == Some(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal, self.not_executed) {
            (_, _, Some(errno)) => {
                let why = std::io::Error::from_raw_os_error(errno).to_string();
                let words = why.split(" (os error").next().unwrap_or_default();
                write!(f, "could not be run: {words}")
            }
            (_, Some(signal), _) => write!(f, "killed by signal {signal}"),
            (Some(code), ..) => write!(f, "exit code {code}"),
            (None, None, None) => f.write_str("ended"),
        }
    }
}

/// What is known of a run by its entries, without keeping them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RunNote {
    /// Milliseconds since 1970.
    pub started: u64,
    pub program: Vec<String>,
    pub execs: u64,
    /// How often each rule refused something.
    pub refusals: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// Reads an entry out of the text of a line. Its hash is not checked here.
pub(super) fn parse(text: &[u8]) -> Option<Entry> {
    let mut fields: Map<String, Value> = serde_json::from_slice(text).ok()?;
    let seq = fields
        .remove("seq")?
        .as_u64()
        .filter(|seq| *seq <= HIGHEST)?;
    let at = fields.remove("at")?.as_u64().filter(|at| *at <= LATEST)?;
    let Some(Value::String(hash)) = fields.remove("hash") else {
        return None;
    };
    let kind = fields.get("what")?.as_str()?.to_owned();
    let what: What = serde_json::from_value(Value::Object(fields)).ok()?;
    if matches!(what, What::Other(_)) && KINDS.contains(&kind.as_str()) {
        return None;
    }
    Some(Entry {
        seq,
        at,
        what,
        hash,
    })
}

/// The end of the year 9999; later times cannot be written as RFC 3339.
pub(super) const LATEST: u64 = 253_402_300_799_999;

/// More entries than there can be, and still a number to every reader of JSON.
const HIGHEST: u64 = 1 << 53;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(rest: &str) -> String {
        format!(r#"{{"seq":1,"at":2,{rest},"hash":"x"}}"#)
    }

    #[test]
    fn a_kind_nobody_knows_yet_is_kept_as_it_is() {
        let text = line(r#""what":"weather","sky":{"clouds":3}"#);
        let entry = parse(text.as_bytes()).unwrap();
        let What::Other(fields) = &entry.what else {
            panic!("{entry:?}");
        };
        assert_eq!(fields["what"], "weather");
        assert_eq!(fields["sky"]["clouds"], 3);
        assert_eq!(serde_json::to_value(&entry).unwrap()["what"], "weather");
    }

    #[test]
    fn a_known_kind_with_odd_fields_is_refused() {
        assert!(parse(line(r#""what":"unmount","place":"/a""#).as_bytes()).is_some());
        for odd in [
            r#""what":"unmount""#,
            r#""what":"unmount","place":7"#,
            r#""what":"unmount","place":"/a","more":1"#,
            r#""what":7"#,
            r#""place":"/a""#,
        ] {
            assert!(parse(line(odd).as_bytes()).is_none(), "{odd}");
        }
        assert!(parse(br#"{"seq":-1,"at":2,"what":"weather","hash":"x"}"#).is_none());
        assert!(
            parse(br#"{"seq":18446744073709551615,"at":2,"what":"weather","hash":"x"}"#).is_none()
        );
        assert!(parse(br#"{"seq":1,"at":253402300800000,"what":"weather","hash":"x"}"#).is_none());
    }

    /// Whoever adds a kind is led here by the compiler, and to the list from here.
    fn is_listed(what: &What) -> bool {
        match what {
            What::Start { .. } | What::Exec { .. } | What::Exit { .. } => true,
            What::Signal { .. } | What::Limit { .. } | What::Change { .. } => true,
            What::Mount { .. } | What::Unmount { .. } | What::Refusal { .. } => true,
            What::Connection { .. } | What::Request { .. } => true,
            What::Stop { .. } | What::Cut { .. } | What::Mended { .. } => true,
            What::Aside { .. } | What::Lost { .. } => true,
            What::Other(_) => false,
        }
    }

    #[test]
    fn every_kind_is_in_the_list_and_the_list_has_no_other() {
        // A value for every field there is.
        let all = json!({
            "program": [], "mounts": [], "network": "", "supervisor": 1, "layers": [], "exec": 1,
            "signal": 1, "by": "", "limit": "", "value": "", "happened": "", "of": "", "to": "",
            "source": "", "place": "", "mode": "", "kind": "file", "object": "", "rule": "",
            "allow": "", "count": 1, "outcome": "", "dropped": 1, "last": "", "bytes": 1,
            "file": "", "why": "", "entries": 1, "began": 1, "milliseconds": 1, "door": "",
            "host": "", "port": 1, "sent": 1, "received": 1, "method": "", "url": "",
        });
        let fields: [&[&str]; 16] = [
            &["program", "mounts", "network", "supervisor", "layers"],
            &["exec", "program"],
            &["exec"],
            &["signal", "by"],
            &["limit", "value", "happened"],
            &["of", "to"],
            &["source", "place", "mode"],
            &["place"],
            &["kind", "object", "rule", "allow", "count"],
            &[
                "began",
                "milliseconds",
                "door",
                "host",
                "port",
                "sent",
                "received",
            ],
            &["began", "milliseconds", "method", "url"],
            &["outcome", "by"],
            &["dropped", "last"],
            &["bytes"],
            &["file", "why"],
            &["entries"],
        ];
        for (kind, names) in KINDS.iter().zip(fields) {
            let mut entry = json!({"seq": 1, "at": 1, "hash": "", "what": kind});
            for name in names {
                entry[*name] = all[*name].clone();
            }
            let read = parse(entry.to_string().as_bytes()).unwrap();
            assert!(is_listed(&read.what), "{kind}: {read:?}");
            entry["odd"] = json!(1);
            assert!(parse(entry.to_string().as_bytes()).is_none(), "{kind}");
        }
    }

    #[test]
    fn an_end_is_said_in_words() {
        let exit = |code, signal, not_executed| Exit {
            code,
            signal,
            not_executed,
        };
        assert_eq!(exit(Some(3), None, None).to_string(), "exit code 3");
        assert_eq!(exit(None, Some(9), None).to_string(), "killed by signal 9");
        assert_eq!(
            exit(None, None, Some(2)).to_string(),
            "could not be run: No such file or directory"
        );
    }
}
