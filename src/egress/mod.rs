//! The gateway: a process beside the supervisor that holds the box's doors to the network and
//! decides, dials and passes on. It never touches the box, reads no file once it is locked, and
//! its end is the end of the box's network, of nothing else.

mod accounts;
mod audit;
mod dial;
mod dns;
mod doors;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod http;
mod inward;
mod line;
mod lock;
mod names;
mod pace;
mod publish;
mod relay;
mod resolve;
mod secrets;
mod serve;
mod sniff;
mod socks;
mod start;
mod talk;
#[cfg(test)]
mod testing;
mod tls;
mod upstream;

pub use audit::{Connection, Refused, Request};
pub use http::{ClaudeTarget, Means};
pub use secrets::{STAND_IN, SecretError, Secrets, StandIns};
pub use start::{Config, Gateway, start};
pub use talk::{Hear, HostTotal, LONGEST, LONGEST_TELL, Tell, Totals, Unsaid};
pub use tls::{Authority, Roots, TlsError};
pub use upstream::Proxy;
pub(crate) use upstream::base64;
