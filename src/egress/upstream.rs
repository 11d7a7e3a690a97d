//! A proxy between us and the internet: it is told where to, and from then on it is the line.

use std::fmt;
use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::policy::egress::{Host, Upstream};

/// The proxy's whole answer, with all its headers.
const LONGEST_ANSWER: usize = 8 << 10;

#[derive(Clone)]
pub struct Proxy {
    pub what: Upstream,
    /// User and password.
    pub credentials: Option<(String, String)>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = self.credentials.as_ref().map(|_| "***");
        f.debug_struct("Proxy")
            .field("what", &self.what)
            .field("credentials", &credentials)
            .finish()
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::other(format!("the proxy outside {what}"))
}

impl Proxy {
    /// A connection to a host, made by the proxy.
    pub(crate) async fn reach(&self, host: &Host, port: u16) -> io::Result<TcpStream> {
        match &self.what {
            Upstream::Http { host: at, port: on } => {
                let mut stream = connect(at, *on).await?;
                self.ask_http(&mut stream, host, port).await?;
                Ok(stream)
            }
            Upstream::Socks5 { host: at, port: on } => {
                let mut stream = connect(at, *on).await?;
                self.ask_socks(&mut stream, host, port).await?;
                Ok(stream)
            }
        }
    }

    async fn ask_http(&self, stream: &mut TcpStream, host: &Host, port: u16) -> io::Result<()> {
        let mut words = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some((user, password)) = &self.credentials {
            let both = base64(format!("{user}:{password}").as_bytes());
            words.push_str(&format!("Proxy-Authorization: Basic {both}\r\n"));
        }
        words.push_str("\r\n");
        stream.write_all(words.as_bytes()).await?;
        // One by one: what comes after the empty line belongs to the far host.
        let mut answer = Vec::with_capacity(256);
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() == LONGEST_ANSWER {
                return Err(odd("answers without end"));
            }
            match stream.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => return Err(odd("hung up")),
            }
        }
        let line = answer
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let status = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        match (line.starts_with(b"HTTP/1."), status) {
            (true, [b'2', _, _]) => Ok(()),
            (true, b"407") => Err(odd("wants a user and a password, or others than these")),
            (true, [a, b, c]) if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
                let status = String::from_utf8_lossy(status);
                Err(odd(&format!("refused with status {status}")))
            }
            _ => Err(odd("does not speak HTTP")),
        }
    }

    async fn ask_socks(&self, stream: &mut TcpStream, host: &Host, port: u16) -> io::Result<()> {
        let method = if self.credentials.is_some() { 2 } else { 0 };
        stream.write_all(&[5, 1, method]).await?;
        let mut chosen = [0; 2];
        stream.read_exact(&mut chosen).await?;
        if chosen != [5, method] {
            return Err(odd("does not take this way of logging in"));
        }
        if let Some((user, password)) = &self.credentials {
            let mut words = vec![1];
            for part in [user, password] {
                let length = u8::try_from(part.len())
                    .map_err(|_| odd("cannot be told so long a password"))?;
                words.push(length);
                words.extend(part.as_bytes());
            }
            stream.write_all(&words).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return Err(odd("refused user and password"));
            }
        }
        let mut words = vec![5, 1, 0];
        match host {
            Host::Name(name) => {
                words.push(3);
                words.push(name.as_str().len() as u8);
                words.extend(name.as_str().as_bytes());
            }
            Host::Address(std::net::IpAddr::V4(address)) => {
                words.push(1);
                words.extend(address.octets());
            }
            Host::Address(std::net::IpAddr::V6(address)) => {
                words.push(4);
                words.extend(address.octets());
            }
        }
        words.extend(port.to_be_bytes());
        stream.write_all(&words).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        if answer[0] != 5 || answer[1] != 0 {
            return Err(odd(&format!("refused with code {}", answer[1])));
        }
        let rest = match answer[3] {
            1 => 4,
            4 => 16,
            3 => usize::from(stream.read_u8().await?),
            _ => return Err(odd("does not speak SOCKS")),
        };
        let mut bound = vec![0; rest + 2];
        stream.read_exact(&mut bound).await?;
        Ok(())
    }
}

async fn connect(host: &Host, port: u16) -> io::Result<TcpStream> {
    let stream = match host {
        Host::Address(address) => TcpStream::connect((*address, port)).await?,
        Host::Name(name) => TcpStream::connect((name.as_str(), port)).await?,
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// RFC 4648, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| u32::from(three.get(at).copied().unwrap_or(0)));
        let bits = a << 16 | b << 8 | c;
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= three.len() {
                letter as char
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_pads() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("user:pass", "dXNlcjpwYXNz"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
