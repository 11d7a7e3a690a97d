//! TLS that ends at the gateway, for hosts the user named, and TLS that begins there.
//!
//! Outside every certificate is checked against the system's roots. Inside, a session has an
//! authority of its own, made at its start and gone with it: its key is only ever in memory, and
//! what it signs is good for the named hosts and for nothing else. Programs that know a host's
//! certificate by heart, and Java's, which keep roots in a format of their own, will not accept it.

mod authority;
mod roots;
#[cfg(test)]
mod tests;

pub use authority::Authority;
pub use roots::Roots;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot check certificates of hosts outside, because {because}")]
    NoRoots { because: String },
    #[error("cannot make certificates for --tls-audit, because {because}")]
    NotMade { because: String },
}

impl TlsError {
    pub fn help(&self) -> Option<String> {
        match self {
            Self::NoRoots { .. } => Some(
                "install the system's certificates (ca-certificates), or set SSL_CERT_FILE".into(),
            ),
            Self::NotMade { .. } => None,
        }
    }
}
