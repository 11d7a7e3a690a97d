//! Which hosts a box may reach, as rules and as one decision. Pure: nothing is looked up here.

mod addresses;
mod bundles;
mod host;
#[cfg(test)]
mod laws;
mod parts;
mod pattern;
mod proxy;
mod refusal;
mod rules;
mod secret;

pub use addresses::{Class, classify};
pub use bundles::{BUNDLES, Bundle, BundleName};
pub use host::{BadHost, Host, Name};
pub use parts::{CLAUDE_PORT, DNS_PORT, HTTP_PORT, HostPort, Publish, Rate, SOCKS_PORT};
pub use pattern::{HostPattern, Ports, Target};
pub use proxy::{Credentials, Upstream, UpstreamChoice};
pub use refusal::{Reason, Refusal};
pub use rules::{Rule, Rules};
pub use secret::{SecretSource, SecretSpec};
