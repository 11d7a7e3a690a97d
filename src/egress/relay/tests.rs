//! Real sockets on loopback, and what the books say afterwards.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use super::relay;
use crate::egress::gate::{Ask, Gate, Way};
use crate::egress::talk::Hear;
use crate::policy::egress::{Host, HostPattern, Rule};

const LONG: Duration = Duration::from_secs(20);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        timeout(LONG, test).await.expect("it takes too long");
    });
}

/// A program inside, a host outside, and the relay between them.
struct Scene {
    gate: Rc<Gate>,
    program: TcpStream,
    host: TcpStream,
    relay: tokio::task::JoinHandle<()>,
    port: u16,
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (one, two) = tokio::join!(
        TcpStream::connect(listener.local_addr().unwrap()),
        listener.accept()
    );
    (one.unwrap(), two.unwrap().0)
}

impl Scene {
    async fn new(first: &'static [u8]) -> Self {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = server.local_addr().unwrap().port();
        let gate = Gate::for_tests(&[format!("127.0.0.1:{port}")]);
        let ask = Ask {
            way: Way::Redirect,
            host: Host::Address(Ipv4Addr::LOCALHOST.into()),
            port,
            from: SocketAddr::from(([127, 0, 0, 1], 1)),
        };
        let (program, inside) = pair().await;
        let (opened, accepted) = tokio::join!(gate.open(&ask), server.accept());
        let outside = opened.unwrap();
        let relay = spawn_local(async move { relay(inside, outside, first).await });
        let host = accepted.unwrap().0;
        Self {
            gate,
            program,
            host,
            relay,
            port,
        }
    }

    /// What the books say of the one connection.
    async fn account(self) -> crate::egress::Connection {
        drop((self.program, self.host));
        self.relay.await.unwrap();
        loop {
            match self.gate.accounts.next_word().expect("an account") {
                Hear::Over(connection) => return connection,
                _ => continue,
            }
        }
    }
}

#[test]
fn bytes_pass_both_ways_and_are_counted() {
    run(async {
        let mut scene = Scene::new(b"first ").await;
        scene.program.write_all(b"second").await.unwrap();
        let mut heard = [0; 12];
        scene.host.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"first second");
        scene.host.write_all(b"back").await.unwrap();
        let mut heard = [0; 4];
        scene.program.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"back");
        let account = scene.account().await;
        assert_eq!((account.sent, account.received), (12, 4));
        assert_eq!(account.refused, None);
    });
}

#[test]
fn one_side_can_be_done_while_the_other_goes_on() {
    run(async {
        let mut scene = Scene::new(b"").await;
        scene.program.write_all(b"question").await.unwrap();
        scene.program.shutdown().await.unwrap();
        let mut heard = Vec::new();
        scene.host.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        scene.host.write_all(b"answer").await.unwrap();
        scene.host.shutdown().await.unwrap();
        let mut heard = Vec::new();
        scene.program.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"answer");
    });
}

#[test]
fn much_arrives_exactly_as_it_was_sent() {
    run(async {
        const MUCH: usize = 64 << 20;
        let scene = Scene::new(b"").await;
        let Scene {
            mut program,
            mut host,
            gate,
            relay,
            ..
        } = scene;
        let piece: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
        let expected = piece.clone();
        let writer = spawn_local(async move {
            for _ in 0..MUCH >> 20 {
                host.write_all(&piece).await.unwrap();
            }
        });
        let mut heard = vec![0; 1 << 20];
        for _ in 0..MUCH >> 20 {
            program.read_exact(&mut heard).await.unwrap();
            assert!(heard == expected, "a piece has changed");
        }
        writer.await.unwrap();
        drop(program);
        relay.await.unwrap();
        while let Some(word) = gate.accounts.next_word() {
            if let Hear::Over(connection) = word {
                assert_eq!(connection.received, MUCH as u64);
            }
        }
    });
}

#[test]
fn a_reset_is_passed_on_as_one() {
    run(async {
        let Scene { program, host, .. } = Scene::new(b"").await;
        host.set_zero_linger().unwrap();
        drop(host);
        let mut program = program;
        let error = program.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reader_that_stops_holds_the_writer_up() {
    run(async {
        let Scene {
            program, mut host, ..
        } = Scene::new(b"").await;
        let piece = vec![7; 1 << 20];
        let mut sent = 0usize;
        // Kernel buffers and one pipe: some megabytes, never more.
        while let Ok(done) = timeout(Duration::from_millis(300), host.write(&piece)).await {
            sent += done.unwrap();
            assert!(sent < 64 << 20, "nobody holds it up");
        }
        drop(program);
    });
}

#[test]
fn a_rule_taken_back_ends_what_it_allowed() {
    run(async {
        let mut scene = Scene::new(b"").await;
        scene.program.write_all(b"x").await.unwrap();
        scene.host.read_u8().await.unwrap();
        // Another host's rule changes nothing.
        let other = HostPattern::parse("example.com").unwrap();
        scene.gate.deny(Rule::new(other, "deny"));
        scene.program.write_all(b"y").await.unwrap();
        assert_eq!(scene.host.read_u8().await.unwrap(), b'y');
        let this = HostPattern::parse(&format!("127.0.0.1:{}", scene.port)).unwrap();
        scene.gate.deny(Rule::new(this, "deny"));
        assert!(scene.program.read_u8().await.is_err());
        assert!(scene.host.read_u8().await.is_err());
    });
}
