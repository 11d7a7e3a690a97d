//! Where the socket is, and where sessions are kept.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::Desk;
use super::{Remedy, Row, State};

/// The app talks only through a folder that is the user's alone.
pub(super) fn runtime(desk: &Desk) -> Row {
    const NAME: &str = "runtime directory";
    const MEANS: &str = "the app refuses a socket in it";
    let Some(runtime) = &desk.runtime else {
        return Row::new(NAME, State::Weaker, "XDG_RUNTIME_DIR is not set", "the app falls back to a folder in /tmp")
            .fix(Remedy::say("log in through a session that sets it, as systemd does; after `su` use `machinectl shell` instead"));
    };
    let shown = runtime.display();
    let wrong = |why: String, help: &str| {
        Row::new(NAME, State::Missing, format!("{shown}: {why}"), MEANS).fix(Remedy::say(help))
    };
    let found = match fs::symlink_metadata(runtime) {
        Ok(found) => found,
        Err(error) => {
            return wrong(super::in_words(&error), "log in again: systemd makes it");
        }
    };
    if !found.is_dir() {
        return wrong(
            "it is not a folder".into(),
            "set XDG_RUNTIME_DIR to the folder itself, not to a link",
        );
    }
    if found.uid() != desk.uid {
        return wrong(
            format!("it belongs to user {}", found.uid()),
            "unset XDG_RUNTIME_DIR or log in as yourself: `su` and `sudo` keep the other user's",
        );
    }
    if found.mode() & 0o077 != 0 {
        let why = format!("others may enter it (mode {:o})", found.mode() & 0o777);
        return wrong(why, &format!("chmod 700 {shown}"));
    }
    for name in super::SOCKETS {
        let socket = runtime.join(name);
        if fs::symlink_metadata(&socket).is_ok_and(|found| found.is_symlink()) {
            return wrong(
                format!("{name} in it is a link"),
                &format!("rm {}", socket.display()),
            );
        }
    }
    Row::new(
        NAME,
        State::Good,
        format!("{shown}, yours alone"),
        "the socket goes there",
    )
}

/// An encrypted home folder takes shorter names than programs believe.
pub(super) fn file_names(desk: &Desk) -> Row {
    const NAME: &str = "file names";
    let Some(state) = &desk.state else {
        return Row::new(
            NAME,
            State::Info,
            "not looked at",
            "there is no state directory",
        );
    };
    let there = state
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"));
    match statvfs(there).map(|found| found.name_max()) {
        Ok(longest) if longest < 255 => Row::new(
            NAME,
            State::Weaker,
            format!("up to {longest} bytes at {}", there.display()),
            "programs in a session fail with `File name too long` where others do not",
        )
        .fix(Remedy::say(
            "set XDG_STATE_HOME to a folder outside the encrypted home (eCryptfs stops at 143)",
        )),
        Ok(longest) => Row::new(
            NAME,
            State::Good,
            format!("up to {longest} bytes at {}", there.display()),
            "homes of sessions take every name",
        ),
        Err(error) => Row::new(
            NAME,
            State::Info,
            format!("{}: {error}", there.display()),
            "how long names may be is not known",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_runtime_directory_is_the_users_alone_or_it_is_said_why_not() {
        let mut scene = Scene::new();
        let mode = |scene: &Scene, mode| {
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(scene.path("run"), mode).unwrap();
        };
        fs::create_dir(scene.path("run")).unwrap();
        mode(&scene, 0o700);
        assert_eq!(runtime(&scene.desk).state, State::Good);
        mode(&scene, 0o755);
        let row = runtime(&scene.desk);
        assert_eq!(row.state, State::Missing);
        assert!(row.remedy.unwrap().say.starts_with("chmod 700 "));
        mode(&scene, 0o700);
        std::os::unix::fs::symlink("/x", scene.path("run/claude-cowork-vm.sock")).unwrap();
        assert!(runtime(&scene.desk).found.contains("is a link"));
        fs::remove_file(scene.path("run/claude-cowork-vm.sock")).unwrap();
        scene.desk.uid += 1;
        assert!(runtime(&scene.desk).found.contains("belongs to user"));
        scene.desk.uid -= 1;
        scene.desk.runtime = Some(scene.path("none"));
        assert_eq!(runtime(&scene.desk).state, State::Missing);
        scene.desk.runtime = None;
        assert_eq!(runtime(&scene.desk).state, State::Weaker);
    }

    #[test]
    fn the_longest_name_is_the_file_systems_own() {
        let scene = Scene::new();
        let row = file_names(&scene.desk);
        let longest = statvfs(&scene.desk.root).unwrap().name_max();
        assert!(
            row.found.contains(&format!("up to {longest} bytes")),
            "{row:?}"
        );
        assert_eq!(row.state == State::Good, longest >= 255);
    }
}
