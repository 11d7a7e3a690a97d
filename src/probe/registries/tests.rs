use std::os::unix::fs::PermissionsExt;

use super::*;

/// A machine with these files, below a root of its own; `~` is the user's home in it.
struct Machine {
    root: tempfile::TempDir,
    env: Vec<(OsString, OsString)>,
}

impl Machine {
    fn new(files: &[(&str, &str)], env: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut all: Vec<(OsString, OsString)> = env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        all.push(("HOME".into(), root.path().join("home").into()));
        let machine = Self { root, env: all };
        for (name, text) in files {
            let path = machine.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        let name = name.replace('~', "home");
        self.root.path().join(name.trim_start_matches('/'))
    }

    fn look(&self) -> Registries {
        look(&self.env, self.root.path())
    }

    /// The patterns for one tool.
    fn of(&self, tool: &str) -> Vec<String> {
        let said = format!("bundle registries: {tool},");
        let found = self.look();
        let own = found
            .rules
            .iter()
            .filter(|rule| rule.said_by.starts_with(&said));
        own.map(|rule| rule.pattern.to_string()).collect()
    }
}

const AS_THEY_COME: &[(&str, &str)] = &[
    (
        "/usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js",
        "define('registry', { default: 'https://registry.npm.example/', // https://docs.npm.example",
    ),
    (
        "/usr/lib/python3/dist-packages/pip/_internal/models/index.py",
        "A = PackageIndex(\"https://pip.example/\", file_storage_domain=\"files.pip.example\")\n\
         B = PackageIndex(\"https://test.pip.example/\", file_storage_domain=\"test-files.pip.example\")\n",
    ),
    (
        "/usr/local/go/go.env",
        "GOPROXY=https://proxy.go.example,direct\nGOSUMDB=sum.go.example\n",
    ),
    (
        "~/.cargo/registry/index/index.cargo.example-0123456789abcdef/config.json",
        "{\"dl\": \"https://static.cargo.example/crates\", \"api\": \"https://cargo.example\"}",
    ),
];

#[test]
fn tools_that_nobody_has_configured_say_themselves_where_they_go() {
    let machine = Machine::new(AS_THEY_COME, &[]);
    assert_eq!(machine.of("npm"), ["registry.npm.example:443"]);
    assert_eq!(
        machine.of("pip"),
        ["pip.example:443", "files.pip.example:443"]
    );
    assert_eq!(
        machine.of("cargo"),
        [
            "index.cargo.example:443",
            "static.cargo.example:443",
            "cargo.example:443"
        ]
    );
    assert_eq!(
        machine.of("go"),
        ["proxy.go.example:443", "sum.go.example:443"]
    );
    assert_eq!(machine.of("apt"), [""; 0]);
    assert_eq!(machine.look().notes, [""; 0]);
}

#[test]
fn a_machine_without_tools_says_so() {
    let found = Machine::new(&[], &[]).look();
    assert_eq!(found.rules, []);
    for (note, tool) in found.notes.iter().zip(["npm", "pip", "cargo", "go"]) {
        assert!(note.contains(&format!("where {tool} gets")), "{note}");
    }
    assert_eq!(found.notes.len(), 4);
}

#[test]
fn npm_is_asked_as_npm_asks_itself() {
    let machine = Machine::new(
        &[(
            "~/.npmrc",
            "; a comment\nregistry = \"https://user:hunter2@npm.corp.example:8443/api/npm/\"\n\
             @acme:registry=https://acme.example/npm\n//acme.example/npm:_authToken=hunter2\n\
             @x:registry=${NPM_X}/x\nproxy=http://other.example\n",
        )],
        &[("NPM_X", "http://10.0.0.5")],
    );
    let wanted = ["npm.corp.example:8443", "acme.example:443", "10.0.0.5:80"];
    assert_eq!(machine.of("npm"), wanted);
    let found = machine.look();
    assert!(!format!("{found:?}").contains("hunter2"));
    let npm = |rule: &&Rule| rule.said_by.contains("npm,");
    assert!(found.rules.iter().filter(npm).all(|rule| rule.private));
    assert!(
        found.rules[0].said_by.ends_with(".npmrc"),
        "{:?}",
        found.rules[0]
    );
    // A scope alone leaves the usual registry where it is.
    let mut files = AS_THEY_COME.to_vec();
    files.push(("~/.npmrc", "@a:registry=https://a.example"));
    let scoped = Machine::new(&files, &[]);
    assert_eq!(
        scoped.of("npm"),
        ["a.example:443", "registry.npm.example:443"]
    );
    let by_variable = Machine::new(&[], &[("NPM_CONFIG_REGISTRY", "https://b.example/")]);
    assert_eq!(by_variable.of("npm"), ["b.example:443"]);
    let unset = Machine::new(&[("~/.npmrc", "registry=${NOPE}/x")], &[]);
    assert!(unset.look().notes[0].contains("variable that is not set"));
}

#[test]
fn pip_has_an_index_and_more_of_them() {
    let machine = Machine::new(
        &[
            (
                "/etc/pip.conf",
                "[global]\nindex-url = https://pypi.corp.example/simple\n",
            ),
            (
                "~/.config/pip/pip.conf",
                "[global]\nextra_index_url =\n    https://one.example/simple\n    \
                 https://two.example:444/simple\nfind-links = /srv/wheels\n",
            ),
        ],
        &[(
            "PIP_EXTRA_INDEX_URL",
            "https://three.example https://four.example",
        )],
    );
    let wanted = [
        "pypi.corp.example:443",
        "one.example:443",
        "two.example:444",
        "three.example:443",
        "four.example:443",
    ];
    assert_eq!(machine.of("pip"), wanted);
    let more = Machine::new(AS_THEY_COME, &[("UV_INDEX", "torch=https://t.example/whl")]);
    assert_eq!(more.of("pip")[0], "t.example:443");
    assert_eq!(more.of("pip").len(), 3);
}

#[test]
fn cargo_follows_what_takes_the_place_of_the_public_source() {
    let config = "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"b\"\n\
                  [source.b]\nregistry = \"sparse+https://crates.corp.example/index/\"\n\
                  [registries.own]\nindex = \"ssh://git@git.corp.example/index.git\"\n\
                  token = \"hunter2\"\n[build]\njobs = 3\n";
    let machine = Machine::new(&[("~/.cargo/config.toml", config)], &[]);
    assert_eq!(
        machine.of("cargo"),
        ["git.corp.example:22", "crates.corp.example:443"]
    );
    let vendored = "[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"v\"\n";
    assert_eq!(
        Machine::new(&[("~/.cargo/config", vendored)], &[]).of("cargo"),
        [""; 0]
    );
    let circle =
        "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"crates-io\"\n";
    let _ = Machine::new(&[("~/.cargo/config.toml", circle)], &[]).of("cargo");
    let env = [(
        "CARGO_REGISTRIES_MY_CORP_INDEX",
        "https://c.example/git/index",
    )];
    assert_eq!(Machine::new(&[], &env).of("cargo")[0], "c.example:443");
    let mut files = AS_THEY_COME.to_vec();
    files.push(("~/.cargo/config.toml", "token = \"hunter2\" x"));
    let broken = Machine::new(&files, &[]);
    let found = broken.look();
    assert!(found.notes[0].contains("not sound TOML") && !found.notes[0].contains("hunter2"));
    assert_eq!(broken.of("cargo").len(), 3);
}

#[test]
fn go_has_proxies_and_a_database_of_sums() {
    let env = [(
        "GOPROXY",
        "https://goproxy.corp.example|http://b.example:81,direct",
    )];
    let wanted = [
        "goproxy.corp.example:443",
        "b.example:81",
        "sum.go.example:443",
    ];
    assert_eq!(Machine::new(AS_THEY_COME, &env).of("go"), wanted);
    let file = [(
        "~/.config/go/env",
        "GOPROXY=https://a.example,direct\nGOSUMDB=off\n",
    )];
    assert_eq!(Machine::new(&file, &[]).of("go"), ["a.example:443"]);
    let env = [
        ("GOSUMDB", "sums.example+12ab https://mirror.example/sumdb"),
        ("GOPROXY", "off"),
    ];
    assert_eq!(Machine::new(&[], &env).of("go"), ["mirror.example:443"]);
}

#[test]
fn apt_is_read_in_both_of_its_forms() {
    let machine = Machine::new(
        &[
            (
                "/etc/apt/sources.list",
                "# deb http://no.example x y\ndeb [arch=amd64 signed-by=/k] http://a.example/debian s main\n\
                 deb-src\thttps://b.example:444 s main # and so on\ndebug http://no.example\n\
                 deb cdrom:[Disk]/ s main\ndeb [unfinished http://no.example\n",
            ),
            (
                "/etc/apt/sources.list.d/c.sources",
                "Types: deb\nURIs: http://c.example/debian\n https://d.example\nSuites: s\n\n\
                 Enabled: no\nURIs: https://no.example\n\nuris: mirror+file:/etc/apt/mirrors.list\n",
            ),
            (
                "/etc/apt/mirrors.list",
                "https://e.example/debian priority:1\n# x\n",
            ),
            (
                "/etc/apt/sources.list.d/x.list.disabled",
                "deb http://no.example s main\n",
            ),
        ],
        &[],
    );
    let wanted = [
        "a.example:80",
        "b.example:444",
        "c.example:80",
        "d.example:443",
        "e.example:443",
    ];
    assert_eq!(machine.of("apt"), wanted);
}

#[test]
fn a_registry_on_this_machine_is_not_let_in_by_the_way() {
    let urls = [
        "http://localhost:4873/",
        "http://127.0.0.1:4873",
        "http://[::1]:4873",
        "http://x.localhost:4873",
    ];
    for url in urls {
        let machine = Machine::new(&[], &[("npm_config_registry", url)]);
        assert_eq!(machine.of("npm"), [""; 0], "{url}");
        assert!(
            machine.look().notes[0].contains("--host-port 4873"),
            "{url}"
        );
    }
    for odd in [
        "http://169.254.169.254/latest",
        "https://0x7f000001/",
        "https://a b/",
        "https://",
        "https://a.example:0",
        "https://a.example:99999",
        "https://faß.example",
        "http://0.0.0.0",
        "https://*.example",
    ] {
        let machine = Machine::new(&[], &[("npm_config_registry", odd)]);
        assert_eq!(machine.of("npm"), [""; 0], "{odd}");
        assert!(
            machine.look().notes[0].contains("no host to allow"),
            "{odd}"
        );
    }
}

#[test]
fn odd_files_are_noted_and_stop_nothing() {
    let huge = "x = 1\n".repeat(60_000);
    let mut files = AS_THEY_COME.to_vec();
    files.extend([("~/.npmrc", huge.as_str()), ("~/.config/go/env", "A=1")]);
    let machine = Machine::new(&files, &[]);
    fs::create_dir_all(machine.path("/etc/pip.conf")).unwrap();
    fs::write(machine.path("~/.config/go/env"), [0xff, 0xfe]).unwrap();
    let fifo = machine.path("~/.cargo/config.toml");
    fs::create_dir_all(fifo.parent().unwrap()).unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let found = machine.look();
    let said = found.notes.join("\n");
    for part in ["256 KiB", "regular file", "UTF-8", "config.toml"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(found.notes.len(), 4, "{said}");
    assert_eq!(machine.of("npm").len(), 1);
    assert_eq!(machine.of("cargo").len(), 3);
    if !nix::unistd::geteuid().is_root() {
        let shut = Machine::new(&[("~/.npmrc", "registry=https://a.example")], &[]);
        let path = shut.path("~/.npmrc");
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        assert!(
            shut.look().notes[0].contains("ermission"),
            "{:?}",
            shut.look().notes
        );
    }
}

#[test]
fn a_list_without_end_ends() {
    let many: String = (0..5000)
        .map(|i| format!("deb http://h{i}.example s main\n"))
        .collect();
    let machine = Machine::new(&[("/etc/apt/sources.list", &many)], &[]);
    let found = machine.look();
    assert_eq!(found.rules.len(), MOST_RULES);
    let said = found
        .notes
        .iter()
        .filter(|note| note.contains("only the first"));
    assert_eq!(said.count(), 1, "{:?}", found.notes);
}
