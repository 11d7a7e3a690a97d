use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name as Labels, OPCODE, PacketFlag, QCLASS, QTYPE, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::*;
use crate::egress::names::Names;
use crate::egress::testing::{gate, listener, over, rules, run};

/// Somebody else's reader of packets, so that ours is not its own judge.
type Packet<'a> = simple_dns::Packet<'a>;

fn question(name: &str, kind: QTYPE) -> Vec<u8> {
    let mut packet = Packet::new_query(0x1234);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Labels::new(name).unwrap();
    let question = simple_dns::Question::new(name, kind, CLASS::IN.into(), false);
    packet.questions.push(question);
    packet.build_bytes_vec().unwrap()
}

/// With an extension of this version.
fn extended(name: &str, kind: QTYPE, version: u8) -> Vec<u8> {
    let mut bytes = question(name, kind);
    bytes[11] = 1;
    // Larger answers are fine, signatures are wanted, and one option we do not know.
    bytes.extend([0, 0, 41, 0x10, 0, 0, version, 0x80, 0, 0, 12]);
    bytes.extend([0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    bytes
}

/// What is found under a name: one line, as `dig` would say it.
fn found(packet: &Packet<'_>) -> Vec<String> {
    let lines = packet.answers.iter().map(|record| {
        let what = match &record.rdata {
            RData::A(a) => Ipv4Addr::from(a.address).to_string(),
            RData::AAAA(aaaa) => Ipv6Addr::from(aaaa.address).to_string(),
            RData::PTR(pointer) => pointer.0.to_string(),
            RData::HINFO(_) => "not all".to_owned(),
            other => format!("{other:?}"),
        };
        format!("{} {} {what}", record.name, record.ttl)
    });
    lines.collect()
}

/// The reasons in the extension.
fn reasons(packet: &Packet<'_>) -> Vec<(u16, String)> {
    let options = packet.opt().unwrap().opt_codes.iter();
    let reasons = options.filter(|option| option.code == 15);
    reasons
        .map(|option| {
            let code = u16::from_be_bytes([option.data[0], option.data[1]]);
            (code, String::from_utf8(option.data[2..].to_vec()).unwrap())
        })
        .collect()
}

struct Server {
    names: Names,
    rules: crate::policy::egress::Rules,
}

impl Server {
    fn new() -> Self {
        let allow = ["example.com", "*.wild.test", "deb.example:80"];
        Self {
            names: Names::new(100),
            rules: rules(&allow, &["bad.wild.test"]),
        }
    }

    fn raw(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let answer = answer(packet, &mut self.names, &self.rules)?;
        assert!(answer.packet.len() <= packet::LONGEST);
        Some(answer.packet)
    }

    /// The code, what was found, and whether somebody stands for what was not.
    fn ask(&mut self, name: &str, kind: TYPE) -> (RCODE, Vec<String>, usize) {
        let question = question(name, kind.into());
        let packet = self.raw(&question).unwrap();
        // To the letter, because clients compare it so.
        assert!(packet[12..].starts_with(&question[12..]), "{name}");
        let packet = Packet::parse(&packet).unwrap();
        assert_eq!(packet.id(), 0x1234);
        assert!(packet.has_flags(
            PacketFlag::RESPONSE | PacketFlag::RECURSION_DESIRED | PacketFlag::RECURSION_AVAILABLE
        ));
        assert!(!packet.has_flags(PacketFlag::TRUNCATION));
        assert_eq!(packet.questions.len(), 1);
        assert!(packet.opt().is_none(), "an extension nobody asked for");
        (packet.rcode(), found(&packet), packet.name_servers.len())
    }
}

fn line(text: &str) -> Vec<String> {
    vec![text.to_owned()]
}

#[test]
fn known_names_get_addresses_and_keep_them() {
    let mut server = Server::new();
    let first = line("example.com 60 198.18.1.1");
    assert_eq!(
        server.ask("example.com", TYPE::A),
        (RCODE::NoError, first.clone(), 0)
    );
    let second = line("a.b.wild.test 60 198.18.1.2");
    assert_eq!(
        server.ask("a.b.wild.test", TYPE::A),
        (RCODE::NoError, second, 0)
    );
    let six = line("example.com 60 fd63:6f77:6f72:6b00::c612:101");
    assert_eq!(
        server.ask("example.com", TYPE::AAAA),
        (RCODE::NoError, six, 0)
    );
    assert_eq!(server.ask("example.com", TYPE::A).1, first);
    // Asked for in other letters: the same host, and the question as it was.
    let (_, same, _) = server.ask("eXaMpLe.CoM", TYPE::A);
    assert_eq!(same, line("eXaMpLe.CoM 60 198.18.1.1"));
}

#[test]
fn other_kinds_of_known_names_are_empty_and_say_so_at_once() {
    let mut server = Server::new();
    for kind in [TYPE::MX, TYPE::TXT, TYPE::SRV, TYPE::NS, TYPE::CNAME] {
        assert_eq!(
            server.ask("example.com", kind),
            (RCODE::NoError, vec![], 1),
            "{kind:?}"
        );
    }
    for number in [64, 65, 257, 65280] {
        let mut packet = question("example.com", TYPE::A.into());
        let at = packet.len() - 4;
        packet[at..at + 2].copy_from_slice(&u16::to_be_bytes(number));
        let answer = server.raw(&packet).unwrap();
        assert_eq!(answer[3] & 0xf, 0, "{number}");
        assert_eq!(&answer[6..10], [0, 0, 0, 1], "{number}");
    }
    // A service of a known host: nothing, and nobody is accused of it.
    let service = question("_http._tcp.deb.example", TYPE::SRV.into());
    let quiet = answer(&service, &mut server.names, &server.rules).unwrap();
    assert!(quiet.refused.is_none());
    assert_eq!(
        server.ask("_http._tcp.deb.example", TYPE::SRV),
        (RCODE::NoError, vec![], 1)
    );
    // Everything there is: one line that says that this is not it.
    let any = server.raw(&question("example.com", QTYPE::ANY)).unwrap();
    let any = Packet::parse(&any).unwrap();
    assert_eq!(found(&any), line("example.com 60 not all"));
}

#[test]
fn other_names_do_not_exist_and_nobody_is_asked() {
    let mut server = Server::new();
    for name in [
        "evil.test",
        "wild.test",
        "bad.wild.test",
        "evilexample.com",
        "example.com.evil.test",
        "sub.example.com",
        "com",
        "host",
        "_x._tcp.evil.test",
        "169.254.169.254",
        "a\\.b.wild.test",
        "a\\000.wild.test",
        "a\\032b.wild.test",
        "xn--\\195\\159.wild.test",
    ] {
        for kind in [TYPE::A, TYPE::AAAA, TYPE::TXT] {
            let (code, found, authority) = server.ask(name, kind);
            assert_eq!((code, authority), (RCODE::NameError, 1), "{name}");
            assert!(found.is_empty());
        }
    }
}

#[test]
fn a_refusal_names_the_host_and_the_flag() {
    let mut server = Server::new();
    let mut refused = |name: &str| {
        let packet = extended(name, TYPE::A.into(), 0);
        let answer = answer(&packet, &mut server.names, &server.rules).unwrap();
        let packet = Packet::parse(&answer.packet).unwrap();
        assert_eq!(packet.rcode(), RCODE::NameError);
        let (name, refusal) = answer.refused.unwrap();
        (reasons(&packet), name, refusal.word())
    };
    let (said, name, word) = refused("Evil.test");
    assert_eq!((name.as_str(), word), ("evil.test", "not-listed"));
    assert_eq!(said[0].0, 15);
    assert!(said[0].1.contains("--allow-host evil.test"), "{said:?}");
    let (said, name, word) = refused("bad.wild.test");
    assert_eq!((name.as_str(), word), ("bad.wild.test", "denied"));
    assert_eq!(said[0].0, 17);
    // Whoever asks for a service is told about the host.
    let (said, name, _) = refused("_imaps._tcp.evil.test");
    assert_eq!(name.as_str(), "evil.test");
    assert!(said[0].1.starts_with("evil.test "), "{said:?}");
}

#[test]
fn the_longest_name_still_fits() {
    let label = "a".repeat(63);
    let name = format!("{label}.{label}.{label}.{}.wild.test", "b".repeat(51));
    assert_eq!(name.len(), 253);
    let mut server = Server::new();
    let (code, found, _) = server.ask(&name, TYPE::A);
    assert_eq!((code, found.len()), (RCODE::NoError, 1));
    let back = server.ask("1.1.18.198.in-addr.arpa", TYPE::PTR);
    assert!(back.1[0].ends_with(&name), "{back:?}");
    // Refused, with words in the room that is left.
    let other = name.replace("wild.test", "evil.test");
    let packet = server.raw(&extended(&other, TYPE::A.into(), 0)).unwrap();
    let packet = Packet::parse(&packet).unwrap();
    assert_eq!(packet.rcode(), RCODE::NameError);
    assert_eq!(reasons(&packet)[0].0, 15);
}

#[test]
fn the_box_itself_and_the_root() {
    let mut server = Server::new();
    for name in ["localhost", "LocalHost", "x.localhost"] {
        let four = line(&format!("{name} 60 127.0.0.1"));
        assert_eq!(server.ask(name, TYPE::A), (RCODE::NoError, four, 0));
        let six = line(&format!("{name} 60 ::1"));
        assert_eq!(server.ask(name, TYPE::AAAA), (RCODE::NoError, six, 0));
        assert_eq!(server.ask(name, TYPE::MX), (RCODE::NoError, vec![], 1));
    }
    assert_eq!(server.ask("", TYPE::NS), (RCODE::NoError, vec![], 1));
}

#[test]
fn addresses_have_names_if_they_are_ours() {
    let mut server = Server::new();
    server.ask("example.com", TYPE::A);
    let six: String = "fd636f776f726b0000000000c6120101"
        .chars()
        .rev()
        .map(|digit| format!("{digit}."))
        .collect();
    let local: String = format!("1.{}ip6.arpa", "0.".repeat(31));
    for (reversed, name) in [
        ("1.1.18.198.in-addr.arpa", "example.com"),
        ("1.1.18.198.IN-ADDR.ARPA", "example.com"),
        (&format!("{six}ip6.arpa"), "example.com"),
        ("1.0.0.127.in-addr.arpa", "localhost"),
        (&local, "localhost"),
    ] {
        let (code, found, _) = server.ask(reversed, TYPE::PTR);
        assert_eq!(code, RCODE::NoError, "{reversed}");
        assert_eq!(found, line(&format!("{reversed} 60 {name}")));
    }
    for nobody in [
        "2.1.18.198.in-addr.arpa",
        "8.8.8.8.in-addr.arpa",
        "18.198.in-addr.arpa",
        "01.1.18.198.in-addr.arpa",
        "1.1.1.18.198.in-addr.arpa",
        "x.ip6.arpa",
        "1.ip6.arpa",
        "secret-data.in-addr.arpa",
    ] {
        let packet = question(nobody, TYPE::PTR.into());
        let answer = answer(&packet, &mut server.names, &server.rules).unwrap();
        assert_eq!(answer.packet[3] & 0xf, 3, "{nobody}");
        // Nobody wanted to go there.
        assert!(answer.refused.is_none());
    }
}

#[test]
fn the_extension_is_answered_and_later_versions_are_not() {
    let mut server = Server::new();
    let bytes = server.raw(&extended("example.com", TYPE::A.into(), 0));
    let bytes = bytes.unwrap();
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(found(&packet), line("example.com 60 198.18.1.1"));
    // The size, no more code than in the header, the version, and the wish for signatures, which
    // is repeated although there are none. No options.
    assert_eq!(
        bytes[bytes.len() - 11..],
        [0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0]
    );
    let later = server.raw(&extended("example.com", TYPE::A.into(), 1));
    let later = later.unwrap();
    // Code 16: its lower four bits are in the header.
    assert_eq!(later[3] & 0xf, 0);
    assert_eq!(
        later[later.len() - 11..],
        [0, 0, 41, 4, 0xd0, 1, 0, 0x80, 0, 0, 0]
    );
    assert!(Packet::parse(&later).unwrap().answers.is_empty());
}

#[test]
fn what_is_no_plain_question_is_turned_away() {
    let mut server = Server::new();
    let plain = question("example.com", TYPE::A.into());
    let with = |change: fn(&mut Vec<u8>)| {
        let mut packet = plain.clone();
        change(&mut packet);
        packet
    };
    let class = |class: QCLASS| {
        let mut packet = Packet::new_query(1);
        let name = Labels::new("example.com").unwrap();
        let question = simple_dns::Question::new(name, TYPE::A.into(), class, false);
        packet.questions.push(question);
        packet.build_bytes_vec().unwrap()
    };
    let notify = with(|packet| packet[2] |= 4 << 3);
    let cases: [(&str, Vec<u8>, u8); 17] = [
        ("another operation", notify.clone(), 4),
        ("another class", class(CLASS::CH.into()), 5),
        ("any class", class(QCLASS::ANY), 5),
        ("a zone", question("example.com", QTYPE::AXFR), 5),
        ("no question", with(|packet| packet[5] = 0), 1),
        ("two questions", with(|packet| packet[5] = 2), 1),
        ("an answer within", with(|packet| packet[7] = 1), 1),
        ("an authority within", with(|packet| packet[9] = 1), 1),
        ("no extension", with(|packet| packet[11] = 1), 1),
        ("many more", with(|packet| packet[10] = 0xff), 1),
        ("bytes at the end", with(|packet| packet.push(0)), 1),
        ("cut short", with(|packet| packet.truncate(14)), 1),
        (
            "nothing but a header",
            with(|packet| packet.truncate(12)),
            1,
        ),
        ("too long", with(|packet| packet.resize(5000, 0)), 1),
        (
            "a pointer to itself",
            [&plain[..12], &[0xc0, 12, 0, 1, 0, 1]].concat(),
            1,
        ),
        (
            "a pointer to the header",
            [&plain[..12], &[1, b'a', 0xc0, 0, 0, 1, 0, 1]].concat(),
            1,
        ),
        (
            "a name too long",
            [&plain[..12], &[[63; 64]; 5].concat(), &[0, 0, 1, 0, 1]].concat(),
            1,
        ),
    ];
    for (what, packet, code) in cases {
        let answer = server.raw(&packet).unwrap_or_else(|| panic!("{what}"));
        assert_eq!(answer[3] & 0xf, code, "{what}");
        assert_eq!(answer[..2], packet[..2], "{what}");
        assert!(answer.len() <= packet.len().max(12), "{what} grew");
    }
    let answer = server.raw(&notify).unwrap();
    assert_eq!(Packet::parse(&answer).unwrap().opcode(), OPCODE::Notify);
    // Two extensions, one that belongs to a name, and records that nobody knows.
    let opt = [0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0];
    let mut two = [&plain[..], &opt, &opt].concat();
    two[11] = 2;
    assert_eq!(server.raw(&two).unwrap()[3] & 0xf, 1);
    let mut named = [&plain[..], &[1, b'a'], &opt[..]].concat();
    named[11] = 1;
    assert_eq!(server.raw(&named).unwrap()[3] & 0xf, 1);
    let mut unknown = [&plain[..], &[0xc0, 12, 0, 250], &opt[3..], &opt].concat();
    unknown[11] = 2;
    assert_eq!(server.raw(&unknown).unwrap()[3] & 0xf, 0);
}

#[test]
fn answers_and_scraps_are_not_answered() {
    let mut server = Server::new();
    let plain = question("example.com", TYPE::A.into());
    let answer = server.raw(&plain).unwrap();
    assert_eq!(server.raw(&answer), None, "an answer was answered");
    for length in 0..12 {
        assert_eq!(server.raw(&plain[..length]), None, "{length} bytes");
    }
}

/// A server over both kinds of sockets, and how to reach it.
async fn both(gate: &Rc<Gate>) -> (UdpSocket, std::net::SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let at = socket.local_addr().unwrap();
    spawn_local(serve_datagrams(socket, Rc::clone(gate)));
    let (listener, stream_at) = listener().await;
    spawn_local(serve_streams(listener, Rc::clone(gate)));
    let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    client.connect(at).await.unwrap();
    (client, stream_at)
}

async fn exchange(client: &UdpSocket, packet: &[u8]) -> Vec<u8> {
    client.send(packet).await.unwrap();
    let mut answer = vec![0; 1024];
    let length = client.recv(&mut answer).await.unwrap();
    answer.truncate(length);
    answer
}

/// The question for a name of seven digits below a zone, without a builder's time.
fn numbered(zone: &str) -> impl Fn(u32) -> Vec<u8> {
    let template = question(&format!("0000000.{zone}"), TYPE::A.into());
    move |number| {
        let mut packet = template.clone();
        packet[13..20].copy_from_slice(format!("{number:07}").as_bytes());
        packet
    }
}

#[test]
fn a_hundred_thousand_questions_leave_nothing_behind() {
    let gate = gate(&["*.wild.test"], None);
    let (good, bad) = (numbered("wild.test"), numbered("evil.test"));
    let told = RefCell::default();
    let from = ([127, 0, 0, 1], 1).into();
    let ask = |packet: &[u8]| respond(packet, from, &gate, &told).unwrap();
    for number in 0..50_000 {
        assert_eq!(ask(&good(number))[3] & 0xf, 0);
        assert_eq!(ask(&bad(number))[3] & 0xf, 3);
    }
    let last = ask(&good(0));
    let last = last.last_chunk::<4>().map(|four| IpAddr::from(*four));
    assert_eq!(gate.accounts.totals().questions, 100_001);
    let mut names = gate.names.borrow_mut();
    assert_eq!(
        names.name(last.unwrap()).unwrap().as_str(),
        "0000000.wild.test"
    );
    assert_eq!(names.len(), 1000, "more names than there is room for");
    // The flood is in the books, but not line by line.
    let lines = over(&gate);
    assert!((1..=128).contains(&lines.len()), "{} lines", lines.len());
    assert!(
        lines
            .iter()
            .all(|line| line.door == "dns" && line.port == 0)
    );
}

#[test]
fn whoever_asks_and_does_not_listen_keeps_nobody_waiting() {
    run(async {
        let gate = gate(&["*.wild.test"], None);
        let (deaf, _) = both(&gate).await;
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        other.connect(deaf.peer_addr().unwrap()).await.unwrap();
        let packet = numbered("wild.test");
        for number in 1..=2_000 {
            deaf.send(&packet(number)).await.unwrap();
            // Before the server's queue is full: what comes then is lost, as datagrams are.
            if number % 50 == 0 {
                assert_eq!(exchange(&other, &packet(number)).await[3] & 0xf, 0);
            }
        }
    });
}

#[test]
fn garbage_in_datagrams_does_not_stop_the_server() {
    run(async {
        let gate = gate(&["example.com"], None);
        let (client, _) = both(&gate).await;
        let plain = question("example.com", TYPE::A.into());
        for scrap in [&[][..], &[0], &[0xff; 11], &[0xff; 40], &vec![0; 9000]] {
            client.send(scrap).await.unwrap();
        }
        // The last one is answered as malformed, so that what comes next is known.
        let mut answer = [0; 512];
        assert_eq!(client.recv(&mut answer).await.unwrap(), 12);
        let answer = exchange(&client, &plain).await;
        assert_eq!(found(&Packet::parse(&answer).unwrap()).len(), 1);
    });
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [&(packet.len() as u16).to_be_bytes(), packet].concat()
}

async fn one_answer(stream: &mut TcpStream) -> Vec<u8> {
    let length = stream.read_u16().await.unwrap();
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await.unwrap();
    packet
}

#[test]
fn streams_take_many_questions_in_whatever_pieces() {
    run(async {
        let gate = gate(&["example.com"], None);
        let (_, at) = both(&gate).await;
        let packet = framed(&question("example.com", TYPE::A.into()));
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(&packet.repeat(3)).await.unwrap();
        for _ in 0..3 {
            let answer = one_answer(&mut stream).await;
            assert_eq!(found(&Packet::parse(&answer).unwrap()).len(), 1);
        }
        for byte in packet {
            stream.write_all(&[byte]).await.unwrap();
        }
        one_answer(&mut stream).await;
        // Nothing more is asked: nothing more is said.
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    });
}

#[test]
fn streams_without_sense_are_closed() {
    run(async {
        tokio::time::pause();
        let gate = gate(&["example.com"], None);
        let (_, at) = both(&gate).await;
        let endless = [&[0xff, 0xff][..], &[0; 100]].concat();
        for scrap in [framed(&[]), framed(&[1, 2, 3]), endless] {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(&scrap).await.unwrap();
            let ended = stream.read(&mut [0; 1]).await;
            assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        }
        // As many as there are places say nothing; the next one waits for the slowest of them.
        let mut idle = Vec::new();
        for _ in 0..CONVERSATIONS {
            idle.push(TcpStream::connect(at).await.unwrap());
        }
        let mut stream = TcpStream::connect(at).await.unwrap();
        let packet = framed(&question("example.com", TYPE::A.into()));
        stream.write_all(&packet).await.unwrap();
        one_answer(&mut stream).await;
    });
}
