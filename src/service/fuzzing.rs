//! Ways in for tests that throw hostile bytes at the readers of the app's socket. Each reads them as a
//! connection would and does nothing that is asked; it panics if a promise of a reader's is broken.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::domains;
use super::environment::{self, SpawnEnv};
use super::folders::{Mode, Sources};
use super::frame;
use super::names::{mount_name, session_name};
use super::request::{Params, Request, Spawn};

/// What an app says until it is cut off or says what no connection survives: the method of each
/// message that is a request.
pub fn frames(bytes: &[u8]) -> Vec<Option<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let Ok(runtime) = runtime else {
        panic!("there is no runtime");
    };
    let mut rest = bytes;
    let mut read = Vec::new();
    while let Ok(Some(body)) = runtime.block_on(frame::read(&mut rest)) {
        assert!((1..=frame::LONGEST).contains(&body.len()));
        read.push(match Request::read(&body) {
            Ok(request) => {
                is_scalar(request.id.as_ref());
                Some(request.method)
            }
            Err(unread) => {
                assert!(unread.why.starts_with("parse error"), "{}", unread.why);
                is_scalar(unread.id.as_ref());
                None
            }
        });
    }
    read
}

fn is_scalar(id: Option<&Value>) {
    let is_odd = |id: &Value| id.is_null() || id.is_array() || id.is_object();
    assert!(!id.is_some_and(is_odd), "an id that no reply can have");
}

/// One request, read as if it were each of those that have something to read. How many made sense of it.
pub fn params(bytes: &[u8]) -> usize {
    let readers: [fn(Params) -> bool; 4] = [spawn, mount_path, read_file, names];
    let sensible = readers.iter().filter(|reader| {
        let request = Request::read(bytes);
        request.is_ok_and(|request| reader(request.params))
    });
    sensible.count()
}

fn spawn(params: Params) -> bool {
    let Ok(spawn) = Spawn::of(params) else {
        return false;
    };
    let words = spawn.args.iter().chain([&spawn.command]);
    assert!(words.into_iter().all(|word| !word.contains('\0')));
    for (name, mount) in spawn.mounts.iter().flatten() {
        mount_point(name);
        source(&mount.path);
        Mode::of(mount.mode.as_deref());
    }
    let list = spawn.allowed_domains.as_deref();
    let is_claude = environment::is_claude(&spawn.command);
    let rules = domains::rules(list, is_claude, Some(&spawn.command)).rules;
    let all = rules
        .allow
        .iter()
        .any(|rule| rule.pattern.to_string().starts_with('*'));
    assert!(!all || list.is_none_or(|list| list.iter().any(|entry| entry.contains('*'))));
    let Some(session) = session(&spawn.name) else {
        return false;
    };
    let sent = serde_json::to_value(&spawn.env).unwrap_or_default();
    let surroundings = SpawnEnv {
        session: &session,
        command: &spawn.command,
        sent: sent.as_object(),
        lang: None,
        has_list: !domains::is_unrestricted(list),
    };
    for (name, value) in environment::variables(&surroundings, None) {
        let name = name.to_string_lossy();
        assert!(!name.is_empty() && !name.contains(['=', '\0']), "{name}");
        assert!(
            !value.is_empty() && !value.to_string_lossy().contains('\0'),
            "{name}"
        );
        assert!(
            !["LD_PRELOAD", "NODE_OPTIONS", "SSH_AUTH_SOCK"].contains(&&*name),
            "{name}"
        );
    }
    true
}

fn mount_path(mut params: Params) -> bool {
    Mode::of(params.text("mode").as_deref());
    let place = params
        .text("mountName")
        .is_some_and(|name| mount_point(&name));
    params.text("subpath").is_some_and(|path| source(&path)) && place
}

fn read_file(mut params: Params) -> bool {
    let session_of = |name: Option<String>| name.is_some_and(|name| session(&name).is_some());
    session_of(params.text("processName")) && params.text("filePath").is_some()
}

fn names(mut params: Params) -> bool {
    params.number("lowWaterBytes");
    params.number("onlyIfFreeBytesBelow");
    params.number("sessionTmpOlderThanSeconds");
    params.word("signal");
    let names = params.list("names").unwrap_or_default();
    names.iter().filter(|name| session(name).is_some()).count() > 0
}

/// A session's name is one part of a path, and never one that leads elsewhere.
fn session(text: &str) -> Option<crate::policy::SessionId> {
    let name = session_name(text).ok()?;
    assert_eq!(name.as_str(), text);
    let path = Path::new(text);
    let mut parts = path.components();
    assert!(matches!(parts.next(), Some(Component::Normal(part)) if part == text));
    assert!(parts.next().is_none() && text.len() <= 128 && !text.starts_with('.'));
    Some(name)
}

/// A mount's name stays below the folder of mounts.
fn mount_point(text: &str) -> bool {
    let Ok(name) = mount_name(text) else {
        return false;
    };
    assert_eq!(name.as_str(), text);
    let parts = || Path::new(text).components();
    assert!(parts().all(|part| matches!(part, Component::Normal(_))));
    assert_eq!(parts().count(), name.depth());
    true
}

/// Where a folder is looked for is said without `..`.
fn source(text: &str) -> bool {
    let sources = Sources {
        home: PathBuf::from("/home/u"),
        allow_home: false,
        own: Vec::new(),
        app_data: None,
        written: Default::default(),
    };
    let Ok(candidates) = sources.candidates(text) else {
        return false;
    };
    for path in &candidates {
        assert!(path.is_absolute(), "{}", path.display());
        assert!(path.components().all(|part| part != Component::ParentDir));
    }
    !candidates.is_empty()
}
