//! Claude Desktop's helper: the other end of the socket over which the app starts, feeds and ends what it
//! runs. Each of its sessions is a box of ours, kept by a supervisor of its own; this room only
//! translates. No box holds a line to it, and nothing of what it has but the words that are meant for it.

mod blocking;
mod boxes;
pub mod client;
mod connection;
mod disk;
#[cfg(test)]
mod disk_tests;
mod domains;
mod environment;
mod events;
#[cfg(test)]
mod events_tests;
mod executable;
mod folders;
#[cfg(test)]
mod folders_tests;
mod frame;
pub mod fuzzing;
mod helper;
mod input;
#[cfg(test)]
mod input_tests;
mod launch;
mod methods;
mod mounts;
mod names;
mod off_limits;
mod outbox;
mod output;
#[cfg(test)]
mod output_tests;
mod outside;
mod points;
#[cfg(test)]
mod points_tests;
mod process;
mod processes;
mod profile;
mod reachability;
#[cfg(test)]
mod reachability_tests;
mod reading;
#[cfg(test)]
mod reading_tests;
mod request;
mod sdk;
#[cfg(test)]
mod sdk_tests;
mod server;
mod spawn;
mod starting;
mod telling;
#[cfg(test)]
mod testing;
mod text;
mod upkeep;
mod written;

use std::path::PathBuf;
use std::process::ExitCode;

use tokio::task::LocalSet;

use crate::report;
use server::ServeError;

/// The socket cannot be served.
const NOT_SERVED: u8 = 125;
/// Threads that may wait for folders and for programs of our own.
const MOST_BLOCKING: usize = 64;

/// How the helper was called.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where to listen; without one, the first of the usual places that the caller's runtime directory offers.
    pub socket: Option<PathBuf>,
    /// Answer calls that are not known as if they had been done.
    pub lenient: bool,
    /// Let programs delete what they did not make in folders that are shared without that right.
    pub allow_delete: bool,
    /// Let the whole home folder be shared.
    pub allow_home: bool,
    /// Words of `run` that say how much of this computer each session may use.
    pub limits: Vec<String>,
    /// Keep the app's token out of sessions: it is added to Claude Code's requests on their way out.
    pub token_outside: bool,
}

/// Serves until the app is gone or asks to stop.
pub fn serve(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MOST_BLOCKING)
        .build();
    let served = match runtime {
        Ok(runtime) => {
            let served = LocalSet::new().block_on(&runtime, server::serve(options));
            // Somebody may still be waiting for a folder that never answers.
            runtime.shutdown_background();
            served
        }
        Err(error) => Err(ServeError::Start(error)),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::print(&error);
            ExitCode::from(NOT_SERVED)
        }
    }
}
