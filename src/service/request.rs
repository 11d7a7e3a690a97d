//! What the app asks, read tolerantly: it grows new words every month, and leaves out old ones.

use serde_json::{Map, Value};

/// One question.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) params: Params,
    pub(super) id: Option<Value>,
}

/// A question that cannot be read; as much of it as is needed to answer.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) why: String,
    pub(super) id: Option<Value>,
}

impl Request {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Unread> {
        let unread = |why: String, id| Unread {
            why: format!("parse error: {why}"),
            id,
        };
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| unread(error.to_string(), None))?;
        let Value::Object(mut whole) = value else {
            return Err(unread("a request is an object".to_owned(), None));
        };
        let is_plain = |id: &Value| !(id.is_null() || id.is_array() || id.is_object());
        let id = whole.remove("id").filter(is_plain);
        let Some(Value::String(method)) = whole.remove("method") else {
            return Err(unread("a request names a method".to_owned(), id));
        };
        let params = match whole.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(unread("params are an object".to_owned(), id)),
        };
        let params = Params(params);
        Ok(Self { method, params, id })
    }
}

/// What comes with a question, by name. What is not of the expected kind counts as not there.
#[derive(Debug, Default)]
pub(super) struct Params(Map<String, Value>);

impl Params {
    /// The names alone, which tell nothing.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
        names.join(", ")
    }

    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The same, left where it is.
    pub(super) fn look(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// The same, for what may also be written as a number.
    pub(super) fn word(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    pub(super) fn needed(&mut self, name: &str) -> Result<String, String> {
        let text = self.text(name).filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("`{name}` is missing"))
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let value = self.0.get(name)?;
        let rounded = || value.as_f64().filter(|it| *it >= 0.0).map(|it| it as u64);
        value.as_u64().or_else(rounded)
    }

    pub(super) fn list(&mut self, name: &str) -> Option<Vec<String>> {
        let Value::Array(values) = self.0.remove(name)? else {
            return None;
        };
        let texts = values.into_iter().filter_map(|value| match value {
            Value::String(text) => Some(text),
            _ => None,
        });
        Some(texts.collect())
    }

    fn object(&mut self, name: &str) -> Option<Map<String, Value>> {
        match self.0.remove(name)? {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }
}

/// A folder that a program is to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) path: String,
    pub(super) mode: Option<String>,
}

/// A program to be started.
#[derive(Debug, Default)]
pub(super) struct Spawn {
    /// Empty when the app leaves it to us.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) cwd: Option<String>,
    pub(super) env: Map<String, Value>,
    /// By name; nothing is to be changed when there is no such list.
    pub(super) mounts: Option<Vec<(String, Mount)>>,
    pub(super) allowed_domains: Option<Vec<String>>,
    pub(super) one_shot: bool,
    pub(super) oauth_token: Option<String>,
}

impl Spawn {
    pub(super) fn of(mut params: Params) -> Result<Self, String> {
        let spawn = Self {
            id: params.word("id").unwrap_or_default(),
            name: params.needed("name")?,
            command: params.needed("command")?,
            args: params.list("args").unwrap_or_default(),
            cwd: params.text("cwd").filter(|cwd| !cwd.is_empty()),
            env: params.object("env").unwrap_or_default(),
            mounts: params.object("additionalMounts").map(mounts),
            allowed_domains: params.list("allowedDomains"),
            one_shot: params.is("oneShot"),
            oauth_token: params.text("oauthToken").filter(|token| !token.is_empty()),
        };
        let words = spawn.args.iter().chain([&spawn.command]).chain(&spawn.cwd);
        if words.into_iter().any(|word| word.contains('\0')) {
            return Err(
                "a word of the program has a NUL in it, which no program can be given".into(),
            );
        }
        Ok(spawn)
    }
}

/// A mount is a path alone, or a path and a mode.
fn mounts(named: Map<String, Value>) -> Vec<(String, Mount)> {
    let of = |value: Value| match value {
        Value::String(path) => Mount { path, mode: None },
        Value::Object(mut fields) => {
            let mut text = |name: &str| match fields.remove(name) {
                Some(Value::String(text)) => Some(text),
                _ => None,
            };
            let path = text("path").unwrap_or_default();
            let mode = text("mode");
            Mount { path, mode }
        }
        _ => Mount {
            path: String::new(),
            mode: None,
        },
    };
    named
        .into_iter()
        .map(|(name, value)| (name, of(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Request, Unread> {
        Request::read(text.as_bytes())
    }

    #[test]
    fn ids_come_back_as_they_were() {
        for (text, id) in [("0", "0"), ("\"a\"", "\"a\""), ("1.5", "1.5")] {
            let request = read(&format!(r#"{{"method":"m","id":{text}}}"#)).unwrap();
            assert_eq!(request.id.unwrap().to_string(), id);
        }
        assert!(read(r#"{"method":"m","id":null}"#).unwrap().id.is_none());
        assert_eq!(read(r#"{"id":7}"#).unwrap_err().id, Some(7.into()));
    }

    #[test]
    fn what_is_no_question_is_told_from_one() {
        for text in [
            "",
            "{",
            "[1,2]",
            "7",
            r#"{"method":7}"#,
            r#"{"method":"m","params":[]}"#,
        ] {
            let unread = read(text).unwrap_err();
            assert!(
                unread.why.starts_with("parse error"),
                "{text}: {}",
                unread.why
            );
        }
        assert!(Request::read(b"\xff\xfe").is_err());
        let deep = format!(r#"{{"method":"m","params":{}"#, "[".repeat(100_000));
        assert!(read(&deep).is_err());
        for params in ["null", "{}"] {
            read(&format!(r#"{{"method":"m","params":{params}}}"#)).unwrap();
        }
    }

    #[test]
    fn a_program_is_read_from_what_is_there() {
        let text = r#"{"method":"spawn","params":{"id":"a","name":"n","command":"c","args":["x",1,"y"],
            "env":{"A":"1","B":2},"additionalMounts":{"p":"home/p","q":{"path":"q","mode":"ro"},"r":7},
            "sharedCwdPath":false,"new":{"deep":[]}}}"#;
        let spawn = Spawn::of(read(text).unwrap().params).unwrap();
        assert_eq!(spawn.args, ["x", "y"]);
        assert_eq!(spawn.env.len(), 2);
        let mounts = spawn.mounts.unwrap();
        assert_eq!(mounts[0].1.path, "home/p");
        assert_eq!(mounts[1].1.mode.as_deref(), Some("ro"));
        assert_eq!(mounts[2].1.path, "");
        assert!(Spawn::of(Params::default()).unwrap_err().contains("name"));
    }

    #[test]
    fn a_word_with_a_nul_is_refused() {
        let text = r#"{"method":"spawn","params":{"name":"n","command":"c","args":["a\u0000b"]}}"#;
        assert!(Spawn::of(read(text).unwrap().params).is_err());
    }
}
