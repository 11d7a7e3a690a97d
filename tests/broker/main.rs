//! The broker with real programs and real attackers, in namespaces of its own. Run with
//! `--bench` for the cost of one brokered call.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod attacks;
mod bench;
mod ground;
mod work;

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|arg| arg == "--list") {
        return ExitCode::SUCCESS;
    }
    if std::env::var_os("COWORK_BROKER_TEST").is_none() {
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
        let error = command
            .args([
                "--user",
                "--map-user=1000",
                "--map-group=1000",
                "--keep-caps",
            ])
            .args(["--mount", "--pid", "--fork", "--mount-proc"])
            .args(&args)
            .env("COWORK_BROKER_TEST", "1")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env_remove("TMPDIR")
            .exec();
        eprintln!("cannot run unshare: {error}");
        return ExitCode::FAILURE;
    }
    if args.iter().any(|arg| arg == "--bench") {
        // In memory, so that the broker is measured and not the disk.
        bench::run(&mut ground::Ground::prepare(Path::new("/dev/shm")));
        return ExitCode::SUCCESS;
    }
    let mut ground = ground::Ground::prepare(&std::env::temp_dir());
    work::run(&mut ground);
    attacks::run(&mut ground);
    ground.verdict()
}
