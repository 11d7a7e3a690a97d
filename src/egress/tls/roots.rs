//! The system's roots: whom to believe outside.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

use super::{Authority, TlsError};
use crate::egress::upstream::base64;

/// Letters in a line of a certificate's text.
const LINE: usize = 64;

/// Read once, before the gateway locks itself in. `SSL_CERT_FILE` and `SSL_CERT_DIR` win.
pub struct Roots(Vec<CertificateDer<'static>>);

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Roots({})", self.0.len())
    }
}

impl Roots {
    pub fn of_the_system() -> Result<Self, TlsError> {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let because = match found.errors.first() {
                Some(error) => error.to_string(),
                None => "this system has none to check them by".to_owned(),
            };
            return Err(TlsError::NoRoots { because });
        }
        Ok(Self(found.certs))
    }

    /// How the gateway calls others: no host without a certificate that these roots vouch for,
    /// and only the HTTP that it speaks.
    pub(crate) fn outward(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let mut store = RootCertStore::empty();
        // A root that cannot be read is no root, as everywhere else.
        let (usable, _) = store.add_parsable_certificates(self.0.iter().cloned());
        if usable == 0 {
            let because = "none of the system's can be read".to_owned();
            return Err(TlsError::NoRoots { because });
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::NoRoots {
                because: error.to_string(),
            })?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The text of a file for the box: all of these, and the session's own.
    pub fn bundle(&self, authority: &Authority) -> String {
        let mut text = String::new();
        for certificate in &self.0 {
            text.push_str("-----BEGIN CERTIFICATE-----\n");
            let coded = base64(certificate);
            let mut rest = coded.as_str();
            while !rest.is_empty() {
                let (line, others) = rest.split_at(rest.len().min(LINE));
                text.push_str(line);
                text.push('\n');
                rest = others;
            }
            text.push_str("-----END CERTIFICATE-----\n");
        }
        text.push_str(authority.certificate_pem());
        text
    }

    #[cfg(test)]
    pub(crate) fn only(certificate: CertificateDer<'static>) -> Self {
        Self(vec![certificate])
    }
}
