//! Makes the connection outside: to exactly the addresses that were checked, or to the proxy
//! that dials for us.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::upstream::Proxy;
use crate::policy::egress::Host;

/// Until the next address is tried besides the one that does not answer.
const STAGGER: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Dialer {
    upstream: Option<Proxy>,
}

impl Dialer {
    pub(super) fn new(upstream: Option<Proxy>) -> Self {
        Self { upstream }
    }

    pub(super) fn has_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    /// Asks the proxy that dials for us.
    pub(super) async fn ask_upstream(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        let none = || io::Error::other("there is no proxy to ask");
        let proxy = self.upstream.as_ref().ok_or_else(none)?;
        let reached = tokio::time::timeout(PATIENCE, proxy.reach(host, port)).await;
        reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The first of the addresses that answers.
    pub(super) async fn dial(
        &self,
        addresses: &[IpAddr],
        port: u16,
    ) -> io::Result<(TcpStream, IpAddr)> {
        let mut tries = JoinSet::new();
        let mut left = addresses.iter().copied();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let end = tokio::time::Instant::now() + PATIENCE;
        loop {
            match left.next() {
                Some(address) => {
                    tries.spawn_local(connect(address, port));
                }
                None if tries.is_empty() => return Err(last),
                None => {}
            }
            // With more addresses to try nobody is waited for long.
            let until = match left.len() {
                0 => end,
                _ => end.min(tokio::time::Instant::now() + STAGGER),
            };
            match tokio::time::timeout_at(until, tries.join_next()).await {
                Ok(Some(Ok((address, Ok(stream))))) => {
                    let _ = stream.set_nodelay(true);
                    return Ok((stream, address));
                }
                Ok(Some(Ok((_, Err(error))))) => last = error,
                Ok(Some(Err(_)) | None) => {}
                Err(_) if tokio::time::Instant::now() >= end => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(_) => {}
            }
        }
    }

    /// The address, if it is one of this host's own. The kernel is asked each time, because
    /// hosts move: it would talk to its own address from that very address.
    pub(super) fn own(&self, address: IpAddr) -> Option<IpAddr> {
        let from: IpAddr = match address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let asked = UdpSocket::bind(SocketAddr::new(from, 0)).and_then(|socket| {
            socket.connect(SocketAddr::new(address, 9))?;
            socket.local_addr()
        });
        asked
            .ok()
            .map(|from| from.ip())
            .filter(|from| *from == address)
    }
}

async fn connect(address: IpAddr, port: u16) -> (IpAddr, io::Result<TcpStream>) {
    (address, TcpStream::connect((address, port)).await)
}
