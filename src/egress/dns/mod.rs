//! The box's own name server, over datagrams and over streams.

mod answer;
mod packet;
mod question;
#[cfg(test)]
mod tests;
mod told;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};

use self::told::Told;
use super::gate::{Ask, Gate, Way};
use crate::policy::egress::Host;

pub(super) use self::answer::answer;

/// Before the next try when the socket failed.
const BREATH: Duration = Duration::from_millis(50);
/// Streams at a time. The next ones wait until one of these is done.
const CONVERSATIONS: usize = 64;
/// Until the next question on a stream is there as a whole, and until an answer is taken.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn serve_datagrams(socket: UdpSocket, gate: Rc<Gate>) {
    let told = RefCell::default();
    // One byte more than the longest, so that what is longer still is seen to be.
    let mut packet = vec![0; question::LONGEST + 1];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut packet).await else {
            sleep(BREATH).await;
            continue;
        };
        if let Some(answer) = respond(&packet[..length], from, &gate, &told) {
            // Who does not get it asks again.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

pub(super) async fn serve_streams(listener: TcpListener, gate: Rc<Gate>) {
    let told = Rc::new(RefCell::default());
    let places = Arc::new(Semaphore::new(CONVERSATIONS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let (gate, told) = (Rc::clone(&gate), Rc::clone(&told));
        spawn_local(async move {
            // However it ended, the stream is over.
            let _ = converse(stream, from, &gate, &told).await;
            drop(place);
        });
    }
}

/// Question after question, until the other side is done, slow, or makes no sense.
async fn converse(
    stream: TcpStream,
    from: SocketAddr,
    gate: &Gate,
    told: &RefCell<Told>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut packet = Vec::new();
    loop {
        timeout(PATIENCE, next(&mut stream, &mut packet)).await??;
        let Some(answer) = respond(&packet, from, gate, told) else {
            return Ok(());
        };
        let mut framed = (answer.len() as u16).to_be_bytes().to_vec();
        framed.extend(answer);
        timeout(PATIENCE, stream.write_all(&framed)).await??;
    }
}

async fn next(stream: &mut BufReader<TcpStream>, packet: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::from(stream.read_u16().await?);
    if length > question::LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    packet.resize(length, 0);
    stream.read_exact(packet).await.map(drop)
}

fn respond(packet: &[u8], from: SocketAddr, gate: &Gate, told: &RefCell<Told>) -> Option<Vec<u8>> {
    let answer = answer(packet, &mut gate.names.borrow_mut(), &gate.rules.borrow())?;
    gate.accounts.questioned();
    if let Some((name, refusal)) = answer.refused
        && told.borrow_mut().is_news(&name, Instant::now())
    {
        let ask = Ask {
            way: Way::Dns,
            host: Host::Name(name),
            port: 0,
            from,
        };
        gate.refuse(&ask, &refusal);
    }
    Some(answer.packet)
}
