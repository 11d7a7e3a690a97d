//! What the gateway costs: bytes a second and round trips through each of its doors, beside the
//! same without a box and through what others put in between. `make bench` runs it.
//!
//! `BENCH_ROUNDS` is how often each is measured (300, of which it takes a thirtieth), `COWORK_BIN` the
//! binary. Peers that are not installed are left out and named.
#![allow(clippy::print_stdout, reason = "a bench prints its tables")]

#[allow(dead_code, reason = "the other benches use the rest")]
mod measure;

use measure::{Answer, Table, rounds};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MEGABYTES: u64 = 256;
const ROUND_TRIPS: u32 = 500;
const CONNECTIONS: u32 = 50;
const GOAL: f64 = 0.6;
const GOAL_ADDED: f64 = 100.0;

fn main() -> Answer<()> {
    let words: Vec<String> = env::args().collect();
    if words.get(1).is_some_and(|word| word == "client") {
        return client(&words[2], words[3].parse()?);
    }
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/.build/cowork-linux");
    let binary = env::var("COWORK_BIN").unwrap_or_else(|_| built.to_owned());
    let binary = fs::canonicalize(&binary)
        .map_err(|error| format!("there is no {binary} to measure: {error}"))?;
    let (scratch, state) = (TempDir::new()?, TempDir::new()?);
    let host = serve()?;
    let myself = scratch.path().join("client");
    fs::copy(env::current_exe()?, &myself)?;
    let mut contestants = vec![Contestant::start(
        "no box",
        client_command(&myself, "direct", host),
    )?];
    for (name, way) in [
        ("redirected", "direct"),
        ("HTTP proxy", "http"),
        ("SOCKS5 proxy", "socks"),
    ] {
        let mut command = Command::new(&binary);
        command
            .args(["run", "-q", "--allow-host", &host.to_string(), "--mount"])
            .arg(format!("{}:ro", scratch.path().display()))
            .args(["--", "./client", "client", way, &host.to_string()])
            .env("XDG_STATE_HOME", state.path())
            .env("XDG_RUNTIME_DIR", state.path());
        contestants.push(Contestant::start(name, command)?);
    }
    let peers = peers(&myself, host, &mut contestants)?;
    let times = rounds(30);
    for _ in 0..times {
        for contestant in &mut contestants {
            contestant.measure()?;
        }
    }
    print(&mut contestants, times)?;
    for missing in peers {
        println!("not there, so not measured: {missing}");
    }
    Ok(())
}

fn client_command(myself: &Path, way: &str, host: SocketAddr) -> Command {
    let mut command = Command::new(myself);
    command.args(["client", way, &host.to_string()]);
    command
}

/// What others use for the same, where it is there.
fn peers(
    myself: &Path,
    host: SocketAddr,
    contestants: &mut Vec<Contestant>,
) -> Answer<Vec<&'static str>> {
    let mut missing = Vec::new();
    let there = |name: &str| {
        let folders = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&folders).any(|folder| folder.join(name).exists())
    };
    if there("socat") {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
        let bridge = Command::new("socat")
            .args([listen, format!("TCP:{host}")])
            .spawn()?;
        let near = SocketAddr::from(([127, 0, 0, 1], port));
        let end = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(near).is_err() && Instant::now() < end {
            thread::yield_now();
        }
        let mut one = Contestant::start("socat", client_command(myself, "direct", near))?;
        one.others.push(bridge);
        contestants.push(one);
    } else {
        missing.push("socat");
    }
    // Both make a device in the box, and one of them waits for ever if it may not.
    let device = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if device.is_err() {
        missing.extend([
            "pasta (no right to /dev/net/tun)",
            "slirp4netns (no right to /dev/net/tun)",
        ]);
        return Ok(missing);
    }
    // It takes on another number when root starts it, and then has no rights to the rest.
    if there("pasta") && !nix::unistd::getuid().is_root() {
        let mut command = Command::new("pasta");
        command.args(["-q", "--config-net", "--"]).arg(myself);
        command.args(["client", "gateway", &host.to_string()]);
        match Contestant::start("pasta", command) {
            Ok(one) => contestants.push(one),
            Err(_) => missing.push("pasta (it does not start)"),
        }
    } else {
        missing.push("pasta (or not as root)");
    }
    if there("slirp4netns") && there("unshare") {
        let wait = "read go; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", wait, "sh"]).arg(myself);
        let far = SocketAddr::from(([10, 0, 2, 2], host.port()));
        command.args(["client", "direct", &far.to_string()]);
        let mut one = Contestant::spawn("slirp4netns", command)?;
        let pid = one.process.id().to_string();
        let helper = Command::new("slirp4netns")
            .args(["--configure", "--mtu=65520", &pid, "tap0"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        one.others.push(helper);
        let end = Instant::now() + Duration::from_secs(5);
        let routes = format!("/proc/{pid}/net/route");
        while !fs::read_to_string(&routes)?.contains("tap0") && Instant::now() < end {
            thread::yield_now();
        }
        one.say("go")?;
        one.hear()?;
        contestants.push(one);
    } else {
        missing.push("slirp4netns");
    }
    Ok(missing)
}

/// A client that runs somewhere, and what it measured.
struct Contestant {
    name: &'static str,
    process: Child,
    answers: BufReader<std::process::ChildStdout>,
    others: Vec<Child>,
    down: Vec<f64>,
    up: Vec<f64>,
    trip: Vec<f64>,
    connect: Vec<f64>,
}

impl Contestant {
    fn spawn(name: &'static str, mut command: Command) -> Answer<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name} does not start: {error}"))?;
        let answers = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Self {
            name,
            process,
            answers,
            others: Vec::new(),
            down: Vec::new(),
            up: Vec::new(),
            trip: Vec::new(),
            connect: Vec::new(),
        })
    }

    fn start(name: &'static str, command: Command) -> Answer<Self> {
        let mut one = Self::spawn(name, command)?;
        one.hear()?;
        Ok(one)
    }

    fn say(&mut self, word: &str) -> Answer<()> {
        let input = self.process.stdin.as_mut().ok_or("no input")?;
        Ok(writeln!(input, "{word}")?)
    }

    fn hear(&mut self) -> Answer<f64> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let number = line.trim().parse();
        number.map_err(|_| format!("{} said {line:?}", self.name).into())
    }

    fn measure(&mut self) -> Answer<()> {
        for word in ["down", "up", "trip", "connect"] {
            self.say(word)?;
            let number = self.hear()?;
            let measured = match word {
                "down" => &mut self.down,
                "up" => &mut self.up,
                "trip" => &mut self.trip,
                _ => &mut self.connect,
            };
            measured.push(number);
        }
        Ok(())
    }
}

impl Drop for Contestant {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        for other in &mut self.others {
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}

fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn print(contestants: &mut [Contestant], times: usize) -> Answer<()> {
    println!(
        "{times} rounds of {MEGABYTES} MB down and up, {ROUND_TRIPS} round trips and {CONNECTIONS} connections each"
    );
    let mut table = Table::new(&[
        "",
        "MB/s down",
        "/ no box",
        "MB/s up",
        "/ no box",
        "round trip us",
        "added",
        "connect us",
    ]);
    let mut base = (0.0, 0.0, 0.0);
    for contestant in contestants {
        let down = median(&mut contestant.down);
        let up = median(&mut contestant.up);
        let trip = median(&mut contestant.trip);
        let connect = median(&mut contestant.connect);
        if contestant.name == "no box" {
            base = (down, up, trip);
        }
        table.row([
            contestant.name.to_owned(),
            format!("{down:.0}"),
            format!("{:.2}", down / base.0),
            format!("{up:.0}"),
            format!("{:.2}", up / base.1),
            format!("{trip:.1}"),
            format!("{:.1}", trip - base.2),
            format!("{connect:.0}"),
        ]);
    }
    println!("{table}");
    println!("goal: at least {GOAL} of the bytes, less than {GOAL_ADDED} us added");
    Ok(())
}

/// An address of this host that is not loopback, and a server there: the first byte of a connection
/// says whether it sends, takes or echoes.
fn serve() -> Answer<SocketAddr> {
    // Nothing is sent; the kernel says which address it would send from.
    let probe = UdpSocket::bind("0.0.0.0:0")?;
    probe.connect("203.0.113.1:9")?;
    let address: IpAddr = probe.local_addr()?.ip();
    let listener = TcpListener::bind((address, 0))?;
    let host = listener.local_addr()?;
    // The peers lead an address of their own to the host's loopback.
    let near = TcpListener::bind(("127.0.0.1", host.port()))?;
    for listener in [listener, near] {
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || served(stream));
            }
        });
    }
    Ok(host)
}

fn served(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wish = [0];
    stream.read_exact(&mut wish)?;
    match wish[0] {
        b'd' => {
            let piece = vec![7; 1 << 20];
            for _ in 0..MEGABYTES {
                stream.write_all(&piece)?;
            }
        }
        b'u' => {
            let (mut piece, mut got) = (vec![0; 1 << 20], 0);
            while got < MEGABYTES << 20 {
                match stream.read(&mut piece)? {
                    0 => return Ok(()),
                    count => got += count as u64,
                }
            }
            stream.write_all(b"k")?;
        }
        _ => {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                stream.write_all(&byte)?;
            }
        }
    }
    Ok(())
}

/// Measures what it is told to, line by line.
fn client(way: &str, host: SocketAddr) -> Answer<()> {
    println!("0");
    for line in std::io::stdin().lock().lines() {
        let number = match line?.as_str() {
            "down" => {
                let mut stream = reach(way, host)?;
                stream.write_all(b"d")?;
                let mut piece = vec![0; 1 << 20];
                let (start, mut got) = (Instant::now(), 0u64);
                loop {
                    match stream.read(&mut piece)? {
                        0 => break,
                        count => got += count as u64,
                    }
                }
                if got != MEGABYTES << 20 {
                    return Err(format!("{got} bytes came").into());
                }
                MEGABYTES as f64 / start.elapsed().as_secs_f64()
            }
            "up" => {
                let mut stream = reach(way, host)?;
                stream.write_all(b"u")?;
                let piece = vec![7; 1 << 20];
                let start = Instant::now();
                for _ in 0..MEGABYTES {
                    stream.write_all(&piece)?;
                }
                // It has come when the other side says so.
                stream.read_exact(&mut [0])?;
                MEGABYTES as f64 / start.elapsed().as_secs_f64()
            }
            "trip" => {
                let mut stream = reach(way, host)?;
                stream.write_all(b"e")?;
                let mut trips = |count: u32| -> std::io::Result<()> {
                    for _ in 0..count {
                        stream.write_all(b"x")?;
                        stream.read_exact(&mut [0])?;
                    }
                    Ok(())
                };
                // The first ones find processors that are busy with the end of what came before, or asleep.
                trips(ROUND_TRIPS)?;
                let start = Instant::now();
                trips(ROUND_TRIPS)?;
                start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUND_TRIPS)
            }
            _ => {
                let start = Instant::now();
                for _ in 0..CONNECTIONS {
                    let mut stream = reach(way, host)?;
                    stream.write_all(b"ex")?;
                    stream.read_exact(&mut [0])?;
                }
                start.elapsed().as_secs_f64() * 1e6 / f64::from(CONNECTIONS)
            }
        };
        println!("{number}");
    }
    Ok(())
}

fn reach(way: &str, host: SocketAddr) -> Answer<TcpStream> {
    let mut stream = match way {
        "http" => {
            let mut stream = TcpStream::connect("127.0.0.1:3128")?;
            write!(stream, "CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                answer.push(byte[0]);
            }
            if !answer.starts_with(b"HTTP/1.1 200") {
                return Err(String::from_utf8_lossy(&answer).into());
            }
            stream
        }
        "socks" => {
            let mut stream = TcpStream::connect("127.0.0.1:1080")?;
            stream.write_all(&[5, 1, 0])?;
            stream.read_exact(&mut [0; 2])?;
            let IpAddr::V4(address) = host.ip() else {
                return Err("the server has no IPv4 address".into());
            };
            let mut words = vec![5, 1, 0, 1];
            words.extend(address.octets());
            words.extend(host.port().to_be_bytes());
            stream.write_all(&words)?;
            let mut answer = [0; 10];
            stream.read_exact(&mut answer)?;
            if answer[1] != 0 {
                return Err(format!("the proxy said {}", answer[1]).into());
            }
            stream
        }
        // pasta leads its gateway's address to the host.
        "gateway" => TcpStream::connect((default_gateway()?, host.port()))?,
        _ => TcpStream::connect(host)?,
    };
    stream.set_nodelay(true)?;
    stream.flush()?;
    Ok(stream)
}

fn default_gateway() -> Answer<IpAddr> {
    let table = fs::read_to_string("/proc/net/route")?;
    let mut rows = table
        .lines()
        .skip(1)
        .map(|row| row.split_ascii_whitespace());
    let found = rows.find_map(|mut row| {
        let (to, gateway) = (row.nth(1)?, row.next()?);
        (to == "00000000").then(|| gateway.to_owned())
    });
    let number = u32::from_str_radix(&found.ok_or("there is no gateway")?, 16)?;
    Ok(IpAddr::from(number.to_le_bytes()))
}
