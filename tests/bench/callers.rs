//! The argument lists that are measured: a plain sandbox, those that known callers of bwrap pass, and many binds.

use crate::measure::Answer;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Arguments of bwrap, and the files that some of them name by descriptor.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) words: Vec<String>,
    pub(crate) files: Vec<File>,
}

impl Arguments {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.words.extend(words.map(str::to_owned));
    }

    /// An option with a path as source and, the same, as destination.
    fn over_itself(&mut self, option: &str, path: &Path) {
        let path = path.to_string_lossy();
        self.add([option, &path, &path]);
    }

    /// An empty file where there was another, from an inherited descriptor.
    fn emptied(&mut self, path: &Path) -> Answer<()> {
        let empty = tempfile::tempfile()?;
        fcntl(&empty, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let number = empty.as_raw_fd().to_string();
        self.add(["--ro-bind-data", &number, &path.to_string_lossy()]);
        self.files.push(empty);
        Ok(())
    }
}

/// A project directory as an agent would work in it, and what its sandbox hides and protects.
#[derive(Debug)]
pub(crate) struct Callers {
    project: PathBuf,
    secrets: PathBuf,
    sockets: [PathBuf; 2],
    /// Old versions of bwrap do not have the option, and callers ask for it in `--help` first.
    argv0: bool,
}

const PROTECTED: [&str; 4] = [".git", ".vscode", ".claude", ".codex"];
const MASKED: [&str; 3] = [".bashrc", ".gitconfig", ".mcp.json"];

impl Callers {
    pub(crate) fn new(scratch: &Path, argv0: bool) -> Answer<Self> {
        let callers = Self {
            project: scratch.join("project"),
            secrets: scratch.join("secrets"),
            sockets: [scratch.join("http.sock"), scratch.join("socks.sock")],
            argv0,
        };
        fs::create_dir(&callers.project)?;
        fs::create_dir(&callers.secrets)?;
        for name in PROTECTED {
            fs::create_dir(callers.project.join(name))?;
        }
        for name in MASKED {
            fs::write(callers.project.join(name), "")?;
        }
        for socket in &callers.sockets {
            UnixListener::bind(socket)?;
        }
        Ok(callers)
    }

    /// Every namespace, and the whole host read-only.
    pub(crate) fn everything() -> Answer<Arguments> {
        let mut arguments = Arguments::default();
        arguments.add(["--unshare-all", "--ro-bind", "/", "/"]);
        arguments.add(["--proc", "/proc", "--dev", "/dev", "--die-with-parent"]);
        Ok(arguments)
    }

    /// As sandbox-runtime calls it, which is what Claude Code uses: the network only through two sockets.
    pub(crate) fn sandbox_runtime(&self) -> Answer<Arguments> {
        let mut arguments = Arguments::default();
        arguments.add(["--new-session", "--die-with-parent", "--unshare-net"]);
        for socket in &self.sockets {
            arguments.over_itself("--bind", socket);
        }
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            arguments.add(["--setenv", name, "http://localhost:3128"]);
        }
        arguments.add(["--ro-bind", "/", "/"]);
        arguments.over_itself("--bind", &self.project);
        for name in PROTECTED {
            arguments.over_itself("--ro-bind", &self.project.join(name));
        }
        arguments.add(["--tmpfs", &self.secrets.to_string_lossy()]);
        for name in MASKED {
            let masked = self.project.join(name);
            arguments.add(["--ro-bind", "/dev/null", &masked.to_string_lossy()]);
        }
        arguments.add(["--dev", "/dev", "--unshare-pid", "--proc", "/proc"]);
        Ok(arguments)
    }

    pub(crate) fn codex(&self) -> Answer<Arguments> {
        let mut arguments = Arguments::default();
        let (project, secrets) = (
            self.project.to_string_lossy(),
            self.secrets.to_string_lossy(),
        );
        arguments.add(["--as-pid-1", "--new-session", "--die-with-parent"]);
        arguments.add(["--ro-bind", "/", "/", "--dev", "/dev"]);
        arguments.over_itself("--bind", &self.project);
        for name in PROTECTED {
            arguments.over_itself("--ro-bind", &self.project.join(name));
        }
        for name in MASKED {
            arguments.emptied(&self.project.join(name))?;
        }
        arguments.add(["--perms", "000", "--tmpfs", &secrets]);
        arguments.add(["--remount-ro", &secrets]);
        arguments.add(["--unshare-user", "--unshare-pid", "--unshare-ipc"]);
        arguments.add(["--unshare-net", "--proc", "/proc"]);
        arguments.add(["--chdir", &project, "--cap-drop", "ALL"]);
        if self.argv0 {
            // The payloads are programs of busybox, which goes by this name.
            arguments.add(["--argv0", "busybox"]);
        }
        Ok(arguments)
    }

    /// So many small directories on a tmpfs, and a busybox to run.
    pub(crate) fn binds(scratch: &Path, count: usize) -> Answer<Arguments> {
        let mut arguments = Arguments::default();
        arguments.add(["--unshare-all", "--tmpfs", "/"]);
        arguments.add(["--ro-bind", "/bin/busybox", "/busybox"]);
        for number in 0..count {
            let source = scratch.join("binds").join(number.to_string());
            fs::create_dir_all(&source)?;
            let at = format!("/binds/{number}");
            arguments.add(["--bind", &source.to_string_lossy(), &at]);
        }
        Ok(arguments)
    }
}
