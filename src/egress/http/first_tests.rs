use super::first;

#[test]
fn requests_of_http_1_are_let_by() {
    for line in [
        "GET http://a.test/ HTTP/1.1\r\n",
        "\r\nGET http://a.test/ HTTP/1.0\n",
        "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n\u{16}\u{3}\u{1}",
        "OPTIONS * HTTP/1.1\r\n",
        "GET",
        "GET http://a.test/",
    ] {
        assert_eq!(first::check(line.as_bytes()), Ok(()), "{line:?}");
    }
}

#[test]
fn nw_59_whoever_speaks_something_else_is_told_so() {
    for (line, word) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], "HTTP/1.1"),
        (b"GET /\r\n", "first line"),
        (b"GET\r\n", "first line"),
        (b"GET http://a.test/ HTTP/1.1 x\r\n", "first line"),
        (b"GET  http://a.test/ HTTP/1.1\r\n", "first line"),
        (b"GET http://a.test/ HTTP/3\r\n", "HTTP/1.1"),
        (b"GET http://a.test/ http/1.1\r\n", "first line"),
        (b"CONNECT a.test:443/path HTTP/1.1\r\n", "no address"),
        (b"GET ht!tp://a.test/ HTTP/1.1\r\n", "no address"),
        (b"GET http://\xff/ HTTP/1.1\r\n", "plain text"),
        (b"\x16\x03\x01\x02\x00", "http://"),
        (b"\x05\x01\x00", "1080"),
        (b"\x04\x01", "1080"),
        (b"\x00", "HTTP/1"),
        (b"\xff\xf4", "HTTP/1"),
    ] {
        let wrong = first::check(line).unwrap_err();
        assert!(
            wrong.sentence.contains(word),
            "{line:?}: {}",
            wrong.sentence
        );
        assert!(wrong.status.is_client_error());
        let bytes = String::from_utf8(wrong.bytes()).unwrap();
        assert!(bytes.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{bytes}");
        assert!(bytes.ends_with(&format!("\r\n\r\n{}\n", wrong.sentence)));
    }
}
