//! sandbox-runtime, as `packaging/test-setup.sh` installs it, and the settings it is started with.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::shop::{from_npm, has};
use crate::support::Ran;

pub(crate) struct Runtime {
    pub(crate) caller: Caller,
    program: PathBuf,
}

impl Runtime {
    pub(crate) fn new() -> Option<Self> {
        Self::of(Caller::new())
    }

    pub(crate) fn of(caller: Caller) -> Option<Self> {
        let feature = "sandbox-runtime";
        if !has(feature, &["node", "socat", "rg"]) {
            return None;
        }
        let program = from_npm(feature, "srt")?;
        Some(Self { caller, program })
    }

    /// No network, and nothing to write to but the folder and a place for temporary files.
    pub(crate) fn settings(&self) -> Value {
        let world = &self.caller.world;
        json!({
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {
                "denyRead": [],
                "allowWrite": [world.work(), world.path("scratch")],
                "denyWrite": [],
            },
        })
    }

    /// `srt --settings FILE -c SCRIPT`, to be started.
    pub(crate) fn command(&self, settings: &Value, script: &str) -> Command {
        let world = &self.caller.world;
        let settings = world.write("settings.json", &settings.to_string());
        let mut command = self.caller.command(&self.program);
        command.arg("--settings").arg(settings).args(["-c", script]);
        command
    }

    pub(crate) fn run(&self, settings: &Value, script: &str) -> Ran {
        Ran::of(&mut self.command(settings, script))
    }

    /// Runs a script with the settings that allow the least.
    pub(crate) fn sh(&self, script: &str) -> Ran {
        self.run(&self.settings(), script)
    }
}
