//! Which names in a writable mount belong to the host's tools. Pure: what lies on disk is asked
//! of the caller.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use super::Guard;

/// The rule that guards git's configuration; what it says decides, not only its name.
pub const GIT_CONFIG: &str = "git config";
/// The rule that guards the files which send git elsewhere.
pub const GIT_POINTER: &str = "git pointer";
/// The rule that guards git's hooks.
pub const GIT_HOOKS: &str = "git hooks";

/// The rule of mounts in which programs delete only what they have made.
pub const KEEP: &str = "mode keep";

/// The rules of one box, ready to be asked.
#[derive(Debug, Clone, Default)]
pub struct GuardRules {
    rules: Vec<Rule>,
    git: bool,
}

/// A path pattern that is matched at any depth.
#[derive(Debug, Clone)]
pub struct Rule {
    text: String,
    parts: Vec<Part>,
}

/// One component of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Any,
    Name(String),
}

/// What makes git take a directory for a repository, or for the shared part of one: it asks for
/// `HEAD` in the first and for `objects` and `refs` in the second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GitDirectory {
    pub named_git: bool,
    pub head: bool,
    pub objects: bool,
    pub refs: bool,
}

impl GitDirectory {
    /// Whether git may obey `config` and run `hooks` here.
    pub fn is_obeyed(self) -> bool {
        self.named_git || self.head || (self.objects && self.refs)
    }

    /// The same directory after an entry called `name` has come into being.
    #[must_use]
    pub fn with(mut self, name: &str) -> Self {
        match name {
            "head" => self.head = true,
            "objects" => self.objects = true,
            "refs" => self.refs = true,
            _ => {}
        }
        self
    }
}

/// A path's components, folded the way the most forgiving filesystem folds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names<'a>(Vec<Cow<'a, str>>);

impl<'a> Names<'a> {
    pub fn of(path: &'a Path) -> Self {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(fold(name)),
            _ => None,
        });
        Self(names.collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn last(&self) -> &str {
        self.0.last().map_or("", |name| name)
    }

    pub fn name_at(&self, index: usize) -> &str {
        self.0.get(index).map_or("", |name| name)
    }
}

/// A name as a case-insensitive, normalising or DOS-like filesystem would take it: `.GIT`,
/// `.g<zero width>it` and `.git.` all reach `.git` on some of them.
pub fn fold(name: &OsStr) -> Cow<'_, str> {
    let lossy = String::from_utf8_lossy(name.as_bytes());
    let plain = lossy
        .bytes()
        .all(|b| b.is_ascii() && !b.is_ascii_uppercase());
    if plain && !lossy.ends_with(['.', ' ']) {
        return lossy;
    }
    let folded: String = lossy
        .chars()
        .filter(|c| !is_ignorable(*c))
        .flat_map(|c| {
            expanded(c)
                .chars()
                .chain(expanded(c).is_empty().then_some(c))
        })
        .flat_map(char::to_lowercase)
        .collect();
    let trimmed = folded.trim_end_matches(['.', ' ']);
    Cow::Owned(if trimmed.is_empty() {
        folded
    } else {
        trimmed.to_owned()
    })
}

/// Characters that stand for others when case does not count, besides plain upper case.
fn expanded(c: char) -> &'static str {
    match c {
        '\u{17f}' => "s",
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        '\u{212a}' => "k",
        _ => "",
    }
}

/// Characters that Unicode-aware filesystems skip when they compare names.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

impl GuardRules {
    pub fn new(guard: &Guard) -> Self {
        if !guard.enabled {
            return Self::default();
        }
        let rules = guard.names.iter().map(|text| Rule::new(text));
        let rules = rules.filter(|rule| !rule.parts.is_empty());
        // `git init` must be able to make `.git/hooks` and `.git/config`; whoever watches git's
        // directories by content does not also refuse them by name.
        let known = |rule: &Rule| guard.git && rule.is_git_own();
        Self {
            rules: rules.filter(|rule| !known(rule)).collect(),
            git: guard.git,
        }
    }

    pub fn watches_git(&self) -> bool {
        self.git
    }

    /// The rule that guards this path or something above it.
    pub fn covering(&self, names: &Names<'_>) -> Option<&str> {
        (0..names.len()).find_map(|start| {
            let tail = &names.0[start..];
            let rule = self.rules.iter().find(|rule| rule.covers(tail))?;
            Some(rule.text.as_str())
        })
    }

    /// Rules of which this path is a proper beginning, each with what is still missing.
    pub fn begun<'a>(
        &'a self,
        names: &'a Names<'_>,
    ) -> impl Iterator<Item = (&'a str, &'a [Part])> {
        self.rules.iter().flat_map(move |rule| {
            let most = (rule.parts.len() - 1).min(names.len());
            (1..=most).filter_map(move |have| {
                let tail = &names.0[names.len() - have..];
                let (begin, rest) = rule.parts.split_at(have);
                matches_all(begin, tail).then_some((rule.text.as_str(), rest))
            })
        })
    }

    /// Whether git on the host runs or obeys this path. `look(n)` tells what the directory made
    /// of the first `n` names holds.
    pub fn git_covering(
        &self,
        names: &Names<'_>,
        look: impl Fn(usize) -> GitDirectory,
    ) -> Option<&'static str> {
        if !self.git {
            return None;
        }
        let last = names.len().checked_sub(1)?;
        (1..=last).find_map(|at| match names.name_at(at) {
            "hooks" if at < last => {
                let sample = at + 1 == last && names.last().ends_with(".sample");
                (!sample && look(at).is_obeyed()).then_some(GIT_HOOKS)
            }
            "config" | "config.worktree" if at == last => {
                look(at).is_obeyed().then_some(GIT_CONFIG)
            }
            _ => None,
        })
    }
}

impl Rule {
    fn new(text: &str) -> Self {
        let parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
        let parts = parts.map(|part| match part {
            "*" => Part::Any,
            name => Part::Name(fold(OsStr::new(name)).into_owned()),
        });
        Self {
            text: text.to_owned(),
            parts: parts.collect(),
        }
    }

    fn covers(&self, names: &[Cow<'_, str>]) -> bool {
        self.parts.len() <= names.len() && matches_all(&self.parts, names)
    }

    fn is_git_own(&self) -> bool {
        let is = |at: usize, name: &str| matches!(self.parts.get(at), Some(Part::Name(part)) if part == name);
        is(0, ".git") && (is(1, "hooks") || is(1, "config") || is(1, "config.worktree"))
    }
}

fn matches_all(parts: &[Part], names: &[Cow<'_, str>]) -> bool {
    parts.iter().zip(names).all(|(part, name)| match part {
        Part::Any => true,
        Part::Name(wanted) => wanted == name,
    })
}

/// Whether `name` is one of the entries by which git knows a repository.
/// Whether a file of this name sends git elsewhere: `.git` where it is a file, and `commondir`.
pub fn is_git_pointer(name: &str) -> bool {
    matches!(name, ".git" | "commondir")
}

/// Whether a directory becomes one that git obeys by holding this.
pub fn is_git_marker(name: &str) -> bool {
    matches!(name, "head" | "objects" | "refs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules(names: &[&str]) -> GuardRules {
        GuardRules::new(&Guard {
            enabled: true,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            git: true,
        })
    }

    fn covered(rules: &GuardRules, path: &str) -> bool {
        rules.covering(&Names::of(Path::new(path))).is_some()
    }

    #[test]
    fn a_rule_guards_its_path_and_everything_below_at_any_depth() {
        let rules = rules(&[".vscode/tasks.json", ".envrc", ".claude/*/run"]);
        for path in [
            ".envrc",
            "a/b/.envrc",
            ".envrc/x",
            "p/.vscode/tasks.json",
            ".claude/any/run/x",
        ] {
            assert!(covered(&rules, path), "{path}");
        }
        for path in [
            ".vscode",
            "tasks.json",
            ".vscode/settings.json",
            ".claude/run",
            "x.envrc",
        ] {
            assert!(!covered(&rules, path), "{path}");
        }
    }

    #[test]
    fn spellings_that_some_filesystem_takes_for_the_same_name_are_the_same() {
        let rules = rules(&[".vscode/tasks.json", ".mcp.json"]);
        for path in [
            ".VSCode/Tasks.JSON",
            ".mcp.json.",
            ".m\u{200c}cp.json",
            ".vscode/ta\u{17f}ks.json",
            ".MCP.j\u{17f}on ",
        ] {
            assert!(covered(&rules, path), "{path}");
        }
    }

    #[test]
    fn a_folder_that_could_complete_a_rule_is_known_with_what_it_lacks() {
        let rules = rules(&[".vscode/tasks.json", ".config/fish/config.fish"]);
        let rest = |path: &str| {
            let names = Names::of(Path::new(path));
            rules.begun(&names).map(|(_, rest)| rest.len()).next()
        };
        assert_eq!(rest("a/.vscode"), Some(1));
        assert_eq!(rest("a/.config"), Some(2));
        assert_eq!(rest(".config/fish"), Some(1));
        assert_eq!(rest("fish"), None);
        assert_eq!(rest(".vscode/tasks.json"), None);
    }

    #[test]
    fn git_directories_are_known_by_what_they_hold() {
        let rules = rules(&[]);
        let with = |path: &str, holds: GitDirectory| {
            rules.git_covering(&Names::of(Path::new(path)), |_| holds)
        };
        let bare = GitDirectory::default().with("head");
        assert_eq!(with("w/x/config", bare), Some("git config"));
        assert_eq!(with("w/x/config", GitDirectory::default()), None);
        assert_eq!(with("w/x/hooks/post-checkout", bare), Some("git hooks"));
        assert_eq!(with("w/x/hooks/a.sample", bare), None);
        assert_eq!(with("w/x/hooks/d/a.sample", bare), Some("git hooks"));
        assert_eq!(with("w/x/hooks", bare), None);
        assert_eq!(
            with("w/src/hooks/useThing.ts", GitDirectory::default()),
            None
        );
    }

    #[test]
    fn names_that_git_needs_are_left_to_the_look_inside() {
        let rules = rules(&[".git/hooks", ".git/config"]);
        assert!(!covered(&rules, ".git/hooks"));
        let without = GuardRules::new(&Guard {
            enabled: true,
            names: vec![".git/hooks".to_owned()],
            git: false,
        });
        assert!(covered(&without, ".git/hooks/x"));
    }

    #[test]
    fn a_disabled_guard_guards_nothing() {
        let rules = GuardRules::new(&Guard {
            enabled: false,
            names: vec![".envrc".to_owned()],
            git: true,
        });
        assert!(!covered(&rules, ".envrc") && !rules.watches_git());
    }

    proptest! {
        #[test]
        fn no_path_and_no_rule_makes_it_panic(rule in ".{0,40}", path in ".{0,80}") {
            let rules = rules(&[&rule]);
            let names = Names::of(Path::new(&path));
            let _ = rules.covering(&names);
            let _ = rules.begun(&names).count();
            let _ = rules.git_covering(&names, |_| GitDirectory::default());
        }
    }
}
