//! Words of a policy file that are checked while they are read, so that the parser's own
//! line and caret point at the wrong one.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use super::egress::{HostPattern, Rate, SecretSpec, UpstreamChoice};
use super::{Bytes, Net, NetMode};

macro_rules! checked_word {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
        )]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            pub fn parse(text: impl Into<String>) -> Result<Self, String> {
                let text = text.into();
                let check: fn(&str) -> Result<(), String> = $check;
                check(&text).map(|()| Self(text))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.0
            }
        }
    };
}

checked_word!(
    /// What a policy is called: 1 to 63 of a-z, 0-9 and `-`.
    PolicyName,
    |text| {
        let fits = matches!(text.len(), 1..=63)
            && !text.starts_with('-')
            && text
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        fits.then_some(()).ok_or_else(|| {
            format!("{text:?} is not a policy name: use 1 to 63 of a-z, 0-9 and `-`")
        })
    }
);

checked_word!(
    /// One sentence for people; it is printed on terminals, so it holds no control characters.
    Sentence,
    |text| {
        if text.chars().any(char::is_control) {
            return Err(format!("{text:?} contains a control character"));
        }
        (text.len() <= 400)
            .then_some(())
            .ok_or_else(|| "a sentence of more than 400 bytes".to_owned())
    }
);

checked_word!(
    /// A guarded path, matched at any depth: `.envrc`, `.vscode/tasks.json`, `.idea/*`.
    GuardName,
    |text| {
        let refuse = |why: &str| Err(format!("{text:?} cannot be guarded: {why}"));
        if text.is_empty() || text.len() > 1024 {
            return refuse("a name has 1 to 1024 bytes");
        }
        if text.chars().any(char::is_control) {
            return refuse("it contains a control character");
        }
        if text.starts_with('/') {
            return refuse("names are relative and match at any depth; leave out the first `/`");
        }
        for part in text.split('/') {
            match part {
                "" => return refuse("it has an empty part"),
                "." | ".." => return refuse("`.` and `..` never match"),
                "*" => {}
                part if part.contains('*') => {
                    return refuse("`*` stands for a whole part, not for a piece of one");
                }
                _ => {}
            }
        }
        if text.split('/').all(|part| part == "*") {
            return refuse("it would match everything");
        }
        Ok(())
    }
);

checked_word!(
    /// The name of an environment variable.
    EnvName,
    variable
);

checked_word!(
    /// The name of an environment variable; a trailing `*` stands for any ending.
    EnvPattern,
    |text| {
        if text == "*" {
            return Err("`*` would pass every variable, secrets too; list their names".to_owned());
        }
        variable(text.strip_suffix('*').unwrap_or(text))
    }
);

fn variable(text: &str) -> Result<(), String> {
    let fits = matches!(text.len(), 1..=255)
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    fits.then_some(())
        .ok_or_else(|| format!("{text:?} is not the name of a variable"))
}

/// A limit as it is written: a number, or the word `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap<T> {
    None,
    At(T),
}

impl<T> Cap<T> {
    pub fn limit(self) -> Option<T> {
        match self {
            Self::None => None,
            Self::At(limit) => Some(limit),
        }
    }
}

/// What an environment variable is given: any text without NUL.
pub(super) fn values<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<std::collections::BTreeMap<EnvName, String>>, D::Error> {
    let map = std::collections::BTreeMap::<EnvName, String>::deserialize(from)?;
    match map.iter().find(|(_, value)| value.contains('\0')) {
        Some((name, _)) => Err(de::Error::custom(format!(
            "the value of `{}` contains a NUL byte",
            name.as_str()
        ))),
        None => Ok(Some(map)),
    }
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Bytes>, D::Error> {
    let text = String::deserialize(from)?;
    Bytes::parse(&text).map(Some).map_err(de::Error::custom)
}

pub(super) fn net_mode<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NetMode>, D::Error> {
    let text = String::deserialize(from)?;
    NetMode::parse(&text)
        .map(Some)
        .ok_or_else(|| de::Error::unknown_variant(&text, &["none", "allow", "host"]))
}

/// A host that is forbidden; without ports it is so at every port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct DeniedPattern(pub HostPattern);

impl TryFrom<String> for DeniedPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        HostPattern::parse_denied(&text).map(Self)
    }
}

/// A word that may hold a password where none belongs. It is judged when it is laid and not when
/// it is read, because the parser prints the whole line in which a wrong word stands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String", bound = "Self: From<String>")]
pub struct Later<T>(pub Result<T, String>);

impl From<String> for Later<SecretSpec> {
    fn from(text: String) -> Self {
        Self(SecretSpec::parse(&text))
    }
}

impl From<String> for Later<Cap<UpstreamChoice>> {
    fn from(text: String) -> Self {
        Self(match text.as_str() {
            "none" => Ok(Cap::None),
            text => UpstreamChoice::parse(text).map(Cap::At),
        })
    }
}

/// Reads `10M` or `none`.
pub fn net_rate(text: &str) -> Result<Cap<Rate>, String> {
    match text {
        "none" => Ok(Cap::None),
        text => Rate::parse(text).map(Cap::At),
    }
}

pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cap<Rate>>, D::Error> {
    let text = String::deserialize(from)?;
    net_rate(&text).map(Some).map_err(de::Error::custom)
}

pub(super) fn connections<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    struct Connections;

    impl Visitor<'_> for Connections {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number from 1 to {}", Net::MOST_CONNECTIONS)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
            u32::try_from(number)
                .ok()
                .filter(|number| (1..=Net::MOST_CONNECTIONS).contains(number))
                .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
        }
    }

    from.deserialize_any(Connections).map(Some)
}

/// Reads `2h`, `90s`, `1h 30m` or `none`.
pub fn time(text: &str) -> Result<Cap<Duration>, String> {
    if text == "none" {
        return Ok(Cap::None);
    }
    match humantime::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("a time limit of 0 lets nothing run".to_owned()),
        Ok(time) => Ok(Cap::At(time)),
        Err(why) => Err(format!("{text:?} is not a time such as 90s or 2h: {why}")),
    }
}

pub(super) fn timeout<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Cap<Duration>>, D::Error> {
    let text = String::deserialize(from)?;
    time(&text).map(Some).map_err(de::Error::custom)
}

pub(super) fn count<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Cap<NonZeroU64>>, D::Error> {
    struct Count;

    impl Visitor<'_> for Count {
        type Value = Cap<NonZeroU64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a whole number of at least 1, or \"none\"")
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
            u64::try_from(number)
                .ok()
                .and_then(NonZeroU64::new)
                .map(Cap::At)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
            NonZeroU64::new(number)
                .map(Cap::At)
                .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            match text {
                "none" => Ok(Cap::None),
                other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
            }
        }
    }

    from.deserialize_any(Count).map(Some)
}

/// A list short enough that nothing that walks it twice can be made slow.
pub(super) fn list<'de, D, T>(from: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    const LONGEST: usize = 1024;
    let list = Vec::deserialize(from)?;
    if list.len() > LONGEST {
        return Err(de::Error::custom(format!(
            "a list of {} entries; at most {LONGEST} are allowed",
            list.len()
        )));
    }
    Ok(Some(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_names_are_relative_and_whole() {
        for good in [".envrc", ".vscode/tasks.json", ".idea/*", "*/.envrc", "ü"] {
            assert!(GuardName::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "", "/a", "a//b", "a/", "../a", "./a", "*.sh", "*", "*/*", "a\u{1b}",
        ] {
            assert!(GuardName::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_have_plain_names_and_the_whole_environment_is_none() {
        for good in ["LANG", "LC_*", "_x", "http_proxy"] {
            assert!(EnvPattern::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "A=B", "1A", "A*B", "**", "A B", "Ä", "A\0"] {
            assert!(EnvPattern::parse(bad).is_err(), "{bad}");
        }
        assert!(EnvName::parse("LC_*").is_err());
    }
}
