use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Version};

use super::headers;

fn request(said: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri("/");
    for (name, value) in said {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn map(said: &[(&str, &str)]) -> HeaderMap {
    let made = said.iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        (name, HeaderValue::from_str(value).unwrap())
    });
    made.collect()
}

#[test]
fn what_is_between_the_program_and_the_proxy_stays_there() {
    let mut head = request(&[
        ("host", "EXAMPLE.com."),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("proxy-connection", "keep-alive"),
        ("connection", "keep-alive, X-Own , Host, content-length"),
        ("connection", "x-other"),
        ("keep-alive", "timeout=5"),
        ("te", "gzip"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQ"),
        ("x-own", "1"),
        ("x-other", "2"),
        ("x-kept", "3"),
        ("content-length", "5"),
    ]);
    assert_eq!(headers::outgoing(&mut head, "example.com"), Ok(false));
    let left = map(&[
        ("host", "example.com"),
        ("x-kept", "3"),
        ("content-length", "5"),
    ]);
    assert_eq!(head.headers, left);
}

#[test]
fn trailers_are_asked_for_where_the_program_did() {
    let mut head = request(&[("te", "Trailers"), ("connection", "TE")]);
    assert_eq!(headers::outgoing(&mut head, "a.test"), Ok(false));
    assert_eq!(head.headers["te"], "trailers");
    assert_eq!(head.headers["connection"], "TE");
}

#[test]
fn a_body_is_framed_in_one_way() {
    let mut head = request(&[("transfer-encoding", "Chunked"), ("content-length", "5")]);
    assert_eq!(headers::outgoing(&mut head, "a.test"), Ok(false));
    assert_eq!(head.headers["transfer-encoding"], "chunked");
    assert!(!head.headers.contains_key("content-length"));
    for odd in [
        "gzip, chunked",
        "chunked, chunked",
        "identity",
        "x",
        "chunked;q=1",
        "",
    ] {
        let mut head = request(&[("transfer-encoding", odd)]);
        let wrong = headers::outgoing(&mut head, "a.test").unwrap_err();
        assert_eq!(wrong.status, 501, "{odd}");
        assert!(headers::incoming(&mut map(&[("transfer-encoding", odd)])).is_err());
    }
    let mut twice = request(&[
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "chunked"),
    ]);
    assert!(headers::outgoing(&mut twice, "a.test").is_err());
}

#[test]
fn nw_59_only_websocket_is_switched_to() {
    let websocket = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
    ];
    let mut head = request(&websocket);
    assert_eq!(headers::outgoing(&mut head, "a.test"), Ok(true));
    assert_eq!(head.headers["connection"], "Upgrade");
    assert_eq!(head.headers["upgrade"], "websocket");
    let mut old = request(&websocket);
    old.version = Version::HTTP_10;
    let mut post = request(&websocket);
    post.method = Method::POST;
    for mut head in [
        old,
        post,
        request(&[("connection", "upgrade"), ("upgrade", "h2c")]),
        request(&[("connection", "upgrade"), ("upgrade", "websocket, h2c")]),
        request(&[
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("upgrade", "h2c"),
        ]),
        request(&[("connection", "upgrade"), ("upgrade", "TLS/1.0")]),
        request(&[("upgrade", "websocket")]),
    ] {
        assert_eq!(headers::outgoing(&mut head, "a.test"), Ok(false));
        assert!(!head.headers.contains_key("upgrade"), "{head:?}");
        assert!(!head.headers.contains_key("connection"), "{head:?}");
    }
}

#[test]
fn an_answer_loses_what_is_for_the_next_hop_only() {
    let mut back = map(&[
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("content-length", "7"),
        ("proxy-authenticate", "Basic"),
        ("trailer", "x-sum"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]);
    assert_eq!(headers::incoming(&mut back), Ok(()));
    let left = map(&[
        ("trailer", "x-sum"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]);
    assert_eq!(back, left);
}
