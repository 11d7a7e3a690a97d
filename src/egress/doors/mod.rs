//! What happens to a connection once it is known whom it is for, whichever door it came through.
//!
//! A host that was reached by name is to be the one that the connection itself asks for, where that
//! can be seen. So the first bytes from inside are looked at before any of them leaves.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::gate::{Ask, Gate, Outside, Way};
use super::http;
use super::names::Names;
use super::relay::{relay, reset};
use super::sniff::{LONGEST_START, Sniffed, sniff};
use crate::policy::egress::{Host, Reason};

/// Neither side has said anything for so long.
const SILENCE: Duration = Duration::from_secs(5 * 60);
/// Until a hello or the first line of a request is there as a whole.
const WHOLE_START: Duration = Duration::from_secs(10);
/// Somebody whose first words could be a request's, and who then waits, speaks something else.
const PAUSE: Duration = Duration::from_secs(1);
/// First words in more pieces than this are not waited for.
const MOST_PIECES: usize = 1024;
/// Room for a usual hello.
const PIECE: usize = 2 << 10;
/// Until the other side has taken our last word.
const PARTING: Duration = Duration::from_secs(2);

/// How long whoever connected is given to speak before the host outside is dialled. What can be
/// judged before is judged without a packet leaving, and HTTP is dialled for by its own door.
fn patience(port: u16) -> Duration {
    match port {
        // Here hosts speak first: FTP, SSH, mail, news, MySQL, VNC.
        21 | 22 | 23 | 25 | 110 | 119 | 143 | 587 | 2222 | 2525 | 3306 | 5900 => Duration::ZERO,
        _ if is_usual_for_http(port) => Duration::from_secs(3),
        _ => Duration::from_millis(50),
    }
}

pub(super) fn is_usual_for_http(port: u16) -> bool {
    matches!(
        port,
        80 | 3000 | 5000 | 8000 | 8008 | 8080 | 8081 | 8888 | 9000
    )
}

/// The host that an address means inside: the name it was given out for, or itself.
pub(super) fn meant(address: IpAddr, gate: &Gate) -> Result<Host, Reason> {
    if !Names::is_ours(address) {
        return Ok(Host::from(address));
    }
    match gate.names.borrow_mut().name(address) {
        Some(name) => Ok(Host::Name(name.clone())),
        None => Err(Reason::Unresolved(
            "the address stands for no name, or no more; ask for the name again".to_owned(),
        )),
    }
}

/// A connection that was on its way to `original` when it was led here.
pub(super) async fn redirected(inside: TcpStream, original: SocketAddr, gate: Rc<Gate>) {
    let Ok(from) = inside.peer_addr() else {
        return reset(&inside);
    };
    let mut ask = Ask {
        way: Way::Redirect,
        host: Host::from(original.ip()),
        port: original.port(),
        from,
    };
    match meant(original.ip(), &gate) {
        Ok(host) => {
            ask.host = host;
            asked(inside, ask, gate).await;
        }
        Err(reason) => turn_away(&inside, &ask, reason, &gate),
    }
}

/// Serves somebody who takes the connection for made already, so that a refusal is a reset.
pub(super) async fn asked(inside: TcpStream, ask: Ask, gate: Rc<Gate>) {
    let admitted = gate.rules.borrow().admit(&ask.host, ask.port).map(drop);
    if let Err(refusal) = admitted {
        gate.refuse(&ask, &refusal);
        return reset(&inside);
    }
    let mut said = Vec::new();
    let wait = patience(ask.port);
    let first = match &ask.host {
        Host::Name(_) if !wait.is_zero() => match timeout(wait, read(&inside, &mut said)).await {
            Err(_) | Ok(Ok(0)) => None,
            Ok(Ok(_)) => Some(first_words(&inside, said).await),
            Ok(Err(_)) => return,
        },
        _ => None,
    };
    let Some(first) = first else {
        return match gate.open(&ask).await {
            Ok(outside) => through(inside, outside, &ask, &gate).await,
            Err(_) => reset(&inside),
        };
    };
    if let Some(reason) = objection(&first.what, &ask.host) {
        return turn_away(&inside, &ask, reason, &gate);
    }
    if first.what == Sniffed::Http {
        return Box::pin(http::serve_origin(inside, first.bytes, ask, gate)).await;
    }
    match gate.open(&ask).await {
        Ok(outside) => bring_together(inside, first, outside, &ask, &gate).await,
        Err(_) => reset(&inside),
    }
}

/// Nothing stands between them any more, but for hosts whose TLS ends here.
async fn bring_together(
    inside: TcpStream,
    first: First,
    outside: Outside,
    ask: &Ask,
    gate: &Rc<Gate>,
) {
    if matches!(first.what, Sniffed::Tls { .. }) && http::is_audited(&ask.host, gate) {
        let served =
            http::serve_audited(inside, first.bytes, outside, ask.clone(), Rc::clone(gate));
        return Box::pin(served).await;
    }
    relay(inside, outside, &first.bytes).await;
}

/// Brings somebody inside together with a host that is dialled already.
pub(super) async fn through(inside: TcpStream, outside: Outside, ask: &Ask, gate: &Rc<Gate>) {
    through_after(inside, Vec::new(), outside, ask, gate).await;
}

/// The same for a door that has read more than it should have: `said` comes first.
///
/// A host that speaks first speaks neither TLS nor HTTP, so there is no name to be seen, and both
/// sides are left to each other. As long as neither has spoken both are waited for.
pub(super) async fn through_after(
    inside: TcpStream,
    said: Vec<u8>,
    outside: Outside,
    ask: &Ask,
    gate: &Rc<Gate>,
) {
    if matches!(ask.host, Host::Address(_)) {
        return relay(inside, outside, &said).await;
    }
    let mut said = said;
    if said.is_empty() {
        let mut one = [0];
        tokio::select! {
            biased;
            // The end as a first word is the relay's to pass on.
            read = read(&inside, &mut said) => if let Ok(0) | Err(_) = read {
                return relay(inside, outside, &[]).await;
            },
            // A byte has to be there: that a stream was ready once says nothing about now.
            spoken = outside.stream.peek(&mut one) => match spoken {
                Ok(1..) => return relay(inside, outside, &[]).await,
                // It hung up without a word, and so do we.
                Ok(0) | Err(_) => return,
            },
            () = outside.entry.revoked() => return reset_both(&inside, &outside),
            () = sleep(SILENCE) => return reset_both(&inside, &outside),
        }
    }
    let first = first_words(&inside, said).await;
    match objection(&first.what, &ask.host) {
        Some(reason) => {
            let refusal = ask.refusal(reason, None);
            outside.entry.refused(&refusal);
            reset_both(&inside, &outside);
        }
        None if first.what == Sniffed::Http => {
            // Its own door looks at every request, and dials by itself.
            drop(outside);
            let served = http::serve_origin(inside, first.bytes, ask.clone(), Rc::clone(gate));
            Box::pin(served).await;
        }
        None => bring_together(inside, first, outside, ask, gate).await,
    }
}

fn reset_both(inside: &TcpStream, outside: &Outside) {
    reset(inside);
    reset(&outside.stream);
}

fn turn_away(inside: &TcpStream, ask: &Ask, reason: Reason, gate: &Gate) {
    gate.refuse(ask, &ask.refusal(reason, None));
    reset(inside);
}

/// Why somebody who says this may not go on to the host that was asked for.
fn objection(what: &Sniffed, host: &Host) -> Option<Reason> {
    match (what, host) {
        (Sniffed::Tls { name: Some(name) }, Host::Name(host)) if name != host => {
            Some(Reason::OtherName(name.to_string()))
        }
        (Sniffed::Malformed(why), Host::Name(_)) => Some(Reason::Malformed((*why).to_owned())),
        _ => None,
    }
}

/// The first bytes from inside, and what they are.
struct First {
    bytes: Vec<u8>,
    what: Sniffed,
}

/// Reads on until it is clear what is spoken.
async fn first_words(inside: &TcpStream, said: Vec<u8>) -> First {
    let mut bytes = said;
    let end = Instant::now() + WHOLE_START;
    for _ in 0..MOST_PIECES {
        let what = sniff(&bytes, bytes.len() < LONGEST_START);
        if what != Sniffed::More {
            return First { bytes, what };
        }
        let next = end.min(Instant::now() + PAUSE);
        match timeout_at(next, read(inside, &mut bytes)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(_)) => {}
            Err(_) => {
                let what = sniff(&bytes, false);
                if what == Sniffed::Other || Instant::now() >= end {
                    return First { bytes, what };
                }
            }
        }
    }
    let what = sniff(&bytes, false);
    First { bytes, what }
}

/// Adds what there is to read; nothing at the end of it. Nothing is lost if this is given up.
async fn read(inside: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        inside.readable().await?;
        bytes.reserve(PIECE);
        match inside.try_read_buf(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

/// Says a last word so that it arrives: closing with words of the other side unread would take
/// ours back.
pub(super) async fn part(mut inside: TcpStream, word: &[u8]) {
    const MOST: usize = 64;
    let said = async {
        inside.write_all(word).await?;
        inside.shutdown().await?;
        let mut unread = [0; 1 << 10];
        for _ in 0..MOST {
            if inside.read(&mut unread).await? == 0 {
                break;
            }
        }
        io::Result::Ok(())
    };
    // Whoever does not take it in time does not get it.
    let _ = timeout(PARTING, said).await;
}
