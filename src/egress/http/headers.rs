//! Headers that are for the next hop only, and what of them is passed on all the same.

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request;
use hyper::{HeaderMap, Method, StatusCode, Version};

use super::wrong::Wrong;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const HOPS: [HeaderName; 9] = [
    CONNECTION,
    PROXY_CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
];

/// Takes off what is between the program and this proxy, and puts on what is between it and the
/// host. Says whether the request asks for a WebSocket.
pub(super) fn outgoing(head: &mut request::Parts, host: &str) -> Result<bool, Wrong> {
    let is_chunked = chunked(&head.headers).map_err(|()| Wrong {
        status: StatusCode::NOT_IMPLEMENTED,
        ..Wrong::request("a request's Transfer-Encoding can only be chunked")
    })?;
    let wants_trailers = has_token(&head.headers, &TE, "trailers");
    let is_websocket = wants_websocket(head);
    strip(&mut head.headers);
    let headers = &mut head.headers;
    if is_chunked {
        headers.remove(CONTENT_LENGTH);
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.append(CONNECTION, HeaderValue::from_static("TE"));
    }
    if is_websocket {
        switching(headers);
    }
    let host = HeaderValue::from_str(host);
    headers.insert(HOST, host.map_err(|_| Wrong::request("this is no host"))?);
    head.version = Version::HTTP_11;
    Ok(is_websocket)
}

/// The same for an answer. Those that cannot be passed on as they are are none.
pub(super) fn incoming(headers: &mut HeaderMap) -> Result<(), Wrong> {
    let is_chunked = chunked(headers).map_err(|()| {
        Wrong::unreachable("the host answered with a Transfer-Encoding that is not chunked")
    })?;
    strip(headers);
    if is_chunked {
        headers.remove(CONTENT_LENGTH);
    }
    Ok(())
}

/// Says that from here on both sides speak WebSocket.
pub(super) fn switching(headers: &mut HeaderMap) {
    headers.append(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(UPGRADE).iter();
    matches!((all.next(), all.next()), (Some(one), None)
        if one.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Any other protocol is not passed on, and servers go on in HTTP/1.1 then.
fn wants_websocket(head: &request::Parts) -> bool {
    head.method == Method::GET
        && head.version == Version::HTTP_11
        && has_token(&head.headers, &CONNECTION, "upgrade")
        && is_websocket(&head.headers)
}

fn chunked(headers: &HeaderMap) -> Result<bool, ()> {
    let mut all = headers.get_all(TRANSFER_ENCODING).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(false),
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(()),
    }
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|one| one.eq_ignore_ascii_case(token))
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(str::trim)
}

fn strip(headers: &mut HeaderMap) {
    // What frames the message is not up to whoever writes Connection headers.
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
        .collect();
    for name in named.iter().chain(&HOPS) {
        headers.remove(name);
    }
}
