//! What is written down of one request.

use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hyper::{Method, StatusCode, Uri};

use crate::egress::Request;
use crate::egress::accounts::Entry;

/// Addresses are kept to this length. Their queries are, too: that is where data leaves.
const LONGEST_URL: usize = 2048;
const LONGEST_METHOD: usize = 32;

/// Written down when it is dropped, however the request ended.
#[derive(Debug)]
pub(super) struct Record {
    entry: Rc<Entry>,
    began: Instant,
    request: Request,
    is_complete: bool,
    is_void: bool,
}

impl Record {
    /// `authority` is host and port without a user; secrets' values are in headers only.
    pub(super) fn new(
        entry: &Rc<Entry>,
        method: &Method,
        scheme: &str,
        authority: &str,
        path: &Uri,
    ) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let path = path.path_and_query().map_or("/", |path| path.as_str());
        Self {
            entry: Rc::clone(entry),
            began: Instant::now(),
            request: Request {
                began: since_1970.map_or(0, |since| since.as_millis() as u64),
                milliseconds: 0,
                method: cut(method.as_str(), LONGEST_METHOD),
                url: cut(&format!("{scheme}://{authority}{path}"), LONGEST_URL),
                status: None,
                size: None,
                error: None,
            },
            is_complete: false,
            is_void: false,
        }
    }

    pub(super) fn answered(&mut self, status: StatusCode) {
        self.request.status = Some(status.as_u16());
        self.request.size = Some(0);
    }

    pub(super) fn passed(&mut self, bytes: usize) {
        let size = self.request.size.get_or_insert(0);
        *size += bytes as u64;
    }

    /// A remark that does not change how the request ended.
    pub(super) fn note(&mut self, text: &str) {
        self.request.error.get_or_insert_with(|| text.to_owned());
    }

    pub(super) fn failed(&mut self, why: &str) {
        self.note(why);
        self.is_complete = true;
    }

    /// For a request that is tried once more: it was none.
    pub(super) fn forget(mut self) {
        self.is_void = true;
    }

    pub(super) fn complete(&mut self) {
        self.is_complete = true;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.is_void {
            return;
        }
        if !self.is_complete {
            self.note("the program broke off");
        }
        self.request.milliseconds = self.began.elapsed().as_millis() as u64;
        self.entry.request(self.request.clone());
    }
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().find(|(at, _)| *at >= longest) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
