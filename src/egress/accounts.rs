//! Who is connected to whom, and what is said of it to the supervisor.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use super::audit::{Connection, Refused, Request};
use super::gate::{Ask, Way};
use super::pace::Pace;
use super::talk::{Hear, HostTotal, Totals};
use crate::policy::egress::{Host, Refusal};

/// Hosts that are counted one by one; the others together.
const MOST_HOSTS: usize = 512;
/// Words for the supervisor that it has not taken yet.
const MOST_WORDS: usize = 1024;
const OTHERS: &str = "(others)";

/// The books of a gateway.
#[derive(Debug)]
pub(super) struct Accounts {
    most: u32,
    pace: Option<Pace>,
    next: Cell<u64>,
    open: RefCell<HashMap<u64, Weak<Account>>>,
    totals: RefCell<Totals>,
    hosts: RefCell<BTreeMap<String, HostTotal>>,
    words: RefCell<std::collections::VecDeque<Hear>>,
    lost: Cell<u64>,
    pub(super) something_to_say: Notify,
}

/// The account of one connection.
#[derive(Debug)]
struct Account {
    id: u64,
    way: Way,
    host: Host,
    port: u16,
    began: Instant,
    clock: u64,
    sent: Cell<u64>,
    received: Cell<u64>,
    rule: RefCell<Option<String>>,
    address: Cell<Option<IpAddr>>,
    refused: RefCell<Option<Refused>>,
    is_revoked: Cell<bool>,
    revoked: Notify,
}

/// Written down when it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    account: Rc<Account>,
    books: Rc<Accounts>,
}

impl Accounts {
    pub(super) fn new(most: u32, pace: Option<Pace>) -> Rc<Self> {
        Rc::new(Self {
            most,
            pace,
            next: Cell::new(1),
            open: RefCell::default(),
            totals: RefCell::default(),
            hosts: RefCell::default(),
            words: RefCell::default(),
            lost: Cell::new(0),
            something_to_say: Notify::new(),
        })
    }

    pub(super) fn begin(self: &Rc<Self>, ask: &Ask) -> Entry {
        let id = self.next.replace(self.next.get() + 1);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let account = Rc::new(Account {
            id,
            way: ask.way,
            host: ask.host.clone(),
            port: ask.port,
            began: Instant::now(),
            clock: since_1970.map_or(0, |since| since.as_millis() as u64),
            sent: Cell::new(0),
            received: Cell::new(0),
            rule: RefCell::default(),
            address: Cell::new(None),
            refused: RefCell::default(),
            is_revoked: Cell::new(false),
            revoked: Notify::new(),
        });
        self.open.borrow_mut().insert(id, Rc::downgrade(&account));
        let inside = !matches!(ask.way, Way::Publish | Way::Dns);
        if inside {
            let port = ask.from.port();
            self.say(Hear::Opened { id, port });
        }
        Entry {
            account,
            books: Rc::clone(self),
        }
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Whether another connection may be made; the one that asks is counted already.
    pub(super) fn has_room(&self) -> bool {
        self.open.borrow().len() <= self.most as usize
    }

    /// Ends every connection that the given question is true of.
    pub(super) fn revoke(&self, ends: impl Fn(&Host, u16, Option<IpAddr>) -> bool) {
        let open: Vec<_> = self
            .open
            .borrow()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        for account in open {
            // What the user opened by other flags is not the rules' business.
            let is_ruled = !matches!(account.way, Way::HostPort | Way::Publish);
            if is_ruled && ends(&account.host, account.port, account.address.get()) {
                account.is_revoked.set(true);
                account.revoked.notify_waiters();
            }
        }
    }

    /// A word for the supervisor. One that does not listen is not waited for.
    pub(super) fn say(&self, word: Hear) {
        let mut words = self.words.borrow_mut();
        if words.len() < MOST_WORDS {
            words.push_back(word);
        } else {
            self.lost.set(self.lost.get() + 1);
        }
        self.something_to_say.notify_one();
    }

    pub(super) fn next_word(&self) -> Option<Hear> {
        let next = self.words.borrow_mut().pop_front();
        match (next, self.lost.get()) {
            (None, lost) if lost > 0 => {
                self.lost.set(0);
                Some(Hear::Lost { words: lost })
            }
            (next, _) => next,
        }
    }

    pub(super) fn questioned(&self) {
        self.totals.borrow_mut().questions += 1;
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.totals.borrow().clone();
        totals.open = self.open.borrow().len() as u32;
        let mut hosts: Vec<_> = self.hosts.borrow().values().cloned().collect();
        hosts.sort_by_key(|host| std::cmp::Reverse((host.sent + host.received, host.connections)));
        hosts.truncate(100);
        totals.hosts = hosts;
        totals
    }

    fn close(&self, account: &Account) {
        self.open.borrow_mut().remove(&account.id);
        let refused = account.refused.take();
        let (sent, received) = (account.sent.get(), account.received.get());
        let host = account.host.to_string();
        let is_refused = u64::from(refused.is_some());
        {
            let mut totals = self.totals.borrow_mut();
            totals.connections += 1 - is_refused;
            totals.refused += is_refused;
            totals.sent += sent;
            totals.received += received;
        }
        {
            let mut hosts = self.hosts.borrow_mut();
            let is_known = hosts.contains_key(&host) || hosts.len() < MOST_HOSTS;
            let key = if is_known { host.as_str() } else { OTHERS };
            let total = hosts.entry(key.to_owned()).or_insert_with(|| HostTotal {
                host: key.to_owned(),
                ..HostTotal::default()
            });
            total.connections += 1 - is_refused;
            total.refused += is_refused;
            total.sent += sent;
            total.received += received;
        }
        self.say(Hear::Over(Connection {
            id: account.id,
            began: account.clock,
            program: None,
            door: account.way.word().to_owned(),
            host,
            port: account.port,
            address: account.address.get(),
            sent,
            received,
            milliseconds: account.began.elapsed().as_millis() as u64,
            rule: account.rule.take(),
            refused,
        }));
    }
}

impl Entry {
    pub(super) fn sent(&self, bytes: u64) {
        self.account.sent.set(self.account.sent.get() + bytes);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.account
            .received
            .set(self.account.received.get() + bytes);
    }

    /// Waits for these bytes' turn, where there is a limit.
    pub(super) async fn pay(&self, bytes: usize) {
        if let Some(pace) = &self.books.pace {
            pace.pay(bytes).await;
        }
    }

    /// No more than this at a time, where there is a limit.
    pub(super) fn piece(&self) -> Option<usize> {
        self.books.pace.as_ref().map(Pace::piece)
    }

    pub(super) fn admitted(&self, rule: String) {
        self.account.rule.replace(Some(rule));
    }

    pub(super) fn reached(&self, address: IpAddr) {
        self.account.address.set(Some(address));
    }

    /// The address that was dialled; none where somebody else did.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.account.address.get()
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.account.is_revoked.get()
    }

    pub(super) fn refused(&self, refusal: &Refusal) {
        self.account.refused.replace(Some(Refused {
            word: refusal.word().to_owned(),
            because: refusal.sentence(),
            is_by_rule: refusal.reason.is_by_rule(),
            flag: refusal.flag(),
            rule: refusal.rule.clone(),
        }));
    }

    /// A request and its answer, where HTTP can be seen; each is a line of its own.
    pub(super) fn request(&self, request: Request) {
        self.books.say(Hear::Request {
            connection: self.account.id,
            host: self.account.host.to_string(),
            port: self.account.port,
            request,
        });
    }

    /// Resolves when a change of the rules wants this connection to end.
    pub(super) async fn revoked(&self) {
        while !self.account.is_revoked.get() {
            self.account.revoked.notified().await;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.books.close(&self.account);
    }
}
