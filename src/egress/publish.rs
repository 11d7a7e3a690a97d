//! From the host into the box: ports of the host that lead to one of the box's.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::gate::{Ask, Gate, Outside, Way};
use super::inward::Inward;
use super::relay;
use crate::policy::egress::{Host, Reason};

const BREATH: Duration = Duration::from_millis(50);

/// Serves whoever comes to these ports.
pub(super) fn open(
    published: Vec<(TcpListener, u16)>,
    dialer: Option<OwnedFd>,
    gate: &Rc<Gate>,
) -> io::Result<()> {
    let Some(dialer) = dialer else {
        return Ok(());
    };
    let inward = Rc::new(Inward::new(dialer)?);
    for (listener, port) in published {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (gate, inward) = (Rc::clone(gate), Rc::clone(&inward));
        spawn_local(async move {
            loop {
                match listener.accept().await {
                    Ok((caller, from)) => {
                        let _ = caller.set_nodelay(true);
                        let (gate, inward) = (Rc::clone(&gate), Rc::clone(&inward));
                        spawn_local(lead_in(caller, from, port, inward, gate));
                    }
                    Err(_) => tokio::time::sleep(BREATH).await,
                }
            }
        });
    }
    Ok(())
}

async fn lead_in(
    caller: TcpStream,
    from: SocketAddr,
    port: u16,
    inward: Rc<Inward>,
    gate: Rc<Gate>,
) {
    let ask = Ask {
        way: Way::Publish,
        host: Host::Address(from.ip()),
        port,
        from,
    };
    let entry = gate.accounts.begin(&ask);
    entry.admitted(format!("--publish {port}"));
    let refuse = |why: Reason| {
        entry.refused(&ask.refusal(why, None));
        relay::reset(&caller);
    };
    if !gate.accounts.has_room() {
        return refuse(Reason::TooMany);
    }
    match inward.connect(port).await {
        // The box is where it goes to: what the caller says is what is sent.
        Ok(stream) => relay::relay(caller, Outside { stream, entry }, &[]).await,
        Err(why) => refuse(Reason::Unreachable(why.to_string())),
    }
}
