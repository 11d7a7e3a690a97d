//! After HTTP: two sides that agreed on WebSocket, and nothing in between but counting.

use std::rc::Rc;

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};

use super::link::Switched;
use super::wire::{Clock, Near};
use crate::egress::accounts::Entry;

/// Until both are done, nothing moved for too long, or the rules changed. `first` was read from
/// the inside already.
pub(super) async fn pass_on<T: AsyncRead + AsyncWrite + Unpin>(
    stream: T,
    first: Bytes,
    switched: Switched,
    entry: &Rc<Entry>,
) {
    let clock = Clock::new();
    let mut near = Near::new(stream, first.into(), &clock);
    let (mut far, answered) = switched;
    let both = async {
        near.write_all(&answered).await?;
        near.flush().await?;
        copy_bidirectional(&mut near, &mut far).await
    };
    tokio::select! {
        _ = both => {}
        () = entry.revoked() => {}
        () = clock.quiet(super::QUIET) => {}
    }
}
