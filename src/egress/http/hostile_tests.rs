//! Bytes that nobody would send who means well.

use proptest::prelude::*;

use crate::egress::fuzzing::requests;

/// Pieces of requests, whole and broken.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "GET ",
        "CONNECT ",
        "PRI ",
        "http://evil.test/ ",
        "http://user@127.0.0.1:80/ ",
        "evil.test:443 ",
        "* ",
        "/ ",
        "HTTP/1.1\r\n",
        "HTTP/1.0\r\n",
        "HTTP/2.0\r\n",
        "\r\n",
        "\n",
        "\r",
        "\r\n\r\n",
        "Host: evil.test\r\n",
        "Host: 127.0.0.1:80\r\n",
        "Content-Length: 5\r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: x, chunked\r\n",
        "Expect: 100-continue\r\n",
        "Connection: upgrade, host\r\n",
        "Upgrade: websocket\r\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "ffffffffffffffff\r\n",
        ": ",
        " ",
        "\0",
    ];
    prop_oneof![
        9 => prop::sample::select(words.map(|word| word.as_bytes().to_vec()).to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #[test]
    fn no_bytes_get_anybody_anywhere(
        pieces in prop::collection::vec(piece(), 0..20),
    ) {
        requests(&pieces.concat());
        let whole = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n";
        let statuses = requests(&[&whole[..], &pieces.concat()].concat());
        prop_assert_eq!(statuses[0], 403);
    }
}

#[test]
fn several_requests_have_several_answers() {
    let one = "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    assert_eq!(requests(one.repeat(3).as_bytes()), [403; 3]);
    assert_eq!(requests(b""), [0; 0]);
}
