//! What the doors for HTTP have besides the gate: keys, certificates, and links to spare.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rustls::ClientConfig;

use super::claude::ClaudeTarget;
use super::link::Link;
use crate::egress::gate::Ask;
use crate::egress::secrets::Secrets;
use crate::egress::tls::{Authority, Roots, TlsError};

/// Claude asks often and several things at once; each new connection would cost it a handshake.
const MOST_SPARE: usize = 8;

/// Made by the supervisor before the gateway is started, because it reads files.
#[derive(Default)]
pub struct Means {
    pub(in crate::egress) secrets: Rc<Secrets>,
    /// How hosts are called that speak TLS.
    pub(in crate::egress) outward: Option<Arc<ClientConfig>>,
    /// Who speaks for the hosts whose TLS ends here.
    pub(in crate::egress) authority: Option<Rc<Authority>>,
    pub(in crate::egress) claude: Option<ClaudeTarget>,
    spare: RefCell<Vec<Link>>,
}

/// For another gateway: links are not shared, the rest is.
impl Clone for Means {
    fn clone(&self) -> Self {
        Self {
            secrets: Rc::clone(&self.secrets),
            outward: self.outward.clone(),
            authority: self.authority.clone(),
            claude: self.claude.clone(),
            spare: RefCell::default(),
        }
    }
}

impl fmt::Debug for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Means")
            .field("secrets", &self.secrets)
            .field("authority", &self.authority)
            .field("claude", &self.claude)
            .finish_non_exhaustive()
    }
}

impl Means {
    /// `roots` are needed where the gateway itself speaks TLS: for Claude, and for an audit.
    pub fn new(
        secrets: Secrets,
        claude: Option<ClaudeTarget>,
        authority: Option<Authority>,
        roots: Option<&Roots>,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            secrets: Rc::new(secrets),
            outward: roots.map(Roots::outward).transpose()?,
            authority: authority.map(Rc::new),
            claude,
            spare: RefCell::default(),
        })
    }

    /// The values of all secrets.
    pub fn values(&self) -> impl Iterator<Item = Vec<u8>> {
        self.secrets.values()
    }

    /// Another value for a secret, from the next request on.
    pub fn renew(&self, name: &str, value: &str) -> Result<(), String> {
        self.secrets.renew(name, value)
    }

    /// A link to this host that nobody uses at the moment: the one used last, because it is the
    /// one most likely to be there still.
    pub(super) fn spare_link(&self, ask: &Ask) -> Option<Link> {
        let mut spare = self.spare.borrow_mut();
        spare.retain(|link| !link.is_over());
        let free = |link: &Link| link.is_free() && link.is_to(ask);
        let at = spare.iter().rposition(free)?;
        Some(spare.remove(at))
    }

    /// Keeps a link for others. It may still be busy; it is not given out before it is free.
    pub(super) fn spare(&self, link: Link) {
        let mut spare = self.spare.borrow_mut();
        spare.retain(|link| !link.is_over());
        if spare.len() >= MOST_SPARE {
            spare.remove(0);
        }
        spare.push(link);
    }
}
