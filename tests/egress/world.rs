//! A world for networks: a host, an internet, and a cable between them, in namespaces of the
//! test's own. Nothing in it needs rights that its user has not, and nothing leaves it.
//!
//! The host is where `cowork-linux` runs, with the number of whoever runs the tests. The internet
//! has every address there is; its servers and the host's are in `servers/`. One world serves all
//! tests of this program: each takes names, ports and canaries of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use serde_json::{Value, json};

use crate::support::{Ran, is_root, project};

/// The host's own addresses on its cable.
pub(crate) const HOST4: &str = "93.184.216.2";
pub(crate) const HOST6: &str = "2606:2800:220:1::2";
/// Where the web of the internet is, though it is everywhere.
pub(crate) const WEB4: &str = "93.184.216.34";
pub(crate) const WEB6: &str = "2606:2800:220:1::34";

#[derive(Debug)]
pub(crate) struct World {
    folder: PathBuf,
    holder: u32,
    line: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    /// Reaped by nobody: it ends with this process, by the end of its standard input.
    _process: Child,
}

/// The world of this test program, made when it is first asked for.
pub(crate) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(World::make)
}

impl World {
    fn make() -> Self {
        // It outlives every test; the host's program removes it when this process is gone.
        let folder = tempfile::Builder::new()
            .prefix("cowork-world-")
            .tempdir()
            .unwrap()
            .keep();
        let servers = project().join("tests/egress/servers");
        let python = "/usr/bin/python3";
        let mut prepare = Command::new(python);
        prepare.arg(servers.join("prepare.py")).arg(&folder);
        Ran::of(prepare.stdin(Stdio::null())).ok();

        let mut command = Command::new("unshare");
        if !is_root() {
            // The user keeps the number it has, and gets rights over what it makes here.
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command
            .args(["--net", "--mount", "--propagation", "private", python])
            .arg(servers.join("host.py"))
            .arg(&folder)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("unshare starts");
        let line = (
            process.stdin.take().unwrap(),
            BufReader::new(process.stdout.take().unwrap()),
        );
        let world = Self {
            folder,
            holder: process.id(),
            line: Mutex::new(line),
            _process: process,
        };
        assert_eq!(world.hear(&mut world.line.lock().unwrap().1), "ready");
        world
    }

    fn hear(&self, from: &mut BufReader<ChildStdout>) -> Value {
        let mut reply = String::new();
        from.read_line(&mut reply).unwrap();
        let reply: Value = serde_json::from_str(&reply).expect("the world is there");
        assert!(reply.get("failed").is_none(), "the world says: {reply}");
        reply["said"].clone()
    }

    /// Asks the host's program.
    pub(crate) fn host(&self, question: &Value) -> Value {
        // A test that failed while it asked has lost nothing of the line.
        let mut line = self
            .line
            .lock()
            .unwrap_or_else(|broken| broken.into_inner());
        writeln!(line.0, "{question}").unwrap();
        self.hear(&mut line.1)
    }

    /// Asks the internet's program.
    pub(crate) fn internet(&self, question: &Value) -> Value {
        self.host(&json!({"ask": "internet", "question": question}))
    }

    /// What the host trusts: the system's authorities and the one that signed the web's certificate.
    pub(crate) fn authorities(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    pub(crate) fn ssh_key(&self) -> PathBuf {
        self.folder.join("ssh_key")
    }

    /// A program to be run on the host of this world, by the user who runs the tests, in a folder.
    pub(crate) fn on_the_host(&self, folder: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.holder.to_string()]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        // The folder is entered there, and not brought along from outside.
        command.args(["--", "env", "-C"]).arg(folder);
        command
    }

    /// A name that nobody else uses, below `names.test`, for which there is a certificate.
    pub(crate) fn name(&self, about: &str, answers: Value) -> String {
        let name = format!("{about}-{}.names.test", fresh());
        self.put(&name, answers);
        name
    }

    /// Scripts the answers for a name: the fields of `Entry` in `servers/dns.py`.
    pub(crate) fn put(&self, name: &str, mut entry: Value) {
        entry["ask"] = "name".into();
        entry["name"] = name.into();
        self.internet(&entry);
    }

    /// A name with these addresses.
    pub(crate) fn name_at(&self, about: &str, addresses: &[&str]) -> String {
        let (six, four): (Vec<&str>, Vec<&str>) =
            addresses.iter().copied().partition(|one| one.contains(':'));
        self.name(about, json!({"answers": {"A": [four], "AAAA": [six]}}))
    }

    /// The names that the name server was asked for and that have this text in them.
    pub(crate) fn questions(&self, about: &str) -> Vec<String> {
        let asked = self.internet(&json!({"ask": "questions", "about": about}));
        let asked = asked.as_array().unwrap().iter();
        asked
            .map(|one| {
                format!(
                    "{} {}",
                    one["name"].as_str().unwrap(),
                    one["type"].as_str().unwrap()
                )
            })
            .collect()
    }

    /// Requests that the web got, with this text in the host or target.
    pub(crate) fn requests(&self, about: &str) -> Vec<Value> {
        let seen = self.internet(&json!({"ask": "requests", "about": about}));
        seen.as_array().unwrap().clone()
    }

    /// How often a TLS client asked the web for a name with this text in it.
    pub(crate) fn hellos(&self, about: &str) -> usize {
        let seen = self.internet(&json!({"ask": "hellos", "about": about}));
        seen.as_array().unwrap().len()
    }

    /// Packets on the cable to this address, as `kind:port` and how many, once all that were sent
    /// are there.
    pub(crate) fn counts(&self, to: &str) -> Vec<(String, u64)> {
        let marker = fresh().to_string();
        self.host(&json!({"ask": "mark", "marker": marker}));
        let seen = self.internet(&json!({"ask": "packets", "marker": marker}));
        let here = seen
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["to"] == to);
        let counted = |one: &Value| {
            let kind = format!("{}:{}", one["kind"].as_str().unwrap(), one["port"]);
            (kind, one["count"].as_u64().unwrap())
        };
        here.map(counted).collect()
    }

    /// Which kinds of packets came to this address.
    pub(crate) fn packets(&self, to: &str) -> Vec<String> {
        self.counts(to).into_iter().map(|(kind, _)| kind).collect()
    }

    /// A proxy on the host that passes everything on.
    pub(crate) fn trusting_proxy(&self) -> u16 {
        self.host(&json!({"ask": "proxy"})).as_u64().unwrap() as u16
    }

    /// A proxy on the host that allows these names, with the usual mistakes.
    pub(crate) fn careless_proxy(&self, names: &[&str]) -> u16 {
        let question = json!({"ask": "proxy", "careless_about": names});
        self.host(&question).as_u64().unwrap() as u16
    }
}

/// A place that remembers who came.
#[derive(Debug)]
pub(crate) struct Canary {
    on_the_host: bool,
    pub(crate) address: String,
    pub(crate) port: u16,
}

impl Canary {
    /// At an address of the host itself.
    pub(crate) fn on_the_host(address: &str) -> Self {
        let question = json!({"ask": "canary", "address": address});
        Self {
            on_the_host: true,
            address: address.into(),
            port: world().host(&question).as_u64().unwrap() as u16,
        }
    }

    /// At an address that is beyond the host's cable.
    pub(crate) fn beyond(address: &str) -> Self {
        let question = json!({"ask": "canary", "address": address});
        Self {
            on_the_host: false,
            address: address.into(),
            port: world().internet(&question).as_u64().unwrap() as u16,
        }
    }

    /// How often somebody came, by whatever protocol.
    pub(crate) fn visits(&self) -> usize {
        let name = format!("{} {}", self.address, self.port);
        let question = json!({"ask": "visits", "name": name});
        let seen = match self.on_the_host {
            true => world().host(&question),
            false => world().internet(&question),
        };
        seen.as_array().unwrap().len()
    }
}

/// A number that was not given out before.
pub(crate) fn fresh() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
