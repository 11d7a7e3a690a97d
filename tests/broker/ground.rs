//! A guarded mount, a broker beside it, and a way to run programs under it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use cowork_linux::broker::{self, Broker, Door};
use cowork_linux::filter;
use cowork_linux::policy::Guard;
use cowork_linux::policy::guard::GuardRules;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

pub(crate) struct Ground {
    /// The folder as the host has it.
    pub(crate) host: PathBuf,
    /// The same folder as the box sees it.
    pub(crate) inside: PathBuf,
    pub(crate) broker: Broker,
    root: tempfile::TempDir,
    failures: usize,
    checks: usize,
}

pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Ground {
    pub(crate) fn prepare(at: &Path) -> Self {
        let root = tempfile::tempdir_in(at).unwrap();
        let path = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let (host, inside) = (path("host"), path("box/w"));
        let (host_two, inside_two) = (path("host2"), path("box/two"));
        path("home");
        path("free");
        fs::create_dir(host.join("cover")).unwrap();
        fs::write(host.join("masked"), "secret").unwrap();
        let doors = vec![door(&host, &inside), door(&host_two, &inside_two)];
        // What the launcher may put over parts of a door must stay over them.
        let none = None::<&str>;
        let masked = inside.join("masked");
        let mask = root.path().join("mask");
        fs::write(&mask, "").unwrap();
        mount(Some(&mask), &masked, none, MsFlags::MS_BIND, none).unwrap();
        let cover = inside.join("cover");
        mount(Some("tmpfs"), &cover, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        drop_rights();
        let rules = GuardRules::new(&Guard {
            enabled: true,
            git: true,
            names: [
                ".envrc",
                ".mcp.json",
                ".claude/settings.json",
                ".claude/commands",
                ".vscode/tasks.json",
                ".bashrc",
                ".config/fish/config.fish",
            ]
            .map(str::to_owned)
            .to_vec(),
        });
        Self {
            host,
            inside,
            broker: Broker::new(doors, rules),
            root,
            failures: 0,
            checks: 0,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs a script in the box and answers its questions until it ends.
    pub(crate) fn run(&mut self, script: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&self.inside);
        self.run_command(command)
    }

    pub(crate) fn run_command(&mut self, mut command: Command) -> Output {
        let log = self.path("log");
        let out = File::create(&log).unwrap();
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::Datagram,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap();
        command
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("FREE", self.path("free"))
            .env("TWO", self.path("box/two"))
            .env("W", &self.inside)
            .env("TMPDIR", self.path("free"))
            .stdin(std::process::Stdio::null())
            .stderr(out.try_clone().unwrap())
            .stdout(out);
        // SAFETY: the closure makes system calls and allocates; this program has one thread.
        unsafe { command.pre_exec(move || hand_over(theirs.as_raw_fd())) };
        let mut child = command.spawn().unwrap();
        let listener = take_over(ours.as_raw_fd());
        let number = listener.as_raw_fd();
        self.broker.watch(listener);
        let code = loop {
            if self.wait_and_serve(number) {
                continue;
            }
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
        };
        self.broker.forget(number);
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
        Output { code, text }
    }

    /// Whether there was something to answer.
    fn wait_and_serve(&mut self, number: RawFd) -> bool {
        let readable = {
            let listener = self.broker.listeners().next().unwrap();
            let mut fds = [PollFd::new(listener, PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(5_u8));
            fds[0]
                .revents()
                .is_some_and(|r| r.contains(PollFlags::POLLIN))
        };
        if readable {
            self.broker.serve(number).unwrap();
        }
        readable
    }

    /// A script that must succeed.
    pub(crate) fn works(&mut self, what: &str, script: &str) {
        let out = self.run(&format!("set -e\n{script}"));
        let fine = out.code == Some(0);
        self.check(what, fine, &out.text);
    }

    /// A script that must fail, and say that the filesystem is read-only.
    pub(crate) fn refused(&mut self, what: &str, script: &str) {
        let out = self.run(script);
        let fine = out.code != Some(0) && out.text.contains("Read-only file system");
        self.check(what, fine, &format!("exit {:?}: {}", out.code, out.text));
    }

    pub(crate) fn check(&mut self, what: &str, fine: bool, detail: &str) {
        self.checks += 1;
        if fine {
            println!("ok      {what}");
        } else {
            self.failures += 1;
            println!("FAILED  {what}\n{detail}\n");
        }
    }

    pub(crate) fn verdict(&self) -> ExitCode {
        println!("{} checks, {} failed", self.checks, self.failures);
        ExitCode::from(u8::from(self.failures > 0))
    }

    pub(crate) fn refusals(&self) -> String {
        let lines: Vec<String> = self
            .broker
            .refusals()
            .iter()
            .map(ToString::to_string)
            .collect();
        lines.join("\n")
    }
}

/// A writable clone of `host`, and `host` read-only at `inside`.
fn door(host: &Path, inside: &Path) -> Door {
    let name = CString::new(host.as_os_str().as_encoded_bytes()).unwrap();
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as u32;
    // SAFETY: the path ends with NUL.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, name.as_ptr(), flags) };
    assert!(fd >= 0, "open_tree: {}", std::io::Error::last_os_error());
    // SAFETY: just opened, nobody else has it.
    let writable = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) };
    let none = None::<&str>;
    mount(
        Some(host),
        inside,
        none,
        MsFlags::MS_BIND | MsFlags::MS_REC,
        none,
    )
    .unwrap();
    let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, inside, none, again, none).unwrap();
    Door {
        inside: inside.to_owned(),
        writable,
        keeps: false,
    }
}

/// As the box's first process is: no capabilities, not dumpable.
fn drop_rights() {
    use caps::CapSet;
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Bounding] {
        caps::clear(None, set).unwrap();
    }
    caps::clear(None, CapSet::Effective).unwrap();
    caps::clear(None, CapSet::Permitted).unwrap();
    nix::sys::prctl::set_no_new_privs().unwrap();
    nix::sys::prctl::set_dumpable(false).unwrap();
    nix::sys::prctl::set_child_subreaper(true).unwrap();
}

fn hand_over(socket: RawFd) -> std::io::Result<()> {
    let listener = broker::install(filter::guard().unwrap().bytes())?;
    let fds = [listener.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&fds)];
    sendmsg::<()>(
        socket,
        &[IoSlice::new(b"x")],
        &message,
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}

fn take_over(socket: RawFd) -> OwnedFd {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket, &mut parts, Some(&mut space), flags).unwrap();
    match message.cmsgs().unwrap().next() {
        Some(ControlMessageOwned::ScmRights(fds)) => {
            // SAFETY: the kernel just made it for us.
            unsafe { OwnedFd::from_raw_fd(fds[0]) }
        }
        other => panic!("no listener came: {other:?}"),
    }
}
