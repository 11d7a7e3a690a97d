//! Rules, ports and rates of a running session.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::ground::{Ground, eventually};
use crate::knock::{INSIDE, connect};
use crate::support::Ran;
use crate::world::{Canary, HOST4, WEB4, world};

/// Holds a connection to the echo server; for every line says whether it still answers.
const HOLD: &str = "
import socket, sys
line = socket.create_connection((sys.argv[1], 7), 20)
print('open', flush=True)
for word in sys.stdin:
    try:
        line.sendall(b'x')
        print('same' if line.recv(1) == b'x' else 'ended', flush=True)
    except OSError as error:
        print('ended', flush=True)
";

/// Ends by itself when the other side ends the connection.
const WAIT: &str = "
import socket, sys
proxy, host = sys.argv[1:]
if proxy == '-':
    line = socket.create_connection((host, 7), 20)
else:
    line = socket.create_connection(('127.0.0.1', 3128), 20)
    line.sendall(f'CONNECT {host}:7 HTTP/1.1\\r\\nHost: {host}:7\\r\\n\\r\\n'.encode())
    assert b' 200 ' in line.recv(4096)
line.settimeout(None)
line.sendall(b'x')
assert line.recv(1) == b'x'
print('open', flush=True)
try:
    got = line.recv(1)
    print('ended' if got == b'' else got, flush=True)
except ConnectionResetError:
    print('ended', flush=True)
";

/// A program that is talked to line by line.
struct Talk {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Talk {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn say(&mut self) -> String {
        writeln!(self.to, "word").unwrap();
        self.hear()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_host_is_allowed_and_denied_while_the_session_runs() {
    let ground = Ground::new();
    let name = world().name_at("later", &[WEB4]);
    let id = ground.start(&["--allow-host", "allowed.test"], &["sleep", "1000"]);
    let attempts = [
        connect(INSIDE.http, &format!("{name}:80")),
        json!({"do": "connect", "place": [name, 80]}),
        json!({"do": "dns", "name": name}),
    ];
    let before = ground.knock_in(&id, &attempts);
    assert_eq!(before[0].status(), Some(403), "{before:?}");
    assert_eq!(before[1].error(), Some("EAI_NONAME"), "{before:?}");
    assert_eq!(before[2].heard()["code"], 3, "{before:?}");
    assert!(world().questions(&name).is_empty());

    ground.say(&["allow", &id, &name]).ok();
    let during = ground.knock_in(&id, &attempts);
    assert!(during[0].text().contains("\"port\": 80"), "{during:?}");
    assert!(during[1].text().contains("404"), "{during:?}");
    assert_eq!(during[2].heard()["code"], 0, "{during:?}");

    ground.say(&["deny", &id, &name]).ok();
    let after = ground.knock_in(&id, &attempts);
    assert_eq!(after[0].status(), Some(403), "{after:?}");
    assert!(
        after[1].error().is_some_and(|why| why != "timeout"),
        "{after:?}"
    );
    assert_eq!(after[2].heard()["code"], 3, "{after:?}");
    // What is no host is said to be none, and a session that is none too.
    assert_ne!(ground.say(&["allow", &id, "a..b"]).code, 0);
    assert_ne!(ground.say(&["allow", "nobody", &name]).code, 0);
}

/// NW-60
#[test]
fn an_open_tunnel_ends_with_its_rule_and_others_go_on() {
    let ground = Ground::new();
    let name = world().name_at("held", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let rules = [format!("{name}:7"), format!("{other}:7")];
    let flags = ["--allow-host", &rules[0], "--allow-host", &rules[1]];
    let id = ground.start(&flags, &["sleep", "1000"]);
    let enter = |words: &[&str]| {
        let mut command = ground.cowork();
        command
            .args(["exec", "-i", &id, "--", "python3", "-c"])
            .args(words);
        Talk::start(&mut command)
    };
    let mut stays = enter(&[HOLD, &other]);
    assert_eq!(stays.hear(), "open");
    let mut direct = enter(&[WAIT, "-", &name]);
    assert_eq!(direct.hear(), "open");
    let mut proxied = enter(&[WAIT, "http", &name]);
    assert_eq!(proxied.hear(), "open");

    ground.say(&["deny", &id, &format!("{name}:7")]).ok();
    assert_eq!(direct.hear(), "ended");
    assert_eq!(proxied.hear(), "ended");
    assert_eq!(stays.say(), "same");
    // Denied by a wider rule, the other one ends too.
    ground.say(&["deny", &id, "*.names.test:*"]).ok();
    assert_eq!(stays.say(), "ended");
}

/// Says one packet to a session's socket, and prints the answer.
const ASK: &str = "
import socket, sys
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
line.connect(sys.argv[1])
line.send(sys.argv[2].encode())
print(line.recv(1 << 16).decode())
";

fn replace_rules(ground: &Ground, id: &str, allow: &[&str], deny: &[&str]) -> Ran {
    let socket = format!("run/cowork-linux/{id}.sock");
    let rule = |text: &&str| json!({"pattern": text, "said_by": "the app"});
    let allow: Vec<_> = allow.iter().map(rule).collect();
    let deny: Vec<_> = deny.iter().map(rule).collect();
    let ask = json!({"ask": "rules", "rules": {"allow": allow, "deny": deny}});
    let mut command = ground.on_the_host();
    command.args(["python3", "-c", ASK]);
    command.arg(ground.scratch.path(&socket));
    Ran::of(command.arg(ask.to_string()))
}

#[test]
fn all_rules_are_exchanged_while_the_session_runs() {
    let ground = Ground::new();
    let name = world().name_at("before", &[WEB4]);
    let later = world().name_at("after", &[WEB4]);
    let id = ground.start(
        &["--name", "ruled", "--allow-host", &format!("{name}:7")],
        &["sleep", "1000"],
    );
    let connects = |name: &str| {
        let place = json!({"do": "connect", "place": [name, 80]});
        let came = ground.knock_in(&id, &[place]);
        came[0].text().contains("404")
    };
    let mut command = ground.cowork();
    command.args(["exec", "-i", &id, "--", "python3", "-c", WAIT, "-", &name]);
    let mut open = Talk::start(&mut command);
    assert_eq!(open.hear(), "open");
    assert!(!connects(&later));

    // The same rules end nothing.
    let answer = replace_rules(&ground, &id, &[&format!("{name}:7"), &later], &[]).ok();
    answer.says("done");
    assert!(connects(&later));
    replace_rules(&ground, &id, &[&later], &[])
        .ok()
        .says("done");
    assert_eq!(open.hear(), "ended", "no rule allows it any more");
    assert!(connects(&later));
    assert!(!connects(&name));
    let rules = ground.json(&["inspect", &id])["seen"]["rules"].clone();
    assert_eq!(rules["allow"][0]["said_by"], "the app", "{rules}");
    assert_eq!(rules["allow"].as_array().unwrap().len(), 1);
    replace_rules(&ground, &id, &[&later], &[&later]).ok();
    assert!(!connects(&later), "what is denied wins");
    replace_rules(&ground, &id, &[], &[]).ok().says("done");
    assert!(!connects(&later));
    replace_rules(&ground, &id, &["a..b"], &[])
        .ok()
        .says("refused");
    let journal = ground
        .scratch
        .path("state/cowork-linux/journals/ruled.jsonl");
    let journal = std::fs::read_to_string(journal).unwrap();
    assert!(journal.contains(&format!("allow {later}")), "{journal}");
    assert!(journal.contains("no host"), "{journal}");

    // Without a gateway there is nobody to tell.
    let mut command = ground.cowork();
    command.args(["run", "-d", "-q", "--keep", "--name", "alone"]);
    Ran::of(&mut command).ok();
    let answer = replace_rules(&ground, "alone", &[&later], &[]).ok();
    answer.says("without --network allow");
}

#[test]
fn a_published_port_leads_into_the_box_and_only_from_where_it_should() {
    let ground = Ground::new();
    let serve = "import http.server, os
server = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler)
open('serving', 'w').close(); server.serve_forever()";
    std::fs::write(ground.work().join("page"), "a page of the box\n").unwrap();
    let fetch =
        |place: &str| ground.control(&format!("curl -sS --max-time 20 http://{place}/page"));
    assert_eq!(fetch("127.0.0.1:18080").code, 7, "nobody there before");
    let wide = format!("{HOST4}:18081:8000");
    let id = ground.start(
        &["-p", "18080:8000", "-p", &wide],
        &["python3", "-c", serve],
    );
    ground.waits_for(&ground.work().join("serving"));
    fetch("127.0.0.1:18080").ok().says("a page of the box");
    assert_eq!(fetch(&format!("{HOST4}:18080")).code, 7, "loopback only");
    fetch(&format!("{HOST4}:18081"))
        .ok()
        .says("a page of the box");
    assert_eq!(fetch("127.0.0.1:18081").code, 7);
    assert_eq!(fetch("127.0.0.1:8000").code, 7);
    ground.say(&["stop", &id]).ok();
    eventually("the port is closed", || fetch("127.0.0.1:18080").code == 7);
}

#[test]
fn a_port_that_is_taken_is_said_before_anything_starts() {
    let ground = Ground::new();
    let taken = Canary::on_the_host("127.0.0.1");
    let flag = format!("{}:8000", taken.port);
    let ran = Ran::of(ground.running(&["-p", &flag]).arg("true"));
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(ran.err.contains(&taken.port.to_string()), "{ran:?}");
}

#[test]
fn one_port_of_the_host_is_reached_and_no_other() {
    let ground = Ground::new();
    let open = Canary::on_the_host("127.0.0.1");
    let closed = Canary::on_the_host("127.0.0.1");
    let attempts = [
        json!({"do": "connect", "place": ["127.0.0.1", open.port]}),
        json!({"do": "connect", "place": ["127.0.0.1", closed.port]}),
        connect(INSIDE.http, &format!("127.0.0.1:{}", closed.port)),
    ];
    let flag = open.port.to_string();
    let came = ground.knock(&["--host-port", &flag], &attempts);
    assert!(came[0].is_canary(), "{came:?}");
    assert_eq!(came[1].error(), Some("ECONNREFUSED"), "{came:?}");
    assert_eq!(came[2].status(), Some(403), "{came:?}");
    assert_eq!((open.visits(), closed.visits()), (1, 0));
}

#[test]
fn a_rate_holds() {
    let ground = Ground::new();
    let name = world().name_at("fast", &[WEB4]);
    let size = 3 << 20;
    let script = format!("curl -sS http://{name}/bytes/{size} | wc -c");
    let timed = |flags: &[&str]| {
        let start = Instant::now();
        let ran = ground.sh(flags, &script).ok();
        assert_eq!(ran.out.trim(), size.to_string());
        start.elapsed()
    };
    // Three mebibytes at one in a second, of which one may come at once.
    let held = timed(&["--allow-host", &name, "--net-rate", "1M"]);
    assert!(held > Duration::from_millis(1500), "{held:?}");
    timed(&["--allow-host", &name]);
}

/// The box lives on, and so do its doors: somebody else stands behind them.
#[test]
fn a_gateway_that_dies_is_replaced() {
    let ground = Ground::new();
    let id = ground.start(&["--allow-host", "allowed.test"], &["sleep", "1000"]);
    let first = ground.gateway(&id);
    let attempts = [
        connect(INSIDE.http, "allowed.test:80"),
        connect(INSIDE.http, "denied.test:80"),
    ];
    let kill = nix::sys::signal::kill;
    kill(
        nix::unistd::Pid::from_raw(first as i32),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    eventually("there is another one", || {
        ground.gateways(&id).iter().any(|pid| *pid != first)
    });
    let came = ground.knock_in(&id, &attempts);
    assert!(came[0].text().contains("\"port\": 80"), "{came:?}");
    assert_eq!(came[1].status(), Some(403), "{came:?}");
}

#[test]
fn a_box_without_a_network_has_no_gateway() {
    let ground = Ground::new();
    let mut command = ground.cowork();
    command.args(["run", "-d", "-q", "--network", "none", "--mount"]);
    command.arg(ground.work()).args(["--", "sleep", "1000"]);
    let id = Ran::of(&mut command).ok().out.trim().to_owned();
    assert_eq!(ground.gateways(&id), Vec::<u32>::new());
    let other = ground.start(&["--allow-host", "allowed.test"], &["sleep", "1000"]);
    assert_eq!(ground.gateways(&other).len(), 1, "they are seen");
}
