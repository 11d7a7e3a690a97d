//! A gate for tests, and the runtime they need. Nothing is pretended: what is dialled is dialled.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::accounts::Accounts;
use super::dial::Dialer;
use super::gate::Gate;
use super::http::Means;
use super::names::Names;
use super::resolve::Resolver;
use super::talk::Hear;
use super::upstream::Proxy;
use super::{Connection, Refused};
use crate::policy::egress::{HostPattern, Rule, Rules};

/// No test waits longer than this for anything, by its own clock.
const LIMIT: Duration = Duration::from_secs(400);

pub(super) fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let rule = |pattern: HostPattern| {
        let said = format!("--allow-host {pattern}");
        Rule::new(pattern, said)
    };
    let denied = |text: &&str| rule(HostPattern::parse_denied(text).unwrap());
    let allowed = |text: &&str| rule(HostPattern::parse(text).unwrap());
    Rules {
        allow: allow.iter().map(allowed).collect(),
        deny: deny.iter().map(denied).collect(),
    }
}

pub(super) fn gate(allow: &[&str], upstream: Option<Proxy>) -> Rc<Gate> {
    Rc::new(Gate {
        rules: rules(allow, &[]).into(),
        names: Names::new(1000).into(),
        accounts: Accounts::new(1000, None),
        resolver: Resolver::new(),
        dialer: Dialer::new(upstream),
        http: Means::default(),
    })
}

/// What was written down of connections that are over.
pub(super) fn over(gate: &Gate) -> Vec<Connection> {
    std::iter::from_fn(|| gate.accounts.next_word())
        .filter_map(|word| match word {
            Hear::Over(connection) => Some(connection),
            _ => None,
        })
        .collect()
}

/// The words for the refusals among them.
pub(super) fn refusals(gate: &Gate) -> Vec<Refused> {
    over(gate)
        .into_iter()
        .filter_map(|connection| connection.refused)
        .collect()
}

pub(super) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(LIMIT, test).await.unwrap() };
    LocalSet::new().block_on(&runtime, limited);
}

pub(super) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a connection.
pub(super) async fn pair() -> (TcpStream, TcpStream) {
    let (listener, address) = listener().await;
    let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// What a TLS client says first to this host.
pub(super) fn hello(host: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let server = rustls::pki_types::ServerName::try_from(host.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), server).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}
