//! Files of sessions as a power cut, a broken disk or somebody else leaves them: cut, empty, full of
//! something else, or not files at all. Every command ends and tells, follows no link, and touches
//! nothing but what is the session's own.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

use crate::damage::{Damage, Outside, SECRET, clear, contents, dead_socket, replacements};
use crate::ground::{Ground, eventually};
use crate::support::{Ran, exists, is_root};

/// What a command said, which must have ended by itself and told no secret.
#[track_caller]
fn bounded(ground: &Ground, words: &[&str], what: &str) -> Ran {
    let ran = ground.say(words);
    let ended_itself = ran.code == 0 || ran.code == 1;
    assert!(ended_itself, "{what}: {words:?}: {ran:?}");
    for said in [&ran.out, &ran.err] {
        assert!(!said.contains(SECRET), "{what}: {words:?}: {said}");
        assert!(!said.contains("panicked"), "{what}: {words:?}: {said}");
    }
    let says_why = ran.err.contains("error: ") || words.contains(&"--verify");
    assert!(ran.code == 0 || says_why, "{what}: {words:?}: {ran:?}");
    ran
}

/// The commands that look at everything. None of them fails because of one session.
#[track_caller]
fn all_look(ground: &Ground, what: &str) {
    for words in [
        &["ls"][..],
        &["ls", "-a"],
        &["ls", "-a", "--json"],
        &["status"],
        &["stats"],
        &["gc"],
        &["history"],
    ] {
        let ran = bounded(ground, words, what);
        assert_eq!(ran.code, 0, "{what}: {words:?}: {ran:?}");
    }
    bounded(ground, &["history", "--verify"], what);
}

/// Two sessions that have nothing to do with it.
struct Others {
    files: Vec<String>,
}

impl Others {
    fn start(ground: &Ground) -> Self {
        ground.sleeper("alive");
        let script = "echo said; echo work > $HOME/mnt/outputs/result";
        ground.start(&["--name", "good"], &["sh", "-c", script]);
        ground.becomes("good", "ended");
        let mut others = Self { files: Vec::new() };
        others.files = Self::now(ground);
        others
    }

    fn now(ground: &Ground) -> Vec<String> {
        let folder = ground.folder("good");
        let files = ["record.json", "log.0", "outputs/result"].map(|name| folder.join(name));
        let files = files.into_iter().chain([ground.journal("good")]);
        let read = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        files.map(read).collect()
    }

    #[track_caller]
    fn are_well(&self, ground: &Ground, what: &str) {
        assert_eq!(ground.state("alive"), "running", "{what}");
        assert_eq!(
            ground.exec("alive", &["echo", "here"]).out,
            "here\n",
            "{what}"
        );
        assert_eq!(ground.say(&["logs", "good"]).out, "said\n", "{what}");
        assert_eq!(Self::now(ground), self.files, "{what}");
    }
}

/// The folder itself, or something in it.
fn within(folder: &Path, part: &str) -> PathBuf {
    match part.is_empty() {
        true => folder.to_owned(),
        false => folder.join(part),
    }
}

fn copy(from: &Path, to: &Path) {
    let about = from.symlink_metadata().unwrap();
    if !about.is_dir() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir(to).unwrap();
    let entries = fs::read_dir(from).into_iter().flatten().flatten();
    entries.for_each(|entry| copy(&entry.path(), &to.join(entry.file_name())));
    fs::set_permissions(to, about.permissions()).unwrap();
}

/// One session for each way in which each of its files can be damaged, all of them at once.
#[test]
fn a_damaged_file_of_a_session_costs_that_session_at_most() {
    let ground = Ground::new();
    let outside = Outside::of(&ground);
    let others = Others::start(&ground);
    let template = ground.folder("good");
    let mut damaged = Vec::new();
    for part in ["", "record.json", "lock", "log.0", "outputs", "inner"] {
        let is_file = template.join(part).is_file();
        let cuts = if is_file { contents() } else { Vec::new() };
        for (what, damage) in replacements(&outside).into_iter().chain(cuts) {
            let id = format!("d{}", damaged.len());
            copy(&template, &ground.folder(&id));
            damage(&within(&ground.folder(&id), part));
            damaged.push((id, part, what));
        }
    }
    all_look(&ground, "files");
    let notes = bounded(&ground, &["gc"], "files").err;
    let list = bounded(&ground, &["ls", "-a"], "files").out;
    for (id, part, what) in &damaged {
        let what = format!("{part}: {what}");
        let there = exists(&ground.folder(id));
        assert_eq!(list.contains(&format!("{id} ")), there, "{what}");
        let is_record = *part == "record.json" || part.is_empty();
        // Such as one has whose sessions were never in the background.
        let is_kept = what == ": a folder" || what.ends_with("nothing");
        let is_same = is_kept || is_root() && what.ends_with("unreadable");
        if is_record && !is_same {
            assert!(notes.contains(&format!(" {id} ")), "{what}: {notes}");
        }
        if !there {
            continue;
        }
        bounded(&ground, &["inspect", id], &what);
        let logs = bounded(&ground, &["logs", id], &what);
        let has_log = ["record.json", "lock", "outputs", "inner"].contains(part);
        assert!(!has_log || logs.out == "said\n", "{what}: {logs:?}");
        if what == ": a link to a session elsewhere" {
            // Whoever followed it would have told.
            let record = fs::read_to_string(ground.record(id)).unwrap();
            assert!(record.contains(SECRET));
        }
        // It is not said that all is well with a log that is not what it was.
        let is_well = logs.code == 0 && logs.err.is_empty() && logs.out == "said\n";
        assert!(*part != "log.0" || !is_well || is_same, "{what}: {logs:?}");
    }
    // One after the other, however many of them cannot be removed; and then those with outputs.
    let ids: Vec<&str> = damaged.iter().map(|(id, ..)| id.as_str()).collect();
    bounded(&ground, &[&["rm"], &ids[..]].concat(), "files");
    bounded(&ground, &[&["rm", "--outputs"], &ids[..]].concat(), "files");
    for (id, part, what) in &damaged {
        // What belongs to somebody else is not ours to remove.
        let is_foreign = part.is_empty() && *what == "somebody else's";
        assert_eq!(exists(&ground.folder(id)), is_foreign, "{part}: {what}");
    }
    outside.is_untouched("files");
    others.are_well(&ground, "files");
}

#[test]
fn a_damaged_journal_costs_that_journal_at_most() {
    let ground = Ground::new();
    let outside = Outside::of(&ground);
    let others = Others::start(&ground);
    let damages = replacements(&outside).into_iter().chain(contents());
    let damages: Vec<_> = damages.collect();
    let ids: Vec<_> = (0..damages.len())
        .map(|number| format!("j{number}"))
        .collect();
    for id in &ids {
        ground.start(&["--name", id], &["true"]);
    }
    eventually("all have ended", || {
        ground.say(&["ls", "-q"]).out.trim_end() == "alive"
    });
    for (id, (_, damage)) in ids.iter().zip(&damages) {
        damage(&ground.journal(id));
    }
    let damaged: Vec<_> = ids
        .iter()
        .zip(damages.iter().map(|(what, _)| *what))
        .collect();
    all_look(&ground, "journals");
    let verdicts = bounded(&ground, &["history", "--verify"], "journals").failed_with(1);
    for (id, what) in &damaged {
        let told = verdicts
            .out
            .lines()
            .find(|line| line.starts_with(&format!("{id} ")));
        let is_same = is_root() && *what == "unreadable";
        let told_whole = told.is_some_and(|line| line.contains("whole"));
        assert_eq!(told_whole, is_same, "{what}: {told:?}");
        bounded(&ground, &["history", id], what);
        bounded(&ground, &["why", "--session", id, ".mcp.json"], what);
        // A session of that name starts all the same.
        let ran = ground.try_start(&["--name", id], &["true"]);
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    bounded(&ground, &[&["rm", "-f"], &ids[..]].concat(), "journals");
    outside.is_untouched("journals");
    others.are_well(&ground, "journals");
}

#[test]
fn something_else_in_the_place_of_a_socket_stops_nothing() {
    let ground = Ground::new();
    let outside = Outside::of(&ground);
    let others = Others::start(&ground);
    let mut damaged = Vec::new();
    for (what, damage) in replacements(&outside).into_iter().chain(contents()) {
        let id = format!("s{}", damaged.len());
        fs::write(ground.socket(&id), "not a socket").unwrap();
        damage(&ground.socket(&id));
        damaged.push((id, what));
    }
    all_look(&ground, "sockets");
    for (id, what) in &damaged {
        for words in [&["inspect", id][..], &["logs", id]] {
            bounded(&ground, words, what);
        }
        let ran = ground.exec(id, &["true"]);
        assert_eq!(ran.code, 125, "{what}: {ran:?}");
    }
    let ids: Vec<&str> = damaged.iter().map(|(id, _)| id.as_str()).collect();
    bounded(&ground, &[&["rm"], &ids[..]].concat(), "sockets");
    bounded(&ground, &[&["rm", "-f"], &ids[..]].concat(), "sockets");
    outside.is_untouched("sockets");
    others.are_well(&ground, "sockets");
}

/// What all sessions share: its own name, and how a look-alike elsewhere is called.
const SHARED: [(&str, &str); 6] = [
    ("state/cowork-linux", "alike"),
    ("state/cowork-linux/sessions", "alike/sessions"),
    ("state/cowork-linux/journals", "alike/journals"),
    ("state/cowork-linux/rooms", "alike/rooms"),
    ("state/cowork-linux/turns", "alike/turns"),
    ("run/cowork-linux", "alike"),
];

/// Those that are something else for a folder than for a file.
const OF_FOLDERS: [&str; 6] = [
    "a link to nowhere",
    "a pipe",
    "a socket",
    "nothing",
    "unreadable",
    "somebody else's",
];

/// A folder that could be the one of all sessions, if it were not elsewhere.
fn make_look_alike(ground: &Ground) {
    let write =
        |name: &str, text: &str| drop(ground.world.write(&format!("home/alike/{name}"), text));
    for id in ["good", "x"] {
        write(&format!("sessions/{id}/lock"), "");
        write(&format!("sessions/{id}/inner/home/file"), SECRET);
        write(&format!("journals/{id}.jsonl"), SECRET);
    }
    write("rooms/0/inner/home/file", SECRET);
    write("rooms/0/outputs/work", SECRET);
    write("turns", SECRET);
    dead_socket(&ground.world.path("home/alike/x.sock"));
}

#[test]
fn a_damaged_folder_of_all_sessions_is_told_of_and_nothing_is_done_through_it() {
    let ground = Ground::new();
    make_look_alike(&ground);
    let outside = Outside::of(&ground);
    let others = Others::start(&ground);
    // So that there are rooms.
    ground.say(&["run", "-q", "--", "true"]).ok();
    for (part, alike) in SHARED {
        let (place, aside) = (ground.world.path(part), ground.world.path("aside"));
        let alike = outside.folder.join(alike);
        let to_alike: Damage = (
            "a link to a look-alike",
            Box::new(move |path| {
                clear(path);
                symlink(&alike, path).unwrap();
            }),
        );
        let some = replacements(&outside).into_iter();
        let some = some.filter(|(what, _)| OF_FOLDERS.contains(what));
        for (what, damage) in some.chain([to_alike]) {
            let what = format!("{part}: {what}");
            let is_in_place = what.ends_with("unreadable") || what.ends_with("somebody else's");
            let before = place.symlink_metadata().unwrap();
            if !is_in_place {
                fs::rename(&place, &aside).unwrap();
                fs::create_dir(&place).unwrap();
            }
            damage(&place);
            look_and_try(&ground, part, &what);
            if is_in_place {
                chown(&place, Some(before.uid()), Some(before.gid())).unwrap();
                fs::set_permissions(&place, before.permissions()).unwrap();
            } else {
                clear(&place);
                fs::rename(&aside, &place).unwrap();
            }
            outside.is_untouched(&what);
        }
        others.are_well(&ground, part);
    }
}

#[track_caller]
fn look_and_try(ground: &Ground, part: &str, what: &str) {
    let list = bounded(ground, &["ls", "-a"], what);
    let swept = bounded(ground, &["gc"], what);
    assert_eq!((list.code, swept.code), (0, 0), "{what}");
    let is_looked_at = !part.ends_with("rooms") && !part.ends_with("turns");
    let is_well = what.ends_with(": a folder")
        || what.ends_with(": nothing")
        || is_root() && what.ends_with("unreadable");
    for said in [&list.err, &swept.err] {
        let is_told = said.contains("note: cannot use");
        assert_eq!(is_told, is_looked_at && !is_well, "{what}: {said}");
    }
    let ran = ground.say(&["run", "-q", "--name", "next", "--", "true"]);
    let is_told = ran.code == 125 && ran.err.contains("error: ");
    assert!(ran.code == 0 || is_told, "{what}: {ran:?}");
    if !is_looked_at {
        return;
    }
    for words in [
        &["ls", "-a", "--json"][..],
        &["status"],
        &["history"],
        &["history", "--verify"],
        &["why", ".mcp.json"],
        &["inspect", "good"],
        &["logs", "good"],
        &["rm", "good"],
        &["rm", "-f", "--outputs", "x"],
    ] {
        bounded(ground, words, what);
    }
}

/// Its lock says that it runs. Without one it is asked, and what it wrote down is looked at.
#[test]
fn one_that_runs_is_not_removed_though_its_files_are_damaged() {
    let ground = Ground::new();
    let outside = Outside::of(&ground);
    let damages = replacements(&outside).into_iter().chain(contents());
    let damages: Vec<_> = damages.collect();
    for part in ["lock", "record.json", "log.0"] {
        let id = ground.start(
            &["--name", "s"],
            &["sh", "-c", "touch ~/kept; exec sleep 1000"],
        );
        eventually("it is at work", || {
            ground.exec_sh(&id, "test -e ~/kept").code == 0
        });
        for (what, damage) in &damages {
            let path = ground.folder(&id).join(part);
            clear(&path);
            fs::write(&path, "as it was").unwrap();
            damage(&path);
            let what = format!("{part}: {what}");
            let ran = bounded(&ground, &["rm", &id], &what);
            assert!(ran.err.contains("it is running"), "{what}: {ran:?}");
        }
        assert_eq!(ground.exec_sh(&id, "test -e ~/kept").code, 0, "{part}");
        bounded(&ground, &["rm", "-f", "--outputs", &id], part);
        assert!(!exists(&ground.folder(&id)), "{part}");
    }
    outside.is_untouched("one that runs");
}

#[test]
fn no_second_one_starts_beside_one_whose_lock_is_gone() {
    let ground = Ground::new();
    let id = ground.start(&["--name", "s"], &["sleep", "1000"]);
    fs::remove_file(ground.folder(&id).join("lock")).unwrap();
    for words in [
        &["run", "-q", "--name", "s", "--", "true"][..],
        &["run", "-q", "-d", "--name", "s", "--", "true"],
    ] {
        let ran = ground.say(words);
        assert_eq!(ran.code, 125, "{ran:?}");
        assert!(ran.err.contains("it is running already"), "{ran:?}");
    }
    ground.exec(&id, &["true"]).ok();
    // One that was killed leaves a socket as well, and is in nobody's way.
    let supervisor = nix::unistd::Pid::from_raw(ground.supervisor(&id));
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("it is gone", || ground.processes().is_empty());
    assert!(exists(&ground.socket(&id)));
    ground.say(&["run", "-q", "--name", "s", "--", "true"]).ok();
}
