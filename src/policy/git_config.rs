//! Reads git's configuration and tells settings that only describe from settings that run
//! programs. Stricter than git: what git might read in another way is refused. Pure.

use std::path::Path;

use super::git_settings::is_harmless;

/// More than any hand-written configuration; less than anything worth waiting for.
pub const SIZE_LIMIT: usize = 256 * 1024;

/// One setting. Section and key are in lower case, as git compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub section: String,
    pub subsection: Option<Vec<u8>>,
    pub key: String,
    /// `None` for a key without `=`, which git takes for true.
    pub value: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is not git configuration")]
pub struct Malformed {
    pub line: usize,
}

/// Whether `new` may replace `old`: what is not harmless must be as it was. Otherwise the key.
/// `place` is the configuration's own directory, relative to the door.
pub fn check_change(old: &[u8], new: &[u8], place: &Path) -> Result<(), String> {
    let new = parse(new).map_err(|error| error.to_string())?;
    // Git itself stops at a file it cannot read, so there is nothing in it to be kept.
    let old = parse(old).unwrap_or_default();
    let watched = |entries: Vec<Entry>| -> Vec<Entry> {
        let mut kept: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !is_harmless(entry, place))
            .collect();
        // Between different keys order says nothing; the sort keeps it among equal ones.
        kept.sort_by_key(Entry::name);
        kept
    };
    let (old, new) = (watched(old), watched(new));
    match new.iter().find(|entry| !old.contains(entry)) {
        Some(entry) => Err(entry.name()),
        None if old == new => Ok(()),
        None => Err(old.first().map_or_else(String::new, Entry::name)),
    }
}

/// Whether git would find nothing in `content` that could run a program.
/// What git cannot read it does not obey.
pub fn is_all_harmless(content: &[u8], place: &Path) -> bool {
    match parse(content) {
        Ok(entries) => entries.iter().all(|entry| is_harmless(entry, place)),
        Err(_) => !could_be_read_otherwise(content),
    }
}

/// A file of which our reader says no but git might say yes must not pass for harmless.
fn could_be_read_otherwise(content: &[u8]) -> bool {
    content.contains(&b'[') || content.len() > SIZE_LIMIT
}

impl Entry {
    pub fn name(&self) -> String {
        match &self.subsection {
            Some(sub) => format!(
                "{}.{}.{}",
                self.section,
                String::from_utf8_lossy(sub),
                self.key
            ),
            None => format!("{}.{}", self.section, self.key),
        }
    }

    pub(super) fn text(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }
}

/// Reads a whole file.
pub fn parse(content: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut reader = Reader {
        rest: content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content),
        line: 1,
    };
    if content.len() > SIZE_LIMIT {
        return reader.fail();
    }
    let mut entries = Vec::new();
    let mut section: Option<(String, Option<Vec<u8>>)> = None;
    while let Some(byte) = reader.peek() {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => drop(reader.take()?),
            b'#' | b';' => reader.skip_line()?,
            b'[' => section = Some(reader.header()?),
            _ if byte.is_ascii_alphabetic() => {
                let Some((name, sub)) = &section else {
                    return reader.fail();
                };
                let (key, value) = reader.setting()?;
                entries.push(Entry {
                    section: name.clone(),
                    subsection: sub.clone(),
                    key,
                    value,
                });
            }
            _ => return reader.fail(),
        }
    }
    Ok(entries)
}

struct Reader<'a> {
    rest: &'a [u8],
    line: usize,
}

impl Reader<'_> {
    fn fail<T>(&self) -> Result<T, Malformed> {
        Err(Malformed { line: self.line })
    }

    fn peek(&self) -> Option<u8> {
        match self.rest {
            [b'\r', b'\n', ..] => Some(b'\n'),
            [first, ..] => Some(*first),
            [] => None,
        }
    }

    /// The next byte; a lone carriage return or another control character is nobody's
    /// configuration.
    fn take(&mut self) -> Result<u8, Malformed> {
        let (byte, used) = match self.rest {
            [b'\r', b'\n', ..] => (b'\n', 2),
            [first, ..] => (*first, 1),
            [] => return self.fail(),
        };
        if (byte < b' ' && !matches!(byte, b'\t' | b'\n')) || byte == 0x7f {
            return self.fail();
        }
        self.rest = &self.rest[used..];
        self.line += usize::from(byte == b'\n');
        Ok(byte)
    }

    fn skip_line(&mut self) -> Result<(), Malformed> {
        while self.peek().is_some() {
            if self.take()? == b'\n' {
                break;
            }
        }
        Ok(())
    }

    /// `[section]`, `[section "sub"]` or the old `[section.sub]`.
    fn header(&mut self) -> Result<(String, Option<Vec<u8>>), Malformed> {
        self.take()?;
        let mut name = String::new();
        loop {
            match self.take()? {
                b']' => break,
                b' ' | b'\t' => {
                    let sub = self.quoted_subsection()?;
                    return if name.is_empty() || name.contains('.') {
                        self.fail()
                    } else {
                        Ok((name, Some(sub)))
                    };
                }
                byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') => {
                    name.push(char::from(byte.to_ascii_lowercase()));
                }
                _ => return self.fail(),
            }
        }
        match name.split_once('.') {
            Some(("", _)) => self.fail(),
            Some((section, sub)) => Ok((section.to_owned(), Some(sub.as_bytes().to_vec()))),
            None if name.is_empty() => self.fail(),
            None => Ok((name, None)),
        }
    }

    fn quoted_subsection(&mut self) -> Result<Vec<u8>, Malformed> {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.take()?;
        }
        if self.take()? != b'"' {
            return self.fail();
        }
        let mut sub = Vec::new();
        loop {
            match self.take()? {
                b'\n' => return self.fail(),
                b'"' => break,
                b'\\' => match self.take()? {
                    b'\n' => return self.fail(),
                    other => sub.push(other),
                },
                other => sub.push(other),
            }
        }
        if self.take()? != b']' {
            return self.fail();
        }
        Ok(sub)
    }

    fn setting(&mut self) -> Result<(String, Option<Vec<u8>>), Malformed> {
        let mut key = String::new();
        while let Some(byte) = self.peek() {
            if !(byte.is_ascii_alphanumeric() || byte == b'-') {
                break;
            }
            key.push(char::from(self.take()?.to_ascii_lowercase()));
        }
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.take()?;
        }
        match self.peek() {
            None | Some(b'\n') => Ok((key, None)),
            Some(b'=') => {
                self.take()?;
                Ok((key, Some(self.value()?)))
            }
            Some(_) => self.fail(),
        }
    }

    fn value(&mut self) -> Result<Vec<u8>, Malformed> {
        let mut value = Vec::new();
        // White space at the end does not count; `solid` is where the last thing that counts ends.
        let (mut quoted, mut solid) = (false, 0);
        loop {
            if self.peek().is_none() {
                break;
            }
            match self.take()? {
                b'\n' if quoted => return self.fail(),
                b'\n' => break,
                b'#' | b';' if !quoted => {
                    self.skip_line()?;
                    break;
                }
                b'"' => {
                    quoted = !quoted;
                    solid = value.len();
                }
                b'\\' => {
                    match self.take()? {
                        b'\n' => continue,
                        b'n' => value.push(b'\n'),
                        b't' => value.push(b'\t'),
                        b'b' => value.push(8),
                        byte @ (b'"' | b'\\') => value.push(byte),
                        _ => return self.fail(),
                    }
                    solid = value.len();
                }
                byte @ (b' ' | b'\t') if !quoted => {
                    if !value.is_empty() {
                        value.push(byte);
                    }
                }
                byte => {
                    value.push(byte);
                    solid = value.len();
                }
            }
        }
        if quoted {
            return self.fail();
        }
        value.truncate(solid);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(text: &str) -> Option<Vec<u8>> {
        parse(text.as_bytes()).unwrap().pop().unwrap().value
    }

    fn change(old: &str, new: &str) -> Result<(), String> {
        check_change(old.as_bytes(), new.as_bytes(), Path::new(".git"))
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        assert_eq!(value("[a]\nb = c d  # x"), Some(b"c d".to_vec()));
        assert_eq!(value("[a]\nb = \" c;\" ; x"), Some(b" c;".to_vec()));
        assert_eq!(value("[a] b=1\\\n2"), Some(b"12".to_vec()));
        assert_eq!(value("[a]\r\nb = c\\n\r\n"), Some(b"c\n".to_vec()));
        assert_eq!(value("[a]\nb"), None);
        assert_eq!(value("[a]\nb="), Some(Vec::new()));
    }

    #[test]
    fn sections_keep_their_case_rules() {
        let all = parse(b"[Remote \"Ori]\\\"gin\"]\nURL=x\n[branch.Main]\nMerge=y").unwrap();
        assert_eq!(all[0].name(), "remote.Ori]\"gin.url");
        assert_eq!(all[1].name(), "branch.main.merge");
    }

    #[test]
    fn what_git_might_read_differently_is_refused() {
        for text in [
            "x=1",
            "[a",
            "[a b]",
            "[a]\n=1",
            "[a]\nb=\"c",
            "[a]\nb=\\x",
            "[a]\nb=c\0d",
            "[a]\n1b=c",
            "[a \"b\nc\"]",
            "[a]\nb=c\rd",
            "[a.b \"c\"]\nd=e",
            "[]\na=b",
            "[a]\nb c",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn everyday_git_work_is_accepted() {
        let init = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\
                    \tlogallrefupdates = true\n";
        assert_eq!(change("", init), Ok(()));
        let cloned = format!(
            "{init}[remote \"origin\"]\n\turl = https://example.org/a.git\n\
             \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\
             \tremote = origin\n\tmerge = refs/heads/main\n[user]\n\tname = A B\n"
        );
        assert_eq!(change(init, &cloned), Ok(()));
        assert_eq!(
            change("", "[submodule \"s\"]\nurl=git@host:a/b\nactive=true"),
            Ok(())
        );
    }

    #[test]
    fn settings_that_run_programs_are_refused_by_name() {
        for (key, text) in [
            ("core.fsmonitor", "[core]\nfsmonitor=/tmp/x"),
            ("core.hookspath", "[core]\nhooksPath=h"),
            ("core.sshcommand", "[CORE]\nsshCommand=x"),
            ("core.worktree", "[core]\nworktree=/home/u"),
            ("include.path", "[include]\npath=x"),
            (
                "includeif.gitdir:/.path",
                "[includeIf \"gitdir:/\"]\npath=x",
            ),
            ("alias.st", "[alias]\nst=!x"),
            ("filter.x.clean", "[filter \"x\"]\nclean=x"),
            ("gc.recentobjectshook", "[gc]\nrecentObjectsHook=x"),
            ("remote.o.url", "[remote \"o\"]\nurl=ext::sh -c x"),
            ("remote.o.url", "[remote \"o\"]\nurl=-x"),
            ("remote.o.url", "[remote \"o\"]\nurl=evil://x"),
            (
                "remote.o.url",
                "[remote \"o\"]\nurl=ssh://-oProxyCommand=x/y",
            ),
            ("remote.o.uploadpack", "[remote \"o\"]\nuploadpack=x"),
            ("branch.m.remote", "[branch \"m\"]\nremote=ext::x"),
            ("submodule.s.update", "[submodule \"s\"]\nupdate=!x"),
            ("credential.helper", "[credential]\nhelper=x"),
            (
                "extensions.refstorage",
                "[extensions]\nrefstorage=files:///x",
            ),
            ("core.fsmonitor", "[user]\nname=x\\\ny\n[core] fsmonitor=x"),
        ] {
            assert_eq!(change("", text), Err(key.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_the_user_set_stays_as_it_was() {
        let old = "[core]\neditor=vim\n[user]\nname=a\n";
        assert_eq!(change(old, "[user]\nname=b\n[core]\neditor=vim\n"), Ok(()));
        assert!(change(old, "[user]\nname=b\n").is_err());
        assert!(change(old, "[core]\neditor=vim\neditor=evil").is_err());
        assert!(change(old, "[core]\neditor=evil").is_err());
        assert!(change(old, "[core]\neditor").is_err());
    }

    #[test]
    fn a_submodule_may_point_back_to_its_folder_and_nowhere_else() {
        let at = |place: &str, value: &str| {
            let text = format!("[core]\nworktree={value}");
            check_change(b"", text.as_bytes(), Path::new(place)).is_ok()
        };
        assert!(at("p/.git/modules/sub", "../../../sub"));
        assert!(!at("p/.git/modules/sub", "../../../../../out"));
        assert!(!at("p/.git/modules/sub", "../../../x/.git/hooks"));
        assert!(!at("p/.git/modules/sub", "/home"));
        assert!(!at("p/.git", "../sub"));
    }

    #[test]
    fn text_that_is_no_configuration_is_not_obeyed() {
        assert!(is_all_harmless(b"port: 80\n", Path::new("x")));
        assert!(!is_all_harmless(b"[core]\nfsmonitor=x\n]", Path::new("x")));
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = check_change(&content, &content, Path::new("a"));
        }

        #[test]
        fn whatever_is_accepted_carries_no_program(
            content in "(\\[core\\]|\\[core \"x\"\\]|\n| |\t|\"|\\\\|#|;|=|fsmonitor|a|\r){0,40}"
        ) {
            if change("", &content).is_ok() {
                let entries = parse(content.as_bytes()).unwrap();
                prop_assert!(!entries.iter().any(|e| e.key == "fsmonitor" && e.section == "core"
                    && e.subsection.is_none()));
            }
        }
    }
}
