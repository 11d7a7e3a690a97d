//! Starts boxes: runs this very program, as anybody would on the command line, so that a box and
//! its supervisor are processes of their own and there is one way only to make them.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::profile::Profile;
use crate::policy::SessionId;

/// The program that runs now, also when its file has been exchanged meanwhile.
const MYSELF: &str = "/proc/self/exe";
/// What boxes are made of.
const POLICY: &str = "cowork";
/// Less than the app waits for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a box may take to end that has begun to.
const LAST_MOMENTS: Duration = Duration::from_secs(10);
/// What is passed on to our own program. None of it reaches a box.
const PASSED: [&str; 12] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    // Whose certificates are believed, where the gateway itself speaks to a host.
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Where `--upstream-proxy env` looks for one.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// A box that ends when this is dropped, however that happens.
#[derive(Debug)]
pub(super) struct Hold(UnixStream);

impl Hold {
    /// Whether its supervisor is still there.
    pub(super) fn is_held(&self) -> bool {
        let read = self.0.try_read(&mut [0; 16]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Waits until the supervisor is gone, and its session's name is free again.
    pub(super) async fn is_let_go(&self) {
        let gone = async {
            while self.is_held() {
                if self.0.readable().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LAST_MOMENTS, gone).await;
    }
}

/// Starts the box of that name and waits until it can be talked to.
pub(super) async fn start(profile: &Profile, name: &SessionId) -> Result<Hold, String> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(|it| cannot(&it))?;
    ours.set_nonblocking(true).map_err(|error| cannot(&error))?;
    let ours = UnixStream::from_std(ours).map_err(|error| cannot(&error))?;
    let theirs = OwnedFd::from(theirs);
    let held = theirs.as_raw_fd().to_string();
    let words = ["run", "-d", "--keep", "-q", "--name", name.as_str()];
    let more = ["--profile", POLICY, "--while-open", &held];
    let mut command = command(profile)?;
    command.args(words).args(more);
    equip(&mut command, profile);
    // Nobody else is started while it can be inherited: this is the one thread that starts programs.
    let inherited = fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()));
    let child = match inherited {
        Ok(_) => command.spawn().map_err(|error| cannot(&error))?,
        Err(error) => return Err(cannot(&error.into())),
    };
    drop(theirs);
    finished(child).await?;
    Ok(Hold(ours))
}

/// Runs a program that does nothing in a box that is not kept: whatever would keep a session from
/// starting keeps this one from it.
pub(super) async fn trial(profile: &Profile) -> Result<(), String> {
    let mut command = command(profile)?;
    command.args(["run", "-q", "--profile", POLICY]);
    equip(&mut command, profile);
    command.args(["--", "true"]);
    let child = command.spawn().map_err(|error| cannot(&error))?;
    match finished(child).await {
        Ok(()) => Ok(()),
        Err(why) => Err(in_the_way(profile).await.unwrap_or(why)),
    }
}

/// What every box has besides: its limits, a token that stays outside, and the proxy through which this
/// computer reaches the world.
fn equip(command: &mut Command, profile: &Profile) {
    command.args(&profile.helper.options.limits);
    if let Some(outside) = &profile.helper.outside {
        outside.equip(command);
    }
    let mut has_proxy = false;
    for name in PROXIES {
        if let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) {
            command.env(name, value);
            has_proxy = true;
        }
    }
    if has_proxy {
        command.args(["--upstream-proxy", "env"]);
    }
}

fn command(profile: &Profile) -> Result<Command, String> {
    let (state, runtime) = profile.bases();
    for folder in [&state, &runtime] {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    let mut command = Command::new(MYSELF);
    command
        .env_clear()
        .env("XDG_STATE_HOME", state)
        .env("XDG_RUNTIME_DIR", runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    // Whoever grants limits is asked over a socket in the user's own runtime directory.
    if std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none()
        && let Some(own) =
            std::env::var_os("XDG_RUNTIME_DIR").and_then(|own| own.into_string().ok())
    {
        command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={own}/bus"));
    }
    Ok(command)
}

/// What stands in the way of all boxes on this host, and what to do about it.
async fn in_the_way(profile: &Profile) -> Option<String> {
    let mut command = command(profile).ok()?;
    command.args(["doctor", "--json"]).stdout(Stdio::piped());
    let output = output_of(command.spawn().ok()?).await.ok()?;
    let told: Value = serde_json::from_slice(&output.stdout).ok()?;
    let rows = told["rows"].as_array().filter(|_| told["works"] == false)?;
    let row = rows.iter().find(|row| row["state"] == "missing")?;
    let (name, found) = (row["name"].as_str()?, row["found"].as_str()?);
    let remedy = row["remedy"]["say"]
        .as_str()
        .unwrap_or("ask whoever set up this host");
    Some(format!(
        "sessions cannot be started on this host; {name}: {found}\n  help: {remedy}; \
         `cowork-linux doctor --fix` shows how"
    ))
}

/// Waits for our own program; what it said is why it failed.
async fn finished(child: Child) -> Result<(), String> {
    let output = output_of(child).await?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim();
            let said = said.strip_prefix("error: ").unwrap_or(said);
            Err(match said.is_empty() {
                true => format!("the session's box was not started ({})", output.status),
                false => said.to_owned(),
            })
        }
    }
}

async fn output_of(child: Child) -> Result<Output, String> {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let waiting = spawn_blocking(move || child.wait_with_output());
    match timeout(PATIENCE, waiting).await {
        Ok(Ok(output)) => output.map_err(|error| cannot(&error)),
        Ok(Err(_)) => Err("the session's box was not started".to_owned()),
        Err(_) => {
            // It is still ours and has not been waited for, so the number is still its own.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            Err("the session's box did not start in time".to_owned())
        }
    }
}

fn cannot(error: &io::Error) -> String {
    format!("cannot start the session's box: {error}")
}
