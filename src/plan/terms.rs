//! How a box and its caller hang together: what is new for it, what it joins, what it inherits,
//! who its first process is and whom it outlives.

use std::os::fd::RawFd;
use std::path::PathBuf;

use serde::Serialize;

/// The namespaces that are made for the box; a mount namespace belongs to every box with one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Namespaces {
    pub user: bool,
    pub mount: bool,
    pub pid: bool,
    pub net: bool,
    pub ipc: bool,
    pub uts: bool,
    pub cgroup: bool,
}

impl Namespaces {
    pub const NONE: Self = Self {
        user: false,
        mount: false,
        pid: false,
        net: false,
        ipc: false,
        uts: false,
        cgroup: false,
    };

    pub const ALL: Self = Self {
        user: true,
        mount: true,
        pid: true,
        net: true,
        ipc: true,
        uts: true,
        cgroup: true,
    };
}

/// Namespaces that exist and are entered, by the caller's descriptors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Joins {
    pub user: Option<RawFd>,
    pub pid: Option<RawFd>,
}

/// Who the first process of a box is once the box stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum FirstProcess {
    /// Ours: passes signals on, starts more programs, tells how they are. Ends the rest with the
    /// first program, unless it `stays` until it is told.
    Keeper { stays: bool },
    /// Ours: collects the dead until nobody is left, and holds what it was given to hold.
    Reaper {
        locks: Vec<PathBuf>,
        hold: Option<RawFd>,
    },
    /// The program itself.
    Program,
}

/// Which of the caller's open files the program gets besides its standard streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Descriptors {
    None,
    /// Everything the caller left open but these.
    AllBut(Vec<RawFd>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Terms {
    pub joins: Joins,
    pub first: FirstProcess,
    pub descriptors: Descriptors,
    /// The box ends when its launcher does.
    pub dies_with_launcher: bool,
    /// The first process does nothing until the launcher says so.
    pub waits: bool,
    /// The launcher hears when the program is about to run.
    pub announces: bool,
    /// Folders can be shown and taken away while the box runs.
    pub changeable: bool,
}

impl Terms {
    /// What every session has.
    pub fn of_a_session(from_root: bool) -> Self {
        Self {
            joins: Joins::default(),
            first: FirstProcess::Keeper { stays: false },
            descriptors: Descriptors::None,
            dies_with_launcher: true,
            waits: from_root,
            announces: false,
            changeable: false,
        }
    }
}
