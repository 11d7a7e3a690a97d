//! sandbox-runtime's rules for the network: a sandbox has none of its own, and its proxies outside
//! are reached through a socket that bwrap brings in. The server is on the host's loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::runtime::Runtime;

/// Serves the files of a folder, and remembers what it was asked for.
struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn of(folder: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // `localhost` may mean this one to whoever asks; not every host has it.
        let second = TcpListener::bind(("::1", port));
        let asked = Arc::new(Mutex::new(Vec::new()));
        for listener in std::iter::once(listener).chain(second) {
            let (folder, asked) = (folder.clone(), asked.clone());
            std::thread::spawn(move || {
                for connection in listener.incoming().flatten() {
                    // One that hangs up early is its own loss.
                    let _ = serve(connection, &folder, &asked);
                }
            });
        }
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    mut connection: TcpStream,
    folder: &Path,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    // A client that tries two addresses at once drops one of them without a word.
    let Some(first) = lines.next().transpose()? else {
        return Ok(());
    };
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = first.split(['?', ' ']).nth(1).unwrap_or_default();
    asked.lock().unwrap().push(path.to_owned());
    let (status, content) = match std::fs::read(folder.join(path.trim_start_matches('/'))) {
        Ok(content) => ("200 OK", content),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let length = content.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    connection.write_all(head.as_bytes())?;
    connection.write_all(&content)
}

/// Asks as a program does that honours the proxy of its environment. Loopback is no exception to
/// it here, or every program would look for the server in the sandbox.
fn ask(url: &str) -> String {
    format!(
        "env -u NO_PROXY -u no_proxy python3 -c '
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    sys.exit(error.code - 400 if error.read() else 99)' {url}"
    )
}

/// The server, a world whose `outside/page` it serves, and settings to add to.
fn prepared() -> Option<(Runtime, Server, Value)> {
    let runtime = Runtime::new()?;
    let world = &runtime.caller.world;
    world.write("outside/page", "what the server has");
    let server = Server::of(runtime.caller.outside());
    let settings = runtime.settings();
    Some((runtime, server, settings))
}

#[test]
fn an_allowed_name_is_reached_and_no_other() {
    let Some((runtime, server, mut settings)) = prepared() else {
        return;
    };
    let page = ask(&format!("http://localhost:{}/page", server.port));
    // Not allowed: the proxy answers "forbidden", and the server never hears of it.
    runtime.run(&settings, &page).failed_with(3);
    settings["network"]["allowedDomains"] = json!(["other.example"]);
    runtime.run(&settings, &page).failed_with(3);
    assert_eq!(server.asked(), [""; 0]);
    settings["network"]["allowedDomains"] = json!(["localhost"]);
    runtime
        .run(&settings, &page)
        .ok()
        .says("what the server has");
    assert_eq!(server.asked(), ["/page"]);
    // Allowed and denied is denied.
    settings["network"]["deniedDomains"] = json!([format!("localhost:{}", server.port)]);
    runtime.run(&settings, &page).failed_with(3);
    assert_eq!(server.asked(), ["/page"]);
}

/// A program that ignores the proxy has nobody to talk to, whatever is allowed.
#[test]
fn there_is_no_way_around_the_proxy() {
    let Some((runtime, server, mut settings)) = prepared() else {
        return;
    };
    settings["network"]["allowedDomains"] = json!(["localhost", "127.0.0.1"]);
    let connect = format!("exec 5<> /dev/tcp/127.0.0.1/{}", server.port);
    runtime.caller.control(&connect).ok();
    runtime
        .run(&settings, &connect)
        .failed_with(1)
        .complains("Connection refused");
    // There is one device, and it is not the host's.
    let devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '";
    assert_eq!(runtime.run(&settings, devices).ok().out, "lo\n");
}

#[test]
fn git_clones_through_both_proxies() {
    let Some((runtime, server, mut settings)) = prepared() else {
        return;
    };
    let make = "set -e; cd ../outside; git init -q -b main r; cd r; echo one > one; git add one
        git -c user.name=A -c user.email=a@example.invalid commit -qm one
        git clone -q --bare . ../r.git; git -C ../r.git update-server-info";
    runtime.caller.control(make).ok();
    let url = format!("http://localhost:{}/r.git", server.port);
    // One proxy is in the variables that git reads; the other one speaks SOCKS.
    let git = "set -e; unset NO_PROXY no_proxy; git clone -q";
    let socks = "-c http.proxy=\"$FTP_PROXY\"";
    let script =
        format!("{git} {url} by-http; {git} {socks} {url} by-socks; head by-*/one; exit 5");
    settings["network"]["allowedDomains"] = json!(["other.example"]);
    runtime.run(&settings, &script).failed_with(128);
    assert_eq!(server.asked(), [""; 0]);
    settings["network"]["allowedDomains"] = json!(["localhost"]);
    let ran = runtime.run(&settings, &script).failed_with(5);
    ran.says("==> by-http/one <==\none\n")
        .says("==> by-socks/one <==\none\n");
    let log = runtime
        .caller
        .control("git -C by-socks log --format=%s")
        .ok();
    assert_eq!(log.out, "one\n");
}
