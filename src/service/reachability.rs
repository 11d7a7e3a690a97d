//! Whether the API answers: one question of HTTP, the way this computer's programs would ask it.

use std::ffi::OsString;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::egress::{Proxy, Roots, base64};
use crate::policy::Environment;
use crate::policy::egress::{Host, Upstream};

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether anything that speaks HTTP answers at this address within ten seconds.
pub(super) async fn probe(url: &str) -> bool {
    ask(url).await.is_ok()
}

/// The status of the answer, whatever it is; or why there is none.
pub(super) async fn ask(url: &str) -> Result<u16, String> {
    let env = |name: &str| std::env::var_os(name);
    let errand = Errand::read(url, &env)?;
    let tls = match errand.is_tls {
        true => Some(trusting_the_system().await?),
        false => None,
    };
    within(errand, tls).await
}

pub(super) async fn within(errand: Errand, tls: Option<Arc<ClientConfig>>) -> Result<u16, String> {
    match timeout(PATIENCE, errand.run(tls)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!(
            "nothing came within {} seconds",
            PATIENCE.as_secs()
        )),
    }
}

/// Read from the disk once, and not by the thread that serves everybody.
async fn trusting_the_system() -> Result<Arc<ClientConfig>, String> {
    static KNOWN: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(Arc::clone(known));
    }
    let read = || Roots::of_the_system().and_then(|roots| roots.outward());
    let read = tokio::task::spawn_blocking(read).await;
    let config = read
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    Ok(Arc::clone(KNOWN.get_or_init(|| config)))
}

/// Whom to ask, and through whom.
#[derive(Debug)]
pub(super) struct Errand {
    uri: Uri,
    host: Host,
    port: u16,
    is_tls: bool,
    proxy: Option<Proxy>,
}

impl Errand {
    pub(super) fn read(url: &str, env: Environment<'_>) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "that is no address of the web")?;
        let (is_tls, usual) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err("it starts with neither https:// nor http://".to_owned()),
        };
        let host = Host::parse(uri.host().unwrap_or_default()).map_err(|bad| bad.to_string())?;
        let port = uri.port_u16().unwrap_or(usual);
        let proxy = match is_exempt(&host, env) {
            true => None,
            false => proxy_for(is_tls, env)?,
        };
        Ok(Self {
            uri,
            host,
            port,
            is_tls,
            proxy,
        })
    }

    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.proxy.is_none()
    }

    async fn run(self, tls: Option<Arc<ClientConfig>>) -> Result<u16, String> {
        let failed = |error: std::io::Error| error.to_string();
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        match (&self.proxy, tls) {
            (_, Some(tls)) => {
                let stream = self.connect().await.map_err(failed)?;
                let name = match &self.host {
                    Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
                    Host::Address(address) => Ok(ServerName::from(*address)),
                };
                let name = name.map_err(|error| error.to_string())?;
                let stream = TlsConnector::from(tls).connect(name, stream).await;
                self.head(stream.map_err(failed)?, path, None).await
            }
            // A proxy asks for us; few let a tunnel lead to a port without TLS.
            (Some(proxy), None) if matches!(proxy.what, Upstream::Http { .. }) => {
                let stream = dial(proxy.what.host(), proxy.what.port())
                    .await
                    .map_err(failed)?;
                let whole = format!("http://{}:{}{path}", self.host, self.port);
                self.head(stream, &whole, proxy.credentials.as_ref()).await
            }
            (_, None) => {
                let stream = self.connect().await.map_err(failed)?;
                self.head(stream, path, None).await
            }
        }
    }

    async fn connect(&self) -> std::io::Result<TcpStream> {
        match &self.proxy {
            Some(proxy) => proxy.reach(&self.host, self.port).await,
            None => dial(&self.host, self.port).await,
        }
    }

    async fn head(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        target: &str,
        credentials: Option<&(String, String)>,
    ) -> Result<u16, String> {
        let failed = |error: hyper::Error| error.to_string();
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(failed)?;
        let mut request = Request::builder()
            .method(Method::HEAD)
            .uri(target)
            .header(HOST, format!("{}:{}", self.host, self.port))
            .header(USER_AGENT, "cowork-linux");
        if let Some((user, password)) = credentials {
            let both = base64(format!("{user}:{password}").as_bytes());
            request = request.header(PROXY_AUTHORIZATION, format!("Basic {both}"));
        }
        let request = request.body(Empty::<Bytes>::new());
        let answer = sender.send_request(request.map_err(|error| error.to_string())?);
        tokio::pin!(answer);
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            // It is gone by the time the answer is looked for, which would else be waited for.
            ended = connection => match ended {
                Ok(()) => answer.await,
                Err(error) => Err(error),
            },
        };
        answer
            .map(|answer| answer.status().as_u16())
            .map_err(failed)
    }
}

async fn dial(host: &Host, port: u16) -> std::io::Result<TcpStream> {
    match host {
        Host::Name(name) => TcpStream::connect((name.as_str(), port)).await,
        Host::Address(address) => TcpStream::connect((*address, port)).await,
    }
}

/// The proxy that this computer's programs are told to use.
fn proxy_for(is_tls: bool, env: Environment<'_>) -> Result<Option<Proxy>, String> {
    let plain = |name: &str| match name {
        // In upper case a web server's visitors could set it.
        "HTTPS_PROXY" | "https_proxy" => env("http_proxy"),
        other => env(other),
    };
    let env: Environment<'_> = match is_tls {
        true => env,
        false => &plain,
    };
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    if !names
        .iter()
        .any(|name| env(name).is_some_and(|value| !value.is_empty()))
    {
        return Ok(None);
    }
    let (what, credentials) = Upstream::from_environment(env)?;
    Ok(Some(Proxy {
        what,
        credentials: credentials.map(|both| (both.user, both.password)),
    }))
}

/// Whether the host is one of those that are reached without the proxy.
fn is_exempt(host: &Host, env: Environment<'_>) -> bool {
    let said: Option<OsString> = env("no_proxy").or_else(|| env("NO_PROXY"));
    let said = said
        .and_then(|list| list.into_string().ok())
        .unwrap_or_default();
    let host = host.to_string().to_ascii_lowercase();
    said.split(',')
        .map(|entry| entry.trim().to_ascii_lowercase())
        .any(
            |entry| match entry.trim_start_matches("*.").trim_start_matches('.') {
                "" => false,
                "*" => true,
                name => host == name || host.strip_suffix(name).is_some_and(|it| it.ends_with('.')),
            },
        )
}
