//! The broker with real programs and real attackers, in namespaces of its own. Run with
//! `--bench` for the cost of one brokered call.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod attacks;
mod bench;
mod ground;
mod work;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    let bench = args.iter().any(|arg| arg == "--bench");
    let Some(at) = std::env::var_os("COWORK_BROKER_TEST") else {
        return start(&args, bench);
    };
    let mut ground = ground::Ground::prepare(Path::new(&at));
    if bench {
        bench::run(&mut ground);
        return ExitCode::SUCCESS;
    }
    work::run(&mut ground);
    attacks::run(&mut ground);
    ground.verdict()
}

/// Runs this program again in namespaces of its own, and clears up when they are gone.
fn start(args: &[String], bench: bool) -> ExitCode {
    // In memory, so that the broker is measured and not the disk.
    let at = if bench {
        PathBuf::from("/dev/shm")
    } else {
        std::env::temp_dir()
    };
    let folder = tempfile::tempdir_in(at).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // Never as root: what root owns, such as /dev/null, would belong to the box's user.
    let mut command = if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "unshare",
        ]);
        command
    } else {
        Command::new("unshare")
    };
    let status = command
        .args([
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            "--keep-caps",
        ])
        .args(["--mount", "--pid", "--fork", "--mount-proc"])
        .args(args)
        .env("COWORK_BROKER_TEST", folder.path())
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env_remove("TMPDIR")
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        other => {
            eprintln!("the broker's test ended with {other:?}");
            ExitCode::FAILURE
        }
    }
}
