//! Tests of who hears what, and in which order.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use super::events::{self, Exit, Feed, Stream};
use super::frame;
use super::outbox::{Outbox, STALLED, Sent};
use super::testing::run;

/// Somebody who listens, or could.
struct Listener {
    outbox: Rc<Outbox>,
    stream: UnixStream,
    sending: JoinHandle<Sent>,
}

impl Listener {
    fn new(feed: &Feed) -> Self {
        let (ours, stream) = UnixStream::pair().unwrap();
        // Dropped with the task; until then it would be a sign that nobody writes any more.
        let (read, write) = ours.into_split();
        let outbox: Rc<Outbox> = Rc::default();
        feed.subscribe(&outbox);
        let out = Rc::clone(&outbox);
        let sending = spawn_local(async move {
            let _read = read;
            out.send_all(write).await
        });
        Self {
            outbox,
            stream,
            sending,
        }
    }

    async fn next(&mut self) -> Value {
        let body = frame::read(&mut self.stream).await.unwrap().unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    async fn texts(&mut self, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for _ in 0..count {
            let event = self.next().await;
            let text = event["data"].as_str().or(event["type"].as_str());
            texts.push(text.unwrap().to_owned());
        }
        texts
    }
}

fn exit(feed: &Feed) {
    feed.exit(&Exit {
        id: "p",
        exit_code: 0,
        signal: None,
        oom_kill_count: 0,
    });
}

/// Says so much that there is no room for more.
fn fill(feed: &Feed) -> usize {
    let text = "x".repeat(64 << 10);
    for count in 0..1000 {
        if !feed.has_room() {
            return count;
        }
        feed.output("p", Stream::Out, &text);
    }
    panic!("there is always room");
}

#[test]
fn everybody_hears_everything_in_order() {
    run(false, async {
        let feed = Feed::default();
        let mut both = [Listener::new(&feed), Listener::new(&feed)];
        for number in 0..1000 {
            feed.output("p", Stream::Out, &number.to_string());
        }
        exit(&feed);
        for listener in &mut both {
            let texts = listener.texts(1001).await;
            let numbers = (0..1000).map(|number: i32| number.to_string());
            assert!(texts[..1000].iter().eq(&numbers.collect::<Vec<_>>()));
            assert_eq!(texts[1000], "exit");
        }
    });
}

#[test]
fn what_nobody_heard_is_told_to_the_next_one() {
    run(false, async {
        let feed = Feed::default();
        feed.state(events::CONNECTED);
        feed.output("p", Stream::Out, "a");
        feed.output("p", Stream::Err, "b");
        exit(&feed);
        let mut first = Listener::new(&feed);
        assert_eq!(first.texts(4).await, ["networkStatus", "a", "b", "exit"]);
        let mut second = Listener::new(&feed);
        feed.output("q", Stream::Out, "c");
        assert_eq!(second.texts(2).await, ["networkStatus", "c"]);
        assert_eq!(first.texts(1).await, ["c"]);
    });
}

#[test]
fn what_was_on_its_way_to_somebody_who_left_is_not_lost() {
    run(false, async {
        let feed = Feed::default();
        let listener = Listener::new(&feed);
        let count = fill(&feed);
        exit(&feed);
        // Some of it is in the socket by now, and lost with it.
        while !feed.has_room() {
            tokio::task::yield_now().await;
        }
        drop(listener.stream);
        assert_eq!(listener.sending.await.unwrap(), Sent::Gone);
        feed.unsubscribe(&listener.outbox);
        let mut next = Listener::new(&feed);
        let mut events = Vec::new();
        while events.last().map(String::as_str) != Some("exit") {
            events.extend(next.texts(1).await);
        }
        assert!((2..=count + 1).contains(&events.len()), "{}", events.len());
    });
}

#[test]
fn while_nobody_listens_only_so_much_is_kept_but_every_end() {
    run(false, async {
        let feed = Feed::default();
        let count = fill(&feed);
        assert!((100..200).contains(&count), "{count} times 64 KiB");
        let waited = timeout(Duration::from_millis(50), feed.room()).await;
        assert!(waited.is_err(), "there is room");
        exit(&feed);
        let mut listener = Listener::new(&feed);
        let waiting = async {
            feed.room().await;
        };
        let hearing = async {
            let texts = listener.texts(count + 1).await;
            assert_eq!(texts[count], "exit");
        };
        tokio::join!(waiting, hearing);
    });
}

#[test]
fn one_who_takes_nothing_is_let_go_and_the_others_hear_all() {
    run(false, async {
        let feed = Rc::new(Feed::default());
        let stalled = Listener::new(&feed);
        let mut other = Listener::new(&feed);
        let other_outbox = Rc::clone(&other.outbox);
        let count = fill(&feed);
        let saying = Rc::clone(&feed);
        let saying = spawn_local(async move {
            for _ in 0..40 {
                saying.room().await;
                saying.output("p", Stream::Out, &"y".repeat(64 << 10));
            }
        });
        let heard = Rc::new(Cell::new(0));
        let hearing = Rc::clone(&heard);
        let hearing = spawn_local(async move {
            while hearing.get() < count + 40 {
                hearing.set(hearing.get() + other.texts(1).await.len());
            }
        });
        // Until everything there is room for was said, and was heard by the one who listens.
        while feed.has_room() || !other_outbox.has_sent_all() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(heard.get() < count + 40, "nobody waited");
        tokio::time::pause();
        tokio::time::advance(STALLED + Duration::from_secs(1)).await;
        tokio::time::resume();
        assert_eq!(stalled.sending.await.unwrap(), Sent::Stalled);
        feed.unsubscribe(&stalled.outbox);
        hearing.await.unwrap();
        saying.await.unwrap();
        // What it was sent before is all it ever gets.
        let mut stream = stalled.stream;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.len() < 4 << 20, "{}", rest.len());
    });
}

#[test]
fn whoever_comes_hears_how_things_are_and_not_how_they_were() {
    run(false, async {
        let feed = Feed::default();
        let mut early = Listener::new(&feed);
        feed.state(events::begun("vm_boot"));
        let mut meanwhile = Listener::new(&feed);
        assert_eq!(meanwhile.next().await["status"], "started");
        feed.state(events::ended("vm_boot", true));
        feed.state(events::CONNECTED);
        feed.state(events::REACHABLE);
        let mut late = Listener::new(&feed);
        for status in ["started", "completed", "CONNECTED", "REACHABLE"] {
            assert_eq!(early.next().await["status"], status);
        }
        for status in ["CONNECTED", "REACHABLE"] {
            assert_eq!(late.next().await["status"], status);
        }
        feed.forget_reachability();
        feed.state(events::NOT_CONNECTED);
        let mut last = Listener::new(&feed);
        assert_eq!(last.next().await["status"], "NOT_CONNECTED");
        exit(&feed);
        assert_eq!(last.next().await["type"], "exit");
    });
}
