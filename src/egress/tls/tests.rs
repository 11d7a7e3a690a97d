use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, ServerConnection};

use super::authority::{inward, issuer, leaf};
use super::*;
use crate::policy::egress::{Host, Name};

fn names(all: &[&str]) -> Vec<Name> {
    all.iter().map(|name| Name::parse(name).unwrap()).collect()
}

/// Lets two ends greet each other in memory; what the client thinks of it.
fn greet(
    roots: &Roots,
    server: Arc<rustls::ServerConfig>,
    name: &'static str,
) -> Result<(), rustls::Error> {
    let name = ServerName::try_from(name).unwrap();
    let mut client = ClientConnection::new(roots.outward().unwrap(), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    while client.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

fn is_trusted(text: &str) -> Vec<CertificateDer<'static>> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes());
    all.map(Result::unwrap).collect()
}

#[test]
fn the_authority_speaks_for_its_hosts() {
    let authority = Authority::new(&names(&["a.test", "b.test"])).unwrap();
    let roots = Roots::only(is_trusted(authority.certificate_pem()).remove(0));
    for name in ["a.test", "b.test"] {
        let host = Host::parse(name).unwrap();
        let server = authority.speak_for(&host).unwrap();
        assert_eq!(greet(&roots, Arc::clone(&server), name), Ok(()));
        assert!(greet(&roots, server, "c.test").is_err());
    }
    for other in ["c.test", "x.a.test", "test", "127.0.0.1"] {
        assert!(authority.speak_for(&Host::parse(other).unwrap()).is_none());
    }
}

#[test]
fn what_it_could_sign_besides_nobody_would_believe() {
    // The key is thrown away; were it not, this is all that it could be used for.
    let issuer = issuer(&names(&["a.test"])).unwrap();
    let roots = Roots::only(issuer.der().clone());
    for (name, is_believed) in [("a.test", true), ("evil.test", false)] {
        let (certificate, key) = leaf(&Name::parse(name).unwrap(), &issuer).unwrap();
        let server = inward(certificate, key).unwrap();
        assert_eq!(greet(&roots, server, name).is_ok(), is_believed, "{name}");
    }
}

#[test]
fn the_boxs_file_holds_the_systems_roots_and_this_one() {
    let other = Authority::new(&names(&["other.test"])).unwrap();
    let authority = Authority::new(&names(&["a.test"])).unwrap();
    let system = is_trusted(other.certificate_pem()).remove(0);
    let bundle = Roots::only(system.clone()).bundle(&authority);
    let ours = is_trusted(authority.certificate_pem()).remove(0);
    assert_eq!(is_trusted(&bundle), [system, ours]);
    assert!(bundle.lines().all(|line| line.len() <= 64));
}

#[test]
fn nothing_prints_a_key() {
    let authority = Authority::new(&names(&["a.test"])).unwrap();
    assert_eq!(format!("{authority:?}"), "{Name(\"a.test\")}");
    assert!(!authority.certificate_pem().contains("PRIVATE"));
}
