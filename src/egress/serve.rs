//! Opens the doors: whoever comes in is served by a task of its own.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

use super::gate::{Ask, Gate, Outside, Way};
use super::start::adopt;
use super::{dns, doors, http, relay, socks};
use crate::plan::Door;
use crate::policy::egress::{Host, Reason};
use crate::sys;

/// Before the next try when no more descriptors are to be had.
const BREATH: Duration = Duration::from_millis(50);

pub(super) fn door(door: Door, fd: OwnedFd, gate: &Rc<Gate>) -> io::Result<()> {
    let gate = Rc::clone(gate);
    match door {
        Door::DnsDatagrams => {
            let socket = UdpSocket::from(fd);
            socket.set_nonblocking(true)?;
            let socket = tokio::net::UdpSocket::from_std(socket)?;
            spawn_local(dns::serve_datagrams(socket, gate));
        }
        Door::DnsStreams => {
            spawn_local(dns::serve_streams(adopt(fd)?, gate));
        }
        Door::Redirect4 | Door::Redirect6 => {
            let one = move |stream: TcpStream, _, gate| async move {
                // Where the kernel does not redirect, the listener is at the very place.
                let meant =
                    sys::net::original_destination(&stream).or_else(|_| stream.local_addr());
                match meant {
                    Ok(meant) if !meant.ip().is_loopback() => {
                        doors::redirected(stream, meant, gate).await;
                    }
                    _ => relay::reset(&stream),
                }
            };
            spawn_local(accept(adopt(fd)?, gate, one));
        }
        Door::Http => {
            let one = |stream, _, gate| http::serve_proxy(stream, gate);
            spawn_local(accept(adopt(fd)?, gate, one));
        }
        Door::Socks => {
            let one = |stream, _, gate| socks::serve(stream, gate);
            spawn_local(accept(adopt(fd)?, gate, one));
        }
        Door::Claude => {
            let one = |stream, _, gate| http::serve_claude(stream, gate);
            spawn_local(accept(adopt(fd)?, gate, one));
        }
        Door::HostPort(port) => {
            let one = move |stream, from, gate| host_port(stream, from, port, gate);
            spawn_local(accept(adopt(fd)?, gate, one));
        }
    }
    Ok(())
}

/// Takes whoever comes, and never stops doing so. More than there is room for are reset.
async fn accept<F, T>(listener: TcpListener, gate: Rc<Gate>, one: F)
where
    F: Fn(TcpStream, SocketAddr, Rc<Gate>) -> T,
    T: Future<Output = ()> + 'static,
{
    let inside = Rc::new(Cell::new(0u32));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        if inside.get() >= gate.accounts.most() {
            relay::reset(&stream);
            continue;
        }
        relay::of_the_box(&stream);
        let place = Place::take(&inside);
        let served = one(stream, from, Rc::clone(&gate));
        spawn_local(async move {
            served.await;
            drop(place);
        });
    }
}

/// One of the places at a door, given back when dropped: also when the task panics.
struct Place(Rc<Cell<u32>>);

impl Place {
    fn take(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A port of the host's own loopback that its user opened by number.
async fn host_port(inside: TcpStream, from: SocketAddr, port: u16, gate: Rc<Gate>) {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let ask = Ask {
        way: Way::HostPort,
        host: Host::Address(address),
        port,
        from,
    };
    let entry = gate.accounts.begin(&ask);
    entry.admitted(format!("--host-port {port}"));
    match TcpStream::connect((address, port)).await {
        Ok(stream) => {
            entry.reached(address);
            let _ = stream.set_nodelay(true);
            relay::relay(inside, Outside { stream, entry }, &[]).await;
        }
        Err(why) => {
            entry.refused(&ask.refusal(Reason::Unreachable(why.to_string()), None));
            relay::reset(&inside);
        }
    }
}
