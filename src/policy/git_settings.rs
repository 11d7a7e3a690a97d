//! Git's settings that cannot make the host's git run a program or write elsewhere. Pure.

use std::path::{Component, Path};

use super::git_config::Entry;
use super::guard;

/// Whether a setting only describes. Everything unknown could run a program one day.
pub(super) fn is_harmless(entry: &Entry, place: &Path) -> bool {
    let key = entry.key.as_str();
    match (entry.section.as_str(), entry.subsection.is_some()) {
        ("user" | "author" | "committer", false) => {
            matches!(key, "name" | "email" | "useconfigonly" | "signingkey")
        }
        ("core", false) => match key {
            "worktree" => is_submodule_worktree(entry.text(), place),
            _ => CORE.contains(&key),
        },
        ("extensions", false) => match key {
            "refstorage" => matches!(entry.text(), b"files" | b"reftable"),
            _ => EXTENSIONS.contains(&key),
        },
        ("branch", true) => match key {
            "remote" | "pushremote" => is_plain_address(entry.text()),
            _ => matches!(key, "merge" | "rebase" | "description"),
        },
        ("remote", true) => match key {
            "url" | "pushurl" => is_plain_address(entry.text()),
            _ => REMOTE.contains(&key),
        },
        ("remote", false) => key == "pushdefault" && is_plain_address(entry.text()),
        ("submodule", true) => match key {
            "url" => is_plain_address(entry.text()),
            "update" => matches!(entry.text(), b"checkout" | b"rebase" | b"merge" | b"none"),
            _ => SUBMODULE.contains(&key),
        },
        ("submodule", false) => matches!(key, "active" | "recurse" | "fetchjobs"),
        ("color" | "advice" | "column", _) => true,
        ("init", false) => key == "defaultbranch",
        ("pull", false) => matches!(key, "rebase" | "ff"),
        ("push", false) => PUSH.contains(&key),
        ("fetch", false) => FETCH.contains(&key),
        ("merge", false) => matches!(key, "conflictstyle" | "ff" | "log" | "stat" | "renames"),
        ("rebase", false) => REBASE.contains(&key),
        ("rerere", false) => matches!(key, "enabled" | "autoupdate"),
        // Named one by one: `gc.recentObjectsHook` is a command.
        ("gc", false) => GC.contains(&key),
        ("index", false) => matches!(key, "sparse" | "version" | "threads" | "skiphash"),
        ("commit", false) => matches!(key, "gpgsign" | "verbose" | "status" | "cleanup"),
        ("tag", false) => matches!(key, "gpgsign" | "sort"),
        ("diff", false) => DIFF.contains(&key),
        ("status", false) => STATUS.contains(&key),
        ("maintenance", false) => matches!(key, "auto" | "strategy"),
        ("feature", false) => matches!(key, "manyfiles" | "experimental"),
        _ => false,
    }
}

const CORE: &[&str] = &[
    "repositoryformatversion",
    "filemode",
    "bare",
    "logallrefupdates",
    "ignorecase",
    "precomposeunicode",
    "symlinks",
    "autocrlf",
    "safecrlf",
    "eol",
    "sparsecheckout",
    "sparsecheckoutcone",
    "abbrev",
    "compression",
    "loosecompression",
    "quotepath",
    "commentchar",
    "untrackedcache",
    "preloadindex",
    "checkstat",
    "trustctime",
    "whitespace",
    "bigfilethreshold",
    "multipackindex",
    "commitgraph",
];
const EXTENSIONS: &[&str] = &[
    "objectformat",
    "compatobjectformat",
    "worktreeconfig",
    "relativeworktrees",
    "partialclone",
    "preciousobjects",
    "noop",
];
const REMOTE: &[&str] = &[
    "fetch",
    "push",
    "tagopt",
    "prune",
    "prunetags",
    "mirror",
    "promisor",
    "partialclonefilter",
    "skipdefaultupdate",
    "skipfetchall",
    "followremotehead",
];
const SUBMODULE: &[&str] = &[
    "active",
    "branch",
    "path",
    "ignore",
    "shallow",
    "fetchrecursesubmodules",
];
const PUSH: &[&str] = &[
    "default",
    "autosetupremote",
    "followtags",
    "recursesubmodules",
    "useforceifincludes",
    "negotiate",
];
const FETCH: &[&str] = &[
    "prune",
    "prunetags",
    "all",
    "output",
    "parallel",
    "fsckobjects",
    "recursesubmodules",
    "unpacklimit",
    "writecommitgraph",
    "showforcedupdates",
    "negotiationalgorithm",
];
const REBASE: &[&str] = &[
    "autosquash",
    "autostash",
    "updaterefs",
    "stat",
    "abbreviatecommands",
    "missingcommitscheck",
    "reschedulefailedexec",
];
const GC: &[&str] = &[
    "auto",
    "autodetach",
    "autopacklimit",
    "pruneexpire",
    "worktreepruneexpire",
    "reflogexpire",
    "reflogexpireunreachable",
    "packrefs",
    "writecommitgraph",
    "aggressivedepth",
    "aggressivewindow",
    "cruftpacks",
    "logexpiry",
];
const DIFF: &[&str] = &[
    "renames",
    "renamelimit",
    "algorithm",
    "colormoved",
    "mnemonicprefix",
    "noprefix",
    "context",
    "submodule",
    "ignoresubmodules",
];
const STATUS: &[&str] = &[
    "showuntrackedfiles",
    "short",
    "branch",
    "submodulesummary",
    "relativepaths",
    "showstash",
    "renames",
];

/// An address that git handles itself: no `<helper>::`, no option in disguise, no unknown scheme.
fn is_plain_address(address: &[u8]) -> bool {
    if address.starts_with(b"-") || address.iter().any(|b| *b < b' ') {
        return false;
    }
    if contains(address, b"::") {
        // An IPv6 host has `::` too, but inside brackets and after a scheme.
        let scheme_first = KNOWN_SCHEMES.iter().any(|s| address.starts_with(s));
        return scheme_first && !dash_host(address);
    }
    match find(address, b"://") {
        Some(_) => KNOWN_SCHEMES.iter().any(|s| address.starts_with(s)) && !dash_host(address),
        None => true,
    }
}

const KNOWN_SCHEMES: &[&[u8]] = &[
    b"http://",
    b"https://",
    b"ssh://",
    b"git+ssh://",
    b"git://",
    b"file://",
];

/// `ssh://-oProxyCommand=...` was once handed to ssh as an option.
fn dash_host(address: &[u8]) -> bool {
    find(address, b"://").is_some_and(|at| address.get(at + 3) == Some(&b'-'))
}

/// Git writes `core.worktree` for submodules only, as a way from the module's directory back to
/// a folder of the same project. Anything else could make the host's git write elsewhere.
fn is_submodule_worktree(value: &[u8], place: &Path) -> bool {
    let Ok(value) = std::str::from_utf8(value) else {
        return false;
    };
    let mut at: Vec<&std::ffi::OsStr> = Vec::new();
    for part in place.components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::CurDir => {}
            _ => return false,
        }
    }
    if !at.windows(2).any(|w| w[0] == ".git" && w[1] == "modules") {
        return false;
    }
    for part in Path::new(value).components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::CurDir => {}
            Component::ParentDir if !at.is_empty() => drop(at.pop()),
            _ => return false,
        }
    }
    !at.iter()
        .any(|name| matches!(&*guard::fold(name), ".git" | "hooks"))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    find(text, what).is_some()
}
