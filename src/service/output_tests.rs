//! Tests of how a process's words reach the app, with real pipes.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::OFlag;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::events::{Feed, Stream};
use super::frame;
use super::outbox::Outbox;
use super::output::{Pump, last_words};
use super::testing::run;

fn pump(feed: &Rc<Feed>, stream: Stream) -> (Rc<Pump>, File) {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let read = Receiver::from_owned_fd(read).unwrap();
    (Pump::start(read, stream, "p", feed), File::from(write))
}

fn listener(feed: &Feed) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let outbox: Rc<Outbox> = Rc::default();
    feed.subscribe(&outbox);
    spawn_local(async move {
        let (_read, write) = ours.into_split();
        outbox.send_all(write).await
    });
    theirs
}

async fn heard(stream: &mut UnixStream) -> (String, String) {
    let body = frame::read(stream).await.unwrap().unwrap();
    let event: Value = serde_json::from_slice(&body).unwrap();
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    (text("type"), text("data"))
}

#[test]
fn words_come_at_once_and_a_cut_character_when_it_is_whole() {
    run(false, async {
        let feed = Rc::default();
        let mut app = listener(&feed);
        let (_out, mut write) = pump(&feed, Stream::Out);
        write.write_all(b"no newline\xe2").unwrap();
        let first = heard(&mut app).await;
        assert_eq!(first, ("stdout".into(), "no newline".into()));
        write.write_all(b"\x82").unwrap();
        tokio::task::yield_now().await;
        write.write_all(b"\xac\xff").unwrap();
        assert_eq!(heard(&mut app).await.1, "\u{20ac}\u{fffd}");
        write.write_all(b"\xe2\x82").unwrap();
        drop(write);
        assert_eq!(heard(&mut app).await.1, "\u{fffd}");
    });
}

#[test]
fn the_end_waits_for_the_last_words() {
    run(false, async {
        let feed = Rc::default();
        let mut app = listener(&feed);
        let (out, mut write) = pump(&feed, Stream::Out);
        let (err, write_err) = pump(&feed, Stream::Err);
        write.write_all(&[b'x'; 60_000]).unwrap();
        drop((write, write_err));
        last_words(&[&out, &err], || false).await;
        let mut length = 0;
        while length < 60_000 {
            length += heard(&mut app).await.1.len();
        }
        assert_eq!(length, 60_000);
    });
}

#[test]
fn others_who_keep_a_stream_do_not_keep_the_end_from_being_told() {
    run(false, async {
        let feed = Rc::default();
        let _app = listener(&feed);
        let (out, write) = pump(&feed, Stream::Out);
        let (err, mut chatter) = pump(&feed, Stream::Err);
        let chatting = spawn_local(async move {
            // Written by whoever was left behind, for as long as it likes.
            while chatter.write_all(b"still here\n").is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let before = Instant::now();
        last_words(&[&out, &err], || false).await;
        assert!(before.elapsed() >= Duration::from_millis(200), "too soon");
        // From then on they are read and not told, so that they go on.
        out.stop_telling();
        err.stop_telling();
        drop(write);
        assert!(!chatting.is_finished());
        chatting.abort();
    });
}

#[test]
fn a_process_that_nobody_hears_is_not_read_for_ever() {
    run(false, async {
        let feed: Rc<Feed> = Rc::default();
        let (out, write) = pump(&feed, Stream::Out);
        nix::fcntl::fcntl(&write, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut write = write;
        let (mut total, mut refusals) = (0, 0);
        // It has stopped when nothing more goes in although everybody had a turn.
        while refusals < 1000 {
            match write.write(&[b'x'; 65_536]) {
                Ok(some) => (total, refusals) = (total + some, 0),
                Err(_) => refusals += 1,
            }
            tokio::task::yield_now().await;
        }
        assert!((8 << 20..9 << 20).contains(&total), "{total}");
        let mut app = listener(&feed);
        let (_err, none) = pump(&feed, Stream::Err);
        drop((write, none));
        let mut heard_all = 0;
        while heard_all < total {
            heard_all += heard(&mut app).await.1.len();
        }
        assert_eq!(heard_all, total);
        drop(out);
    });
}

#[test]
fn one_that_is_cancelled_ends_although_nobody_hears_it() {
    run(false, async {
        let feed: Rc<Feed> = Rc::default();
        while feed.has_room() {
            feed.output("q", Stream::Out, &"x".repeat(64 << 10));
        }
        let (out, mut write) = pump(&feed, Stream::Out);
        let (err, none) = pump(&feed, Stream::Err);
        write.write_all(b"nobody hears this").unwrap();
        drop((write, none));
        let waiting = Duration::from_secs(1);
        let waited = tokio::time::timeout(waiting, last_words(&[&out, &err], || false)).await;
        assert!(waited.is_err(), "it was told to nobody");
        last_words(&[&out, &err], || true).await;
    });
}
