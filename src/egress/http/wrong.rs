//! What the gateway answers itself: refusals, failures, requests that are none.

use hyper::header::{ACCEPT, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::json;

use super::body::Body;
use crate::policy::egress::{Reason, Refusal};

const X_PROXY_ERROR: HeaderName = HeaderName::from_static("x-proxy-error");
/// Sentences that quote what others wrote do not get longer than this.
const LONGEST: usize = 1024;

/// An answer that is no host's: a status, a word for programs, a sentence for people and models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) status: StatusCode,
    pub(super) word: &'static str,
    pub(super) sentence: String,
    /// The flag that would allow it.
    pub(super) flag: Option<String>,
    /// Whether what follows on the connection can still be understood.
    pub(super) is_last: bool,
}

impl Wrong {
    pub(super) fn new(status: StatusCode, word: &'static str, sentence: &str) -> Self {
        Self {
            status,
            word,
            sentence: fit(sentence),
            flag: None,
            is_last: false,
        }
    }

    /// A request that is none, or not one for here.
    pub(super) fn request(sentence: &str) -> Self {
        Self {
            is_last: true,
            ..Self::new(StatusCode::BAD_REQUEST, "malformed-request", sentence)
        }
    }

    pub(super) fn unreachable(sentence: &str) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "unreachable", sentence)
    }

    /// What the body is, and its text.
    fn text(&self, is_json: bool) -> (&'static str, String) {
        match is_json {
            true => {
                let error = json!({
                    "type": self.word,
                    "message": self.sentence,
                    "allow": self.flag,
                });
                let whole = json!({"type": "error", "error": error});
                ("application/json", whole.to_string())
            }
            false => ("text/plain; charset=utf-8", self.sentence.clone()),
        }
    }

    pub(super) fn answer(&self, is_json: bool) -> Response<Body> {
        let (kind, text) = self.text(is_json);
        let mut response = Response::new(Body::from(format!("{text}\n")));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(X_PROXY_ERROR, HeaderValue::from_static(self.word));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if self.is_last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The same as bytes, for those who do not speak HTTP/1 to begin with.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (kind, text) = self.text(false);
        let reason = self.status.canonical_reason().unwrap_or("Error");
        format!(
            "HTTP/1.1 {} {reason}\r\n{X_PROXY_ERROR}: {}\r\ncontent-type: {kind}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{text}\n",
            self.status.as_u16(),
            self.word,
            text.len() + 1,
        )
        .into_bytes()
    }
}

impl From<&Refusal> for Wrong {
    fn from(refusal: &Refusal) -> Self {
        let (status, word) = match &refusal.reason {
            Reason::NotListed
            | Reason::Port
            | Reason::Denied
            | Reason::Address { .. }
            | Reason::OtherName(_) => (StatusCode::FORBIDDEN, "blocked-by-allowlist"),
            Reason::Unresolved(_) => (StatusCode::BAD_GATEWAY, "unresolved"),
            Reason::Unreachable(_) => (StatusCode::BAD_GATEWAY, "unreachable"),
            Reason::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed-request"),
            Reason::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "too-many-connections"),
        };
        Self {
            flag: refusal.flag(),
            ..Self::new(status, word, &refusal.sentence())
        }
    }
}

/// Whether whoever asks wants to be answered in JSON.
pub(super) fn wants_json(asked: &HeaderMap) -> bool {
    let mut all = asked.get_all(ACCEPT).iter();
    all.any(|value| {
        let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
        text.split([',', ';'])
            .any(|part| part.trim() == "application/json")
    })
}

/// Without control characters, on one line, and bounded.
fn fit(sentence: &str) -> String {
    let plain = sentence.chars().filter(|letter| !letter.is_control());
    let mut made = String::new();
    for letter in plain {
        if made.len() + letter.len_utf8() > LONGEST {
            made.push('…');
            break;
        }
        made.push(letter);
    }
    made
}
