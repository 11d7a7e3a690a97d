//! A folder of journals, and a session that lived through everything.

use std::path::{Path, PathBuf};

use cowork_linux::journal::{
    BY_USER, Journal, MountNote, Reading, RefusalKind, Verdict, What, path_of, read,
};
use cowork_linux::policy::SessionId;
use tempfile::TempDir;

pub fn id(name: &str) -> SessionId {
    SessionId::parse(name).unwrap()
}

/// The folder is not there yet: to make it is the journal's own work.
pub struct Ground {
    dir: TempDir,
}

impl Ground {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("state/journals")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        path_of(&self.folder(), &id(name))
    }

    /// A child that another test is just starting has this one's files open for a moment.
    pub fn open(&self, name: &str) -> Journal {
        for _ in 0..1000 {
            match Journal::create(&self.folder(), &id(name)) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::yield_now();
                }
                opened => return opened.unwrap(),
            }
        }
        panic!("{name} is in use for good")
    }

    pub fn read(&self, name: &str) -> Reading {
        read(&self.path(name)).unwrap()
    }

    /// Writes the entries and closes the journal.
    pub fn write(&self, name: &str, entries: &[What]) -> PathBuf {
        let mut journal = self.open(name);
        for what in entries {
            journal.append(what).unwrap();
        }
        self.path(name)
    }

    /// A file in the folder, as somebody else might put it there.
    pub fn put(&self, file: &str, content: &[u8]) -> PathBuf {
        std::fs::create_dir_all(self.folder()).unwrap();
        let path = self.folder().join(file);
        std::fs::write(&path, content).unwrap();
        path
    }
}

pub fn start(program: &str) -> What {
    What::Start {
        program: vec![program.to_owned(), "--fast".to_owned()],
        mounts: vec![MountNote {
            source: "/home/u/app".to_owned(),
            place: "/sessions/a/mnt/app".to_owned(),
            mode: "rw".to_owned(),
        }],
        network: "none".to_owned(),
        profile: Some("default".to_owned()),
        supervisor: 77,
        layers: vec!["namespaces".to_owned(), "landlock abi 7".to_owned()],
    }
}

pub fn exit(exec: u32, code: i32) -> What {
    What::Exit {
        exec,
        code: Some(code),
        signal: None,
        not_executed: None,
    }
}

pub fn exec(exec: u32) -> What {
    What::Exec {
        exec,
        program: vec!["git".to_owned(), "status".to_owned()],
        cwd: Some("/sessions/a/mnt/app".to_owned()),
    }
}

pub fn stop() -> What {
    What::Stop {
        outcome: "exit code 0".to_owned(),
        by: "program".to_owned(),
    }
}

pub fn stopped_by_user() -> What {
    What::Stop {
        outcome: "stopped".to_owned(),
        by: BY_USER.to_owned(),
    }
}

pub fn refusal(kind: RefusalKind, object: &str) -> What {
    What::Refusal {
        kind,
        object: object.to_owned(),
        rule: ".envrc".to_owned(),
        allow: "guard.names in the policy, without \".envrc\"".to_owned(),
        program: None,
        count: 1,
    }
}

/// One entry of every kind a supervisor writes.
pub fn whole_life() -> Vec<What> {
    vec![
        start("claude"),
        exec(1),
        exit(1, 0),
        What::Signal {
            signal: 10,
            by: "kill".to_owned(),
        },
        What::Limit {
            limit: "memory".to_owned(),
            value: "2G".to_owned(),
            happened: "paused".to_owned(),
        },
        What::Change {
            of: "memory".to_owned(),
            from: Some("2G".to_owned()),
            to: "4G".to_owned(),
        },
        What::Mount {
            source: "/home/u/lib".to_owned(),
            place: "/sessions/a/mnt/lib".to_owned(),
            mode: "ro".to_owned(),
            overlaps: None,
            replaces: None,
        },
        What::Unmount {
            place: "/sessions/a/mnt/lib".to_owned(),
        },
        refusal(RefusalKind::File, "/sessions/a/mnt/app/.envrc"),
        exit(0, 0),
        stop(),
    ]
}

pub fn said(reading: &Reading) -> Vec<What> {
    let entries = reading.entries.iter();
    entries.map(|entry| entry.what.clone()).collect()
}

pub fn verdict_of(path: &Path) -> Verdict {
    read(path).unwrap().verdict
}

pub fn is_tampered(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Tampered { .. })
}

pub fn is_foreign(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Foreign { .. })
}
