//! Names outside: asked for once, by whoever asks first, and remembered for a little while.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, Semaphore};

use crate::policy::egress::Name;

/// How long an answer counts; the C library does not say how long it was meant to.
const FRESH: Duration = Duration::from_secs(30);
const FRESH_FAILURE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_REMEMBERED: usize = 1024;
const MOST_ADDRESSES: usize = 32;
/// The C library waits in a thread of its own for each.
pub(super) const AT_ONCE: usize = 8;

#[derive(Debug)]
pub(super) struct Resolver {
    known: RefCell<HashMap<Name, Rc<Answer>>>,
    turns: Semaphore,
}

#[derive(Debug)]
struct Answer {
    asked: Instant,
    found: OnceCell<Result<Vec<IpAddr>, String>>,
}

impl Answer {
    fn is_fresh(&self) -> bool {
        let limit = match self.found.get() {
            Some(Err(_)) => FRESH_FAILURE,
            _ => FRESH,
        };
        self.asked.elapsed() < limit
    }
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self {
            known: RefCell::default(),
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// The addresses of a name that the rules know, or why there are none.
    pub(super) async fn resolve(&self, name: &Name) -> Result<Vec<IpAddr>, String> {
        let answer = self.answer(name);
        let found = answer.found.get_or_init(|| self.ask(name)).await;
        found.clone()
    }

    /// Answers as if somebody outside had been asked already.
    #[cfg(test)]
    pub(super) fn remember(&self, name: &Name, found: &[IpAddr]) {
        let answer = Answer {
            asked: Instant::now(),
            found: OnceCell::new_with(Some(Ok(found.to_vec()))),
        };
        self.known
            .borrow_mut()
            .insert(name.clone(), Rc::new(answer));
    }

    fn answer(&self, name: &Name) -> Rc<Answer> {
        let mut known = self.known.borrow_mut();
        if let Some(answer) = known.get(name).filter(|answer| answer.is_fresh()) {
            return Rc::clone(answer);
        }
        if known.len() >= MOST_REMEMBERED {
            known.retain(|_, answer| answer.is_fresh());
        }
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        let answer = Rc::new(Answer {
            asked: Instant::now(),
            found: OnceCell::new(),
        });
        known.insert(name.clone(), Rc::clone(&answer));
        answer
    }

    async fn ask(&self, name: &Name) -> Result<Vec<IpAddr>, String> {
        let asked = async {
            let _turn = self
                .turns
                .acquire()
                .await
                .map_err(|error| error.to_string())?;
            // The dot at the end keeps the host's search domains out of it.
            let whole = format!("{name}.");
            let found = tokio::net::lookup_host((whole.as_str(), 0)).await;
            found.map_err(|error| cause(&error)).map(|found| {
                let mut addresses = Vec::new();
                for address in found.map(|address| address.ip()) {
                    if !addresses.contains(&address) && addresses.len() < MOST_ADDRESSES {
                        addresses.push(address);
                    }
                }
                addresses
            })
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(found)) if found.is_empty() => Err("it has no address".to_owned()),
            Ok(found) => found,
            Err(_) => Err("nobody answered in time".to_owned()),
        }
    }
}

/// What the C library said, without our own frame around it.
fn cause(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("failed to lookup address information: ") {
        Some(rest) => rest.to_owned(),
        None => text,
    }
}
