//! Messages on the app's socket: a length in four bytes, then that many bytes of JSON.

use std::io;
use std::rc::Rc;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest message in either direction; the app takes none that is longer.
pub(super) const LONGEST: usize = 10 << 20;
/// What is made ready for a message before any of it has come: a length is only a claim.
const AT_FIRST: usize = 64 << 10;

/// Why there is no next message.
#[derive(Debug)]
pub(super) enum Broken {
    /// Nobody could say where the next message begins.
    Length(u32),
    Lost(io::Error),
}

/// The next message; none when the other side has said all.
pub(super) async fn read<R: AsyncRead + Unpin>(from: &mut R) -> Result<Option<Vec<u8>>, Broken> {
    let mut header = [0; 4];
    let mut have = 0;
    while have < header.len() {
        match from.read(&mut header[have..]).await.map_err(Broken::Lost)? {
            0 if have == 0 => return Ok(None),
            0 => return Err(cut()),
            some => have += some,
        }
    }
    let claimed = u32::from_be_bytes(header);
    let length = match usize::try_from(claimed) {
        Ok(length @ 1..=LONGEST) => length,
        _ => return Err(Broken::Length(claimed)),
    };
    let mut body = Vec::with_capacity(length.min(AT_FIRST));
    while body.len() < length {
        if body.len() == body.capacity() {
            let more = body.len().max(AT_FIRST).min(length - body.len());
            body.reserve_exact(more);
        }
        let left = (length - body.len()) as u64;
        let mut part = (&mut *from).take(left);
        if part.read_buf(&mut body).await.map_err(Broken::Lost)? == 0 {
            return Err(cut());
        }
    }
    Ok(Some(body))
}

fn cut() -> Broken {
    Broken::Lost(io::ErrorKind::UnexpectedEof.into())
}

/// A message on its way out, which several may be waiting to send.
#[derive(Debug, Clone)]
pub(super) struct Frame(Rc<Vec<u8>>);

impl Frame {
    /// None for what would be longer than any message may be.
    pub(super) fn of(message: &impl Serialize) -> Option<Self> {
        let mut draft = Draft::new(256);
        serde_json::to_writer(&mut draft.0, message).ok()?;
        draft.finish()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A message that is written piece by piece.
#[derive(Debug)]
pub(super) struct Draft(pub(super) Vec<u8>);

impl Draft {
    pub(super) fn new(room: usize) -> Self {
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(&[0; 4]);
        Self(bytes)
    }

    pub(super) fn finish(mut self) -> Option<Frame> {
        let length = self.0.len() - 4;
        if length > LONGEST {
            return None;
        }
        self.0[..4].copy_from_slice(&(length as u32).to_be_bytes());
        Some(Frame(Rc::new(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn a_message_arrives_whole_however_it_is_cut() {
        run(async {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let long = "x".repeat(3 * AT_FIRST + 1);
            let sent = ["a", &long, "b"];
            let writer = async {
                for text in sent {
                    let frame = Frame::of(&text).unwrap();
                    let (head, tail) = frame.bytes().split_at(3);
                    ours.write_all(head).await.unwrap();
                    tokio::task::yield_now().await;
                    ours.write_all(tail).await.unwrap();
                }
                ours.shutdown().await.unwrap();
            };
            let reader = async {
                for text in sent {
                    let body = read(&mut theirs).await.unwrap().unwrap();
                    assert_eq!(serde_json::from_slice::<String>(&body).unwrap(), text);
                }
                assert!(read(&mut theirs).await.unwrap().is_none());
            };
            tokio::join!(writer, reader);
        });
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_before_the_message() {
        run(async {
            for length in [0, LONGEST as u32 + 1, u32::MAX] {
                let (mut ours, mut theirs) = UnixStream::pair().unwrap();
                ours.write_all(&length.to_be_bytes()).await.unwrap();
                let broken = read(&mut theirs).await;
                assert!(matches!(broken, Err(Broken::Length(found)) if found == length));
            }
            assert!(Frame::of(&"x".repeat(LONGEST)).is_none());
            assert!(Frame::of(&"x".repeat(LONGEST - 2)).is_some());
        });
    }

    #[test]
    fn a_message_that_is_claimed_and_never_sent_takes_no_room() {
        run(async {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            ours.write_all(&(LONGEST as u32).to_be_bytes())
                .await
                .unwrap();
            ours.write_all(b"ten bytes.").await.unwrap();
            drop(ours);
            assert!(matches!(read(&mut theirs).await, Err(Broken::Lost(_))));
        });
    }
}
