//! Changing a session while it runs.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};

use super::sessions::{Done, Refusal, one, print, session_argument, value, with_each};
use super::{limits, switch};
use crate::limits::Wanted;
use crate::policy::MountSpec;
use crate::probe::{self, OffLimits};
use crate::session::{Call, MountWish, Places};
use crate::terminal::printable;

pub(super) fn commands() -> [Command; 5] {
    let name = |name: &'static str, of: &'static str| {
        Arg::new(name)
            .value_name(of)
            .required(true)
            .value_parser(clap::value_parser!(OsString))
    };
    [
        Command::new("mount")
            .about("Share another folder with a running session")
            .arg(switch(
                "replace",
                "Exchange what was mounted there while it ran, without a moment in between",
            ))
            .arg(switch(
                "overlap",
                "Also when it overlaps with a folder that is shared already: what is guarded in one \
                 can then be changed through the other",
            ))
            .arg(session_argument())
            .arg(
                name("source", "SRC[:DST][:MODE]").help(
                    "As with `run --mount`; MODE is rw, keep or ro. A single file only with ro",
                ),
            ),
        limits::FLAGS.into_iter().fold(
            Command::new("limit")
                .about("Give a running session other limits")
                .arg(session_argument()),
            |command, (flag, of, help)| command.arg(value(flag, of, help)),
        ),
        Command::new("pause")
            .about("Stop everything in a session where it is")
            .arg(session_argument().num_args(1..)),
        Command::new("resume")
            .about("Let a session go on")
            .arg(session_argument().num_args(1..)),
        Command::new("unmount")
            .about("Take away a folder that was shared while it ran")
            .arg(switch("force", "Also when a program uses it").short('f'))
            .arg(session_argument())
            .arg(
                name("name", "NAME").help("Its name below mnt, or its place if that is elsewhere"),
            ),
    ]
}

pub(super) fn verb(name: &str) -> Option<fn(&Places, &ArgMatches) -> Done> {
    match name {
        "mount" => Some(mount),
        "unmount" => Some(unmount),
        "limit" => Some(limit),
        "pause" => Some(pause),
        "resume" => Some(resume),
        _ => None,
    }
}

fn mount(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let text = matches
        .get_one::<OsString>("source")
        .cloned()
        .unwrap_or_default();
    let spec = MountSpec::parse(&text, |path| path.symlink_metadata().is_ok())
        .map_err(|error| Refusal::Mount(text.to_string_lossy().into_owned(), error))?;
    let home = std::env::var_os("HOME").map(Into::into);
    let off_limits = OffLimits::new(&places.state, home);
    let (source, is_folder) = probe::look_at_either(&spec, &off_limits)?;
    let name = match &spec.place {
        Some(place) => place.as_os_str(),
        None => source.name.as_os_str(),
    };
    let name = name.to_str().ok_or_else(|| {
        let why = "its name is not in UTF-8; give it another one: SRC:NAME".into();
        Refusal::Flag { flag: "mount", why }
    })?;
    Call::to(&places.runtime, &id)?.mount(&MountWish {
        is_folder,
        replace: matches.get_flag("replace"),
        despite_overlap: matches.get_flag("overlap"),
        ..MountWish::new(&source, name)
    })?;
    let mounts = Path::new("/sessions").join(id.as_str()).join("mnt");
    let place = mounts.join(name);
    print(&format!("{}\n", place.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn unmount(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let name = matches
        .get_one::<OsString>("name")
        .cloned()
        .unwrap_or_default();
    let name = name.to_string_lossy();
    Call::to(&places.runtime, &id)?.unmount(&name, matches.get_flag("force"))?;
    Ok(ExitCode::SUCCESS)
}

fn limit(places: &Places, matches: &ArgMatches) -> Done {
    let id = one(places, matches)?;
    let mut wanted = Wanted::default();
    for (flag, _, _) in limits::FLAGS {
        if let Some(text) = matches.get_one::<OsString>(flag) {
            let set = limits::set(&mut wanted, flag, &text.to_string_lossy());
            set.map_err(|why| Refusal::Flag { flag, why })?;
        }
    }
    if let Some(note) = Call::to(&places.runtime, &id)?.limit(&wanted)? {
        crate::report::say(&format!("note: {}", printable(&note)));
    }
    Ok(ExitCode::SUCCESS)
}

fn pause(places: &Places, matches: &ArgMatches) -> Done {
    with_each(places, matches, |id| {
        Ok(Call::to(&places.runtime, id)?.pause(true)?)
    })
}

fn resume(places: &Places, matches: &ArgMatches) -> Done {
    with_each(places, matches, |id| {
        Ok(Call::to(&places.runtime, id)?.pause(false)?)
    })
}
