//! Tests of what a process is given to read, with real pipes.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use nix::fcntl::OFlag;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::task::{JoinHandle, spawn_local};

use super::input::{Input, Taken};
use super::testing::run;

const MIB: usize = 1 << 20;

fn fed(input: &Rc<Input>) -> (Receiver, JoinHandle<()>) {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    let write = Sender::from_owned_fd(write).unwrap();
    let input = Rc::clone(input);
    let feeding = spawn_local(async move { input.feed(write).await });
    (Receiver::from_owned_fd(read).unwrap(), feeding)
}

#[test]
fn pieces_arrive_whole_and_in_order() {
    run(false, async {
        let input = Rc::new(Input::new("p"));
        let mut sent = Vec::new();
        for number in 0..3000 {
            let piece = vec![number as u8; number];
            sent.extend_from_slice(&piece);
            assert!(matches!(input.write(piece), Taken::Done));
        }
        let (mut read, _feeding) = fed(&input);
        let mut got = vec![0; sent.len()];
        read.read_exact(&mut got).await.unwrap();
        assert!(got == sent);
    });
}

#[test]
fn what_does_not_fit_is_answered_when_it_does() {
    run(false, async {
        let input = Rc::new(Input::new("p"));
        let mut held = Vec::new();
        let mut refused = 0;
        for number in 0..40u8 {
            match input.write(vec![number; MIB]) {
                Taken::Done => assert!(held.is_empty(), "out of order"),
                Taken::Held(answer) => held.push(answer),
                Taken::Refused(why) => {
                    assert!(why.contains("-32002"), "{why}");
                    refused += 1;
                }
            }
        }
        assert_eq!((held.len(), refused), (8, 16));
        let (mut read, _feeding) = fed(&input);
        let mut piece = vec![0; MIB];
        for number in 0..24u8 {
            read.read_exact(&mut piece).await.unwrap();
            assert!(piece.iter().all(|byte| *byte == number), "{number}");
        }
        for answer in held {
            answer.await.unwrap().unwrap();
        }
        assert!(matches!(input.write(vec![1; 10 * MIB]), Taken::Done));
    });
}

#[test]
fn who_never_reads_is_told_of_and_nothing_of_it_is_written_later() {
    run(true, async {
        let input = Rc::new(Input::new("p"));
        let (mut read, _feeding) = fed(&input);
        for _ in 0..16 {
            assert!(matches!(input.write(vec![b'a'; MIB]), Taken::Done));
        }
        // The first that waits may be as long as any message.
        let Taken::Held(first) = input.write(vec![b'b'; 10 * MIB]) else {
            panic!("it was not held");
        };
        assert!(matches!(input.write(vec![b'c'; MIB]), Taken::Refused(_)));
        let why = first.await.unwrap().unwrap_err();
        assert!(why.contains("-32002"), "{why}");
        let mut got = vec![0; 16 * MIB];
        read.read_exact(&mut got).await.unwrap();
        assert!(got.iter().all(|byte| *byte == b'a'));
        assert!(matches!(input.write(b"d".to_vec()), Taken::Done));
        assert_eq!(read.read_u8().await.unwrap(), b'd');
    });
}

#[test]
fn who_closes_its_input_is_given_no_more() {
    run(false, async {
        let input = Rc::new(Input::new("p"));
        let (read, feeding) = fed(&input);
        drop(read);
        assert!(matches!(input.write(b"x".to_vec()), Taken::Done));
        feeding.await.unwrap();
        let Taken::Refused(why) = input.write(b"x".to_vec()) else {
            panic!("it was taken");
        };
        assert!(why.contains("reads no input"), "{why}");
    });
}
