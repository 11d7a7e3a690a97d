//! What is answered: an address of ours for a name the rules know, and at once "no such name" for
//! any other. Nobody is asked, so no question can carry anything out of the box.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::packet::{Packet, Record};
use super::question::{Code, Heard, INTERNET, Question, hear, kind};
use crate::egress::names::Names;
use crate::policy::egress::{Host, Name, Reason, Refusal, Rules};

/// RFC 8914: a rule of this box forbids it, and a list that somebody asked to be used has it.
const BLOCKED: u16 = 15;
const FILTERED: u16 = 17;

#[derive(Debug)]
pub(in crate::egress) struct Answer {
    pub(in crate::egress) packet: Vec<u8>,
    /// Who was asked for and may not be reached.
    pub(in crate::egress) refused: Option<(Name, Refusal)>,
}

/// Answers a packet, or not: what is no question stays unanswered.
pub(in crate::egress) fn answer(packet: &[u8], names: &mut Names, rules: &Rules) -> Option<Answer> {
    let silent = |packet| Answer {
        packet,
        refused: None,
    };
    let question = match hear(packet) {
        Heard::Nothing => return None,
        Heard::Wrong(header, code) => return Some(silent(Packet::bare(header, code).done())),
        Heard::Question(question) => question,
    };
    let version = question.extension.map_or(0, |extension| extension.version);
    let is_about_answers = question.kind == kind::OPT
        || question.kind == 0
        || kind::ABOUT_ANSWERS.contains(&question.kind);
    let say = if version != 0 {
        Say::Only(Code::BadVersion)
    } else if question.class != INTERNET || is_about_answers {
        Say::Only(Code::Refused)
    } else {
        say(&question, names, rules)
    };
    Some(write(&question, say))
}

enum Say {
    Only(Code),
    Found(Record),
    /// There is such a name, but nothing of this kind.
    NothingOfThisKind,
    NoSuchName,
    Refused(Name, Refusal),
}

fn write(question: &Question<'_>, say: Say) -> Answer {
    let code = match &say {
        Say::Only(code) => *code,
        Say::Found(_) | Say::NothingOfThisKind => Code::Fine,
        Say::NoSuchName | Say::Refused(..) => Code::NoSuchName,
    };
    let mut packet = Packet::repeating(question, code);
    match &say {
        Say::Found(record) => packet.answer(record),
        Say::NothingOfThisKind | Say::NoSuchName | Say::Refused(..) => packet.nothing_here(),
        Say::Only(_) => {}
    }
    if let Some(extension) = question.extension {
        let why = match &say {
            Say::Refused(_, refusal) if matches!(refusal.reason, Reason::Denied) => {
                Some((FILTERED, refusal.sentence()))
            }
            Say::Refused(_, refusal) => Some((BLOCKED, refusal.sentence())),
            _ => None,
        };
        packet.extension(extension, why);
    }
    Answer {
        packet: packet.done(),
        refused: match say {
            Say::Refused(name, refusal) => Some((name, refusal)),
            _ => None,
        },
    }
}

fn say(question: &Question<'_>, names: &mut Names, rules: &Rules) -> Say {
    let Some(text) = &question.name else {
        return Say::NoSuchName;
    };
    if text.is_empty() {
        // The root: some ask for it to see whether anybody is there.
        return Say::NothingOfThisKind;
    }
    if text.ends_with(".in-addr.arpa") || text.ends_with(".ip6.arpa") {
        return match reversed(text) {
            Some(address) => named(address, question.kind, names),
            None => Say::NoSuchName,
        };
    }
    let Ok(name) = Name::parse(text) else {
        return Say::NoSuchName;
    };
    let is_localhost = name.is_localhost();
    if !is_localhost && !rules.knows(&name) {
        return match service_of(text) {
            Some(host) if rules.knows(&host) => Say::NothingOfThisKind,
            host => refused(host.unwrap_or(name), rules),
        };
    }
    match question.kind {
        kind::ANY => Say::Found(Record::NotAll),
        kind::A if is_localhost => Say::Found(Record::Address(Ipv4Addr::LOCALHOST.into())),
        kind::AAAA if is_localhost => Say::Found(Record::Address(Ipv6Addr::LOCALHOST.into())),
        kind::A => Say::Found(Record::Address(names.give(&name).0.into())),
        kind::AAAA => Say::Found(Record::Address(names.give(&name).1.into())),
        _ => Say::NothingOfThisKind,
    }
}

/// The host in the name of a service, which is the host's with words before it that no list of
/// hosts has, such as `_http._tcp`.
fn service_of(name: &str) -> Option<Name> {
    let mut host = name;
    while host.starts_with('_') {
        host = host.split_once('.')?.1;
    }
    Name::parse(host).ok().filter(|_| host.len() < name.len())
}

/// As for somebody who would connect to it next, which is what names are asked for.
fn refused(name: Name, rules: &Rules) -> Say {
    let host = Host::Name(name.clone());
    let refusal = match rules.admit(&host, 443) {
        Err(refusal) => refusal,
        Ok(_) => Refusal::new(host, 443, Reason::NotListed),
    };
    Say::Refused(name, refusal)
}

fn named(address: IpAddr, asked: u16, names: &mut Names) -> Say {
    let name = match address {
        address if address.is_loopback() => Some("localhost".to_owned()),
        address => names.name(address).map(|name| name.as_str().to_owned()),
    };
    match (name, asked) {
        (None, _) => Say::NoSuchName,
        (Some(name), kind::PTR) => Say::Found(Record::Pointer(name)),
        (Some(_), kind::ANY) => Say::Found(Record::NotAll),
        (Some(_), _) => Say::NothingOfThisKind,
    }
}

/// The address in a name such as `4.3.2.1.in-addr.arpa`.
fn reversed(name: &str) -> Option<IpAddr> {
    if let Some(digits) = name.strip_suffix(".in-addr.arpa") {
        let parts: Vec<&str> = digits.rsplit('.').collect();
        return parts.join(".").parse().map(IpAddr::V4).ok();
    }
    let digits = name.strip_suffix(".ip6.arpa")?;
    let digits: Option<Vec<u8>> = digits
        .rsplit('.')
        .map(|digit| match digit.as_bytes() {
            [digit] => char::from(*digit).to_digit(16).map(|digit| digit as u8),
            _ => None,
        })
        .collect();
    let halves: [u8; 32] = digits?.try_into().ok()?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(halves.chunks(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Some(IpAddr::from(bytes))
}
