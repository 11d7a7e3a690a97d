//! The supervisor's ear: a socket of the session's own, to which the same user's commands connect.
//! Everybody else is turned away. Nobody who is slow or gone can hold the supervisor up.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{self as sockets, SockFlag, accept4, bind, listen};
use nix::sys::stat::{Mode, umask};

use super::backlog::Backlog;
use super::errands::{live_mount, start};
use super::idlers::{NO_ANSWER, does_not_listen, most_clients};
use super::peer;
use super::socket;
use super::talk::{self, Ask, Line, Say, SeenExec};
use super::wish::Wish;
use crate::limits::Wanted;
use crate::plan::{Plan, Seen};
use crate::policy::SessionId;
use crate::sandbox::Running;
use crate::sys;

/// How long somebody may take to make room for the news that it is over.
const LAST_WORD_MS: u16 = 500;

#[derive(Debug)]
pub(super) struct Control {
    listener: OwnedFd,
    path: PathBuf,
    pub(super) clients: Vec<Client>,
    /// As many as may be there at the same time.
    pub(super) most: usize,
    /// Programs whose caller is gone, and which have not been told yet.
    pub(super) to_end: Vec<u32>,
    next_client: u64,
    next_exec: u32,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) line: Line,
    /// When it said something last, or was told something it had waited for.
    pub(super) heard: Instant,
    pub(super) exec: Option<SeenExec>,
    pub(super) attached: bool,
    /// What it types goes to the program.
    types: bool,
    /// It hears of the end.
    pub(super) waits: bool,
    /// What it asked for takes a while.
    pub(super) is_kept: bool,
    pub(super) gone: bool,
    pub(super) backlog: Backlog,
}

impl Control {
    pub(super) fn open(runtime: &Path, id: &SessionId) -> io::Result<Self> {
        let path = runtime.join(format!("{id}.sock"));
        let listener = socket::new()?;
        // Nobody else is to reach it, not even for a moment.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = socket::address(runtime, id).and_then(|at| {
            match bind(listener.as_raw_fd(), &at.address) {
                // Left by one that was killed. The session's lock is ours, so nobody should use it; but a
                // lock that was moved away tells nothing.
                Err(Errno::EADDRINUSE) if !socket::has_listener(runtime, id) => {
                    std::fs::remove_file(&path)?;
                    Ok(bind(listener.as_raw_fd(), &at.address)?)
                }
                done => Ok(done?),
            }
        });
        umask(before);
        bound?;
        listen(&listener, sockets::Backlog::new(64)?)?;
        Ok(Self {
            listener,
            path,
            clients: Vec::new(),
            most: most_clients(),
            to_end: Vec::new(),
            next_client: 0,
            next_exec: 0,
        })
    }

    /// The listener first, then one for each client.
    pub(super) fn interests<'a>(&'a self, out: &mut Vec<PollFd<'a>>) {
        out.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        out.extend(self.clients.iter().map(|client| {
            let flags = match client.backlog.is_empty() {
                true => PollFlags::POLLIN,
                false => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            PollFd::new(client.line.as_fd(), flags)
        }));
    }

    pub(super) fn count(&self) -> usize {
        1 + self.clients.len()
    }

    /// Serves those that have something to say, by their place in `interests`.
    pub(super) fn serve(
        &mut self,
        ready: &[bool],
        plan: &Plan,
        running: &Running,
    ) -> io::Result<Vec<Wish>> {
        let mut wishes = Vec::new();
        for number in 0..self.clients.len() {
            if ready.get(number + 1) == Some(&true) {
                let heard = self.hear(number, plan, running, &mut wishes);
                if heard.is_err() {
                    self.clients[number].gone = true;
                }
            }
        }
        if ready.first() == Some(&true) {
            self.accept();
        }
        Ok(wishes)
    }

    fn accept(&mut self) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        while let Ok(fd) = accept4(self.listener.as_raw_fd(), flags) {
            let line = Line::new(sys::fds::adopt(fd));
            let full = || (!self.make_room()).then_some("too many are asking at once");
            if let Some(why) = peer::refusal(&line).or_else(full) {
                let why = why.to_owned();
                let _ = line.say(&Say::Refused { why }, &[]);
                continue;
            }
            self.next_client += 1;
            self.clients.push(Client {
                number: self.next_client,
                line,
                heard: Instant::now(),
                exec: None,
                attached: false,
                types: false,
                waits: false,
                is_kept: false,
                gone: false,
                backlog: Backlog::default(),
            });
        }
    }

    /// One packet of one client.
    fn hear(
        &mut self,
        number: usize,
        plan: &Plan,
        running: &Running,
        wishes: &mut Vec<Wish>,
    ) -> io::Result<()> {
        let has_room = self.has_room_to_stay();
        let client = &mut self.clients[number];
        let packet = match client.line.receive() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            other => other?,
        };
        let Some(packet) = packet else {
            client.gone = true;
            return Ok(());
        };
        client.heard = Instant::now();
        if let Some((_, bytes)) = packet.output() {
            if client.attached && client.types {
                wishes.push(Wish::Input(bytes.to_vec()));
            }
            return Ok(());
        }
        let ask: Ask = match packet.read() {
            Ok(ask) => ask,
            Err(error) => {
                let why = format!("it was not understood: {error}");
                return client.line.say(&Say::Refused { why }, &[]);
            }
        };
        match ask {
            Ask::Inspect => wishes.push(Wish::Inspect(number)),
            Ask::Exec { .. } | Ask::Attach { .. } if !has_room => {
                let why = "too many are at work in it or look on".to_owned();
                client.line.say(&Say::Refused { why }, &[])?;
            }
            Ask::Exec { terminal, streams } => {
                let exec = self.next_exec + 1;
                match start(exec, packet, terminal, streams, plan, running) {
                    Ok(program) => {
                        self.next_exec = exec;
                        wishes.push(Wish::Executed {
                            exec,
                            program: program.clone(),
                        });
                        client.exec = Some(SeenExec { exec, program });
                        client.line.say(&Say::Started { exec }, &[])?;
                    }
                    Err(error) => {
                        let why = match error.kind() {
                            io::ErrorKind::WouldBlock => NO_ANSWER.to_owned(),
                            _ => format!("the program cannot be started: {error}"),
                        };
                        client.line.say(&Say::Refused { why }, &[])?;
                    }
                }
            }
            Ask::Signal { signal } => match &client.exec {
                Some(started) => match running.signal_exec(started.exec, signal) {
                    told if does_not_listen(&told) => {}
                    told => told?,
                },
                None => wishes.push(Wish::Signal(number, signal)),
            },
            Ask::Attach { input } => {
                client.attached = true;
                client.types = input;
                client.waits = true;
                wishes.push(Wish::Attach(number));
            }
            Ask::Resize { rows, columns } => wishes.push(Wish::Resize { rows, columns }),
            Ask::Mount {
                source,
                device,
                inode,
                uid,
                gid,
                is_folder,
                read_only,
                name,
            } => {
                let seen = Seen {
                    device,
                    inode,
                    uid,
                    gid,
                };
                match live_mount(plan, source, seen, is_folder, read_only, name) {
                    Ok(wanted) => wishes.push(Wish::Mount(number, wanted)),
                    Err(why) => client.line.say(&Say::Refused { why }, &[])?,
                }
            }
            Ask::Limit {
                memory,
                milli_cpus,
                pids,
                disk,
                io,
                files,
                idle_ms,
            } => wishes.push(Wish::Limit(
                number,
                Wanted {
                    memory,
                    milli_cpus,
                    pids,
                    disk,
                    io,
                    files,
                    idle: idle_ms.map(std::time::Duration::from_millis),
                },
            )),
            Ask::Pause { paused } => wishes.push(Wish::Pause {
                client: number,
                paused,
            }),
            Ask::Host { pattern, allow } => wishes.push(Wish::Host {
                client: number,
                pattern,
                allow,
            }),
            Ask::Unmount { name, force } => wishes.push(Wish::Unmount {
                client: number,
                name,
                force,
            }),
            Ask::Stop { grace_ms } => {
                client.waits = true;
                wishes.push(Wish::Stop { grace_ms });
            }
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, client: usize, say: &Say) {
        if let Some(client) = self.clients.get_mut(client) {
            client.gone |= client.line.say(say, &[]).is_err();
        }
    }

    /// The terminal of a program, for whoever started it.
    pub(super) fn hand_over(&mut self, exec: u32, master: BorrowedFd<'_>) {
        if let Some(client) = self.of(exec) {
            let sent = client.line.say(&Say::Terminal, &[master.as_raw_fd()]);
            client.gone |= sent.is_err();
        }
    }

    pub(super) fn tell(&mut self, exec: u32, say: &Say) {
        if let Some(client) = self.of(exec) {
            client.gone |= client.line.say(say, &[]).is_err();
            if matches!(say, Say::Ended { .. }) {
                client.exec = None;
                client.heard = Instant::now();
            }
        }
    }

    fn of(&mut self, exec: u32) -> Option<&mut Client> {
        let is = |client: &&mut Client| client.exec.as_ref().is_some_and(|it| it.exec == exec);
        self.clients.iter_mut().find(is)
    }

    /// The session is over. A program that was still running in it has been ended with it.
    pub(super) fn tell_the_end(&mut self, status: i32) {
        for client in &mut self.clients {
            let say = match (client.exec.is_some(), client.attached) {
                (true, _) => Say::Ended {
                    status: libc::SIGKILL,
                },
                (false, true) => Say::Ended { status },
                (false, false) if client.waits => Say::Done,
                (false, false) => continue,
            };
            // What it was shown before may still fill the line.
            if client.line.say(&say, &[]).is_err() && client.attached {
                let mut waiting = [PollFd::new(client.line.as_fd(), PollFlags::POLLOUT)];
                let _ = poll(&mut waiting, LAST_WORD_MS);
                let _ = client.line.say(&say, &[]);
            }
        }
    }

    /// Nobody finds the session from now on; those who are here stay connected until this is
    /// dropped.
    pub(super) fn leave(&mut self) {
        let _ = std::fs::remove_file(std::mem::take(&mut self.path));
    }

    pub(super) fn has_execs(&self) -> bool {
        self.clients.iter().any(|client| client.exec.is_some())
    }

    pub(super) fn execs(&self) -> Vec<SeenExec> {
        let execs = self.clients.iter().filter_map(|client| client.exec.clone());
        execs.collect()
    }

    pub(super) fn inspected(&mut self, client: usize, seen: talk::Seen) {
        let written = || -> io::Result<File> {
            let mut file = File::from(sys::fds::memory(c"seen")?);
            file.write_all(&serde_json::to_vec(&seen)?)?;
            Ok(file)
        };
        if let (Some(client), Ok(file)) = (self.clients.get_mut(client), written()) {
            client.gone |= client.line.say(&Say::Seen, &[file.as_raw_fd()]).is_err();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
