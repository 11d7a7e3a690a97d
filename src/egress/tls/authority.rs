//! The session's own certificates.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::TlsError;
use crate::policy::egress::{Host, Name};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks differ, and sessions end at some time. Some programs refuse what lasts for longer.
const BEFORE: Duration = DAY;
const AFTER: Duration = Duration::from_secs(397 * DAY.as_secs());

/// Speaks for the named hosts inside. Its own key is forgotten as soon as their certificates are
/// signed, so nothing else can ever be.
pub struct Authority {
    pem: String,
    hosts: BTreeMap<Name, Arc<ServerConfig>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.hosts.keys()).finish()
    }
}

impl Authority {
    pub fn new(hosts: &[Name]) -> Result<Self, TlsError> {
        let made = |error: rcgen::Error| TlsError::NotMade {
            because: error.to_string(),
        };
        let issuer = issuer(hosts).map_err(made)?;
        let mut all = BTreeMap::new();
        for host in hosts {
            let (certificate, key) = leaf(host, &issuer).map_err(made)?;
            all.insert(host.clone(), inward(certificate, key)?);
        }
        Ok(Self {
            pem: issuer.pem(),
            hosts: all,
        })
    }

    /// What the box has to trust; it is public.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// How to speak for this host, if it is one of the named.
    pub(crate) fn speak_for(&self, host: &Host) -> Option<Arc<ServerConfig>> {
        match host {
            Host::Name(name) => self.hosts.get(name).cloned(),
            Host::Address(_) => None,
        }
    }
}

fn lasting(params: &mut CertificateParams) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = date_time_ymd(1970, 1, 1) + now.unwrap_or_default();
    params.not_before = now - BEFORE;
    params.not_after = now + AFTER;
}

pub(super) fn issuer(hosts: &[Name]) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    lasting(&mut params);
    params
        .distinguished_name
        .push(DnType::CommonName, "cowork-linux, for one session");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let named = hosts.iter().map(|host| host.to_string());
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: named.map(GeneralSubtree::DnsName).collect(),
        excluded_subtrees: Vec::new(),
    });
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

pub(super) fn leaf(
    host: &Name,
    issuer: &CertifiedIssuer<'static, KeyPair>,
) -> Result<(CertificateDer<'static>, KeyPair), rcgen::Error> {
    let mut params = CertificateParams::new([host.to_string()])?;
    lasting(&mut params);
    // The name is among the others; here it could be too long.
    params
        .distinguished_name
        .push(DnType::CommonName, "cowork-linux");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.into(), key))
}

pub(super) fn inward(
    certificate: CertificateDer<'static>,
    key: KeyPair,
) -> Result<Arc<ServerConfig>, TlsError> {
    let made = |error: rustls::Error| TlsError::NotMade {
        because: error.to_string(),
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(made)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(made)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
