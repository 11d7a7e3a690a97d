//! The supervisor's ear: a socket of the session's own, to which the same user's commands connect.
//! Everybody else is turned away. Nobody who is slow or gone can hold the supervisor up.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{SockFlag, accept4};

use super::backlog::Backlog;
use super::errands::{Given, live_mount, start, unsaid};
use super::idlers::{NO_ANSWER, does_not_listen, most_clients};
use super::peer::{self, Standing};
use super::socket;
use super::talk::{Ask, Line, Say, SeenExec};
use super::wish::{MountWish, Wish};
use crate::limits::Wanted;
use crate::plan::{Plan, Seen};
use crate::policy::SessionId;
use crate::sandbox::Running;
use crate::sys;

const TOO_MANY: &str = "too many are asking at once";

#[derive(Debug)]
pub(super) struct Control {
    listener: OwnedFd,
    path: PathBuf,
    /// The session's home, for those who may ask.
    pub(super) home: Option<OwnedFd>,
    pub(super) clients: Vec<Client>,
    /// As many as may be there at the same time.
    pub(super) most: usize,
    /// Programs whose caller is gone, and which have not been told yet.
    pub(super) to_end: Vec<u32>,
    next_client: u64,
    next_exec: u32,
    /// Found out when somebody comes.
    standing: OnceCell<Standing>,
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
    /// It brings lines for others.
    pub(super) brings: bool,
    /// What it asked for takes a while.
    pub(super) is_kept: bool,
    pub(super) gone: bool,
    pub(super) backlog: Backlog,
}

impl Control {
    pub(super) fn open(runtime: &Path, id: &SessionId) -> io::Result<Self> {
        let path = runtime.join(format!("{id}.sock"));
        let listener = socket::listen(runtime, id)?;
        Ok(Self {
            listener,
            path,
            home: None,
            clients: Vec::new(),
            most: most_clients(),
            to_end: Vec::new(),
            next_client: 0,
            next_exec: 0,
            standing: OnceCell::new(),
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
            let refusal = peer::refusal(&line, self.standing.get_or_init(Standing::own));
            let full = || (!self.make_room()).then_some(TOO_MANY);
            if let Some(why) = refusal.or_else(full) {
                let why = why.to_owned();
                let _ = line.say(&Say::Refused { why }, &[]);
                continue;
            }
            self.admit(line);
        }
    }

    /// Somebody who was looked at.
    fn admit(&mut self, line: Line) {
        self.next_client += 1;
        self.clients.push(Client {
            number: self.next_client,
            line,
            heard: Instant::now(),
            exec: None,
            attached: false,
            types: false,
            waits: false,
            brings: false,
            is_kept: false,
            gone: false,
            backlog: Backlog::default(),
        });
    }

    /// A line that somebody brought who was looked at when they came.
    fn admit_brought(&mut self, line: Option<OwnedFd>) -> io::Result<()> {
        let line = line.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        fcntl(&line, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let line = Line::new(line);
        if self.make_room() {
            self.admit(line);
        } else {
            let why = TOO_MANY.to_owned();
            let _ = line.say(&Say::Refused { why }, &[]);
        }
        Ok(())
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
            Ask::Line => {
                // Without room to stay it is let go like others when it is silent, and comes again.
                client.brings |= has_room;
                return self.admit_brought(packet.fds.into_iter().next());
            }
            Ask::Home => client.hand_out(self.home.as_ref())?,
            Ask::Exec { .. } | Ask::Attach { .. } if !has_room => {
                let why = "too many are at work in it or look on".to_owned();
                client.line.say(&Say::Refused { why }, &[])?;
            }
            Ask::Exec {
                terminal,
                streams,
                confirm,
                only_env,
            } => {
                let exec = self.next_exec + 1;
                let given = Given {
                    terminal,
                    streams,
                    confirm,
                    only_env,
                };
                match start(exec, packet, given, plan, running) {
                    Ok(program) => {
                        self.next_exec = exec;
                        wishes.push(Wish::Executed {
                            exec,
                            program: program.clone(),
                        });
                        client.exec = Some(SeenExec { exec, program });
                        // Whoever is told when it runs need not hear that it will.
                        if !confirm {
                            client.line.say(&Say::Started { exec }, &[])?;
                        }
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
            Ask::Signal { signal, subtree } => match &client.exec {
                Some(started) => {
                    let told = match subtree {
                        true => running.signal_subtree(started.exec, signal),
                        false => running.signal_exec(started.exec, signal),
                    };
                    if !does_not_listen(&told) {
                        told?;
                    }
                }
                None if subtree => {
                    let why = "no program runs on this connection".to_owned();
                    client.line.say(&Say::Refused { why }, &[])?;
                }
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
                mode,
                place,
                replace,
                despite_overlap,
            } => {
                let seen = Seen {
                    device,
                    inode,
                    uid,
                    gid,
                };
                let wish = MountWish {
                    source,
                    seen,
                    is_folder,
                    mode,
                    place,
                    replace,
                    despite_overlap,
                };
                match live_mount(plan, wish) {
                    Ok(mount) => wishes.push(Wish::Mount {
                        client: number,
                        mount,
                        replace,
                    }),
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
            Ask::Rules { rules } => wishes.push(Wish::Rules {
                client: number,
                rules,
            }),
            Ask::Secret { name } => match unsaid(packet) {
                Ok(value) => wishes.push(Wish::Secret {
                    client: number,
                    name,
                    value,
                }),
                Err(why) => client.line.say(&Say::Refused { why }, &[])?,
            },
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
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
