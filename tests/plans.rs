//! Plans for hosts that are not this one: facts and a policy in, sentences out.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use cowork_linux::plan::{
    self, BuildStep, CarriedLimit, EtcEntry, Facts, Limit, PlanError, Registries, Request, Seen,
    Sentences, Source, Stdio, SystemEntry, WholeLimits,
};
use cowork_linux::policy::egress::{
    BundleName, HostPattern, HostPort, Name, Publish, Rate, Rule, SecretSpec, UpstreamChoice,
};
use cowork_linux::policy::{
    Access, InsidePath, Isolation, Layer, NetMode, Policy, SessionId, Sources, resolve,
};

/// A Debian with a merged /usr and a new kernel, as an ordinary user sees it.
fn merged() -> Facts {
    let link = |name: &str| SystemEntry::Link {
        at: inside(&format!("/{name}")),
        to: PathBuf::from(format!("usr/{name}")),
    };
    let mut system = vec![SystemEntry::Folder(inside("/usr"))];
    system.extend(["bin", "sbin", "lib", "lib64"].map(link));
    Facts {
        uid: 1234,
        gid: 1234,
        user: "person".to_owned(),
        umask: 0o022,
        landlock_abi: 7,
        seccomp_notify: true,
        system,
        programs: None,
        etc: vec![
            EtcEntry::Shown {
                name: "ssl".to_owned(),
                is_folder: true,
            },
            EtcEntry::Copied {
                name: "services".to_owned(),
                content: b"ssh 22/tcp\n".to_vec(),
            },
            EtcEntry::Link {
                name: "localtime".to_owned(),
                to: "/usr/share/zoneinfo/UTC".into(),
            },
        ],
        stdio: [Stdio::Direct; 3],
        state_directory: "/home/person/.local/state/cowork-linux".into(),
        shell: "/bin/bash".into(),
        env: vec![("LANG".into(), "C.UTF-8".into())],
        git_identity: None,
        registries: Registries::default(),
        resolver: String::new(),
    }
}

fn inside(path: &str) -> InsidePath {
    InsidePath::new(path).unwrap()
}

fn folders(names: &[&str]) -> Vec<SystemEntry> {
    let folder = |name: &&str| SystemEntry::Folder(inside(name));
    names.iter().map(folder).collect()
}

fn policy() -> Policy {
    let sources = Sources {
        profile: None,
        project_dir: None,
        flags: Default::default(),
        env: &|_| None,
    };
    resolve(&sources).unwrap().policy
}

/// `run --name fixed --mount /home/person/project -- agent`
fn request() -> Request {
    Request {
        id: SessionId::parse("fixed").unwrap(),
        detached: None,
        disguise: Default::default(),
        limits: Vec::new(),
        whole: WholeLimits::default(),
        kept: true,
        mounts: vec![Source {
            path: "/home/person/project".into(),
            seen: Seen::default(),
            place: None,
            name: "project".into(),
            access: Access::Write,
        }],
        needed: Vec::new(),
        path: Vec::new(),
        argv: vec!["agent".into()],
        workdir: None,
        hostname: None,
        env: Vec::new(),
    }
}

fn sentences(policy: &Policy, facts: &Facts) -> String {
    let plan = plan::build(policy, facts, &request()).unwrap();
    Sentences(&plan).to_string()
}

/// Only the lines that differ from the plan for the usual host.
fn difference(policy: &Policy, facts: &Facts) -> String {
    let words = |line: &str| {
        line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
            .to_owned()
    };
    let usual: Vec<_> = sentences(&self::policy(), &merged())
        .lines()
        .map(words)
        .collect();
    let other: Vec<_> = sentences(policy, facts).lines().map(words).collect();
    let gone = usual
        .iter()
        .filter(|line| !other.contains(line))
        .map(|line| format!("- {line}"));
    let new = other
        .iter()
        .filter(|line| !usual.contains(line))
        .map(|line| format!("+ {line}"));
    gone.chain(new).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_merged_system() {
    insta::assert_snapshot!(sentences(&policy(), &merged()));
}

#[test]
fn limits_on_the_whole_box() {
    let said = |shown_at, memory| {
        let whole = WholeLimits { shown_at, memory };
        let request = Request { whole, ..request() };
        let plan = plan::build(&policy(), &merged(), &request).unwrap();
        let build = plan.build.iter().map(ToString::to_string);
        let all = build.chain(plan.inside.iter().map(ToString::to_string));
        all.filter(|line| line.contains("cgroup"))
            .collect::<Vec<_>>()
    };
    let counted = "without a cgroup: let System V's shared memory be counted";
    let first = "without a cgroup: be the first to be ended when the host runs out of memory";
    // A session that is kept may get its limits later.
    assert_eq!(said(None, false), [counted]);
    assert_eq!(said(None, true), [counted, first]);
    let folder = "make the folder /sys/fs/cgroup (mode 0755)";
    let shown = "show the box's own limits at /sys/fs/cgroup (read only), if it gets a cgroup";
    assert_eq!(
        said(Some("/sys/fs/cgroup"), true),
        [folder, shown, counted, first]
    );
}

#[test]
fn limits_that_were_asked_for_win_over_the_policys() {
    let what = Limit::OpenFiles;
    let limits = vec![CarriedLimit {
        what,
        value: 64,
        most: 64,
    }];
    let plan = plan::build(
        &policy(),
        &merged(),
        &Request {
            limits,
            ..request()
        },
    )
    .unwrap();
    assert_eq!(plan.open_files(), Some(64));
    let text = Sentences(&plan).to_string();
    assert_eq!(text.matches("limit open files to").count(), 1, "{text}");
    let plan = plan::build(&policy(), &merged(), &request()).unwrap();
    assert_eq!(plan.open_files(), Some(65536));
}

#[test]
fn an_unmerged_system() {
    let facts = Facts {
        system: folders(&["/usr", "/bin", "/sbin", "/lib", "/lib64"]),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn a_system_without_lib64() {
    let mut facts = merged();
    facts.system.pop();
    insta::assert_snapshot!(difference(&policy(), &facts), @"- make the link /lib64 to usr/lib64");
}

#[test]
fn started_by_root() {
    let facts = Facts {
        uid: 0,
        gid: 0,
        user: "root".to_owned(),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn an_old_landlock() {
    let facts = Facts {
        landlock_abi: 1,
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy(), &facts));
}

#[test]
fn no_landlock_is_an_error_until_it_is_excused() {
    let facts = Facts {
        landlock_abi: 0,
        ..merged()
    };
    let mut policy = policy();
    let refused = plan::build(&policy, &facts, &request()).unwrap_err();
    let missing = Layer::Landlock;
    assert!(matches!(&refused, PlanError::MissingLayer { layer, .. } if *layer == missing));
    assert!(refused.help().unwrap().contains("--allow-missing landlock"));
    policy.lock.allow_missing.insert(Layer::Landlock);
    insta::assert_snapshot!(difference(&policy, &facts));
}

#[test]
fn no_seccomp_notification_is_an_error_until_it_is_excused() {
    let facts = Facts {
        seccomp_notify: false,
        ..merged()
    };
    let mut policy = policy();
    let refused = plan::build(&policy, &facts, &request());
    let missing = Layer::Guard;
    assert!(matches!(refused, Err(PlanError::MissingLayer { layer, .. }) if layer == missing));
    policy.lock.allow_missing.insert(Layer::Guard);
    insta::assert_snapshot!(difference(&policy, &facts));
}

#[test]
fn nesting_and_the_hosts_network() {
    let mut policy = policy();
    policy.lock.nesting = true;
    policy.net.mode = NetMode::Host;
    let facts = Facts {
        resolver: "nameserver 192.0.2.1\n".to_owned(),
        ..merged()
    };
    insta::assert_snapshot!(difference(&policy, &facts));
}

/// The default with a list of hosts.
fn allowing(hosts: &[&str]) -> Policy {
    let mut policy = policy();
    policy.net.mode = NetMode::Allow;
    let rule = |host: &&str| Rule::new(HostPattern::parse(host).unwrap(), "--allow-host");
    policy.net.allow = hosts.iter().map(rule).collect();
    policy
}

#[test]
fn a_list_of_hosts() {
    let mut policy = allowing(&["github.com", "*.example.org:22,8443"]);
    let denied = HostPattern::parse_denied("gist.github.com").unwrap();
    policy.net.deny = vec![Rule::new(denied, "--deny-host")];
    policy.net.publish = vec![Publish::parse("8080:80").unwrap()];
    policy.net.host_ports = vec![HostPort::parse("5432").unwrap()];
    insta::assert_snapshot!(difference(&policy, &merged()));
    let plan = plan::build(&policy, &merged(), &request()).unwrap();
    let line = plan::one_line(&plan);
    let part = "; allow: 2 hosts, 1 published port, 1 port of the host; ";
    assert!(line.contains(part), "{line}");
    let egress = plan.egress.unwrap();
    // Those that programs can still reach by themselves where the kernel cannot redirect.
    assert_eq!(egress.low_ports, [22, 80, 443]);
    let written = |name: &str| {
        let content = plan.build.iter().find_map(|step| match step {
            BuildStep::File { at, content } if at.as_path() == Path::new(name) => Some(content),
            _ => None,
        });
        content.unwrap().as_str()
    };
    assert_eq!(
        written("/etc/resolv.conf"),
        "nameserver 127.0.0.1\nsearch .\noptions edns0 timeout:2 attempts:2\n"
    );
}

#[test]
fn a_list_of_hosts_by_proxy_alone() {
    let mut policy = allowing(&["github.com"]);
    policy.net.redirect = false;
    insta::assert_snapshot!(difference(&policy, &merged()));
}

#[test]
fn no_more_ports_are_opened_than_are_worth_it_and_the_usual_ones_first() {
    let policy = allowing(&["*:*"]);
    let plan = plan::build(&policy, &merged(), &request()).unwrap();
    let ports = plan.egress.unwrap().low_ports;
    assert_eq!(ports.len(), 64);
    assert!([22, 80, 443].iter().all(|port| ports.contains(port)));
    // The door of the DNS is there, and that of redirected connections.
    assert!(!ports.contains(&53) && !ports.contains(&1));
}

#[test]
fn a_published_port_takes_a_gateway_and_no_network() {
    let mut policy = policy();
    policy.net.publish = vec![Publish::parse("8080:80").unwrap()];
    insta::assert_snapshot!(difference(&policy, &merged()));
    policy.net.loopback = false;
    let refused = plan::build(&policy, &merged(), &request()).unwrap_err();
    assert!(
        refused.to_string().contains("loopback = false"),
        "{refused}"
    );
    assert!(refused.help().unwrap().contains("loopback = true"));
}

#[test]
fn programs_that_may_not_talk_to_each_other_still_reach_the_gateway() {
    let mut policy = allowing(&["github.com"]);
    policy.net.loopback = false;
    let said = sentences(&policy, &merged());
    assert!(said.contains("; no TCP port to listen on;"), "{said}");
    let old = Facts {
        landlock_abi: 3,
        ..merged()
    };
    let said = sentences(&policy, &old);
    assert!(said.contains("`loopback = false` does not hold"), "{said}");
}

#[test]
fn a_list_of_hosts_takes_a_network_of_its_own() {
    let mut policy = allowing(&["github.com"]);
    policy.lock.isolation = Isolation::Landlock;
    let refused = plan::build(&policy, &merged(), &request()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot use `--network allow` with `--isolation landlock`, because without a network \
         namespace nothing leads a program's connections to the gateway"
    );
    assert!(
        refused
            .help()
            .unwrap()
            .contains("leave `--isolation landlock` out")
    );
    let mut policy = self::policy();
    policy.net.mode = NetMode::Host;
    policy.net.host_ports = vec![HostPort::parse("5432").unwrap()];
    let refused = plan::build(&policy, &merged(), &request()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("`--host-port` with `--network host`"),
        "{refused}"
    );
}

#[test]
fn without_namespaces() {
    let mut policy = policy();
    policy.lock.isolation = Isolation::Landlock;
    policy.guard.enabled = false;
    insta::assert_snapshot!(sentences(&policy, &merged()));
}

#[test]
fn what_is_added_on_the_way_out_is_said_and_values_are_not() {
    let facts = merged();
    let mut policy = policy();
    policy.net.mode = NetMode::Allow;
    let read = |text: &str| SecretSpec::parse(text).unwrap();
    policy.net.secrets = vec![
        read("A=hunter2@a.example:X-Key"),
        read("B=file:/k@b.example"),
    ];
    policy.net.tls_audit = vec![Name::parse("a.example").unwrap()];
    policy.net.rate = Some(Rate(10 << 20));
    policy.net.upstream_proxy = Some(UpstreamChoice::parse("http://p.example:3128").unwrap());
    let plan = plan::build(&policy, &facts, &request()).unwrap();
    let said = Sentences(&plan).to_string();
    for part in [
        "add the secret A to requests to a.example as X-Key, outside",
        "add the secret B to requests to b.example, outside",
        "end TLS to a.example at the gateway",
        "through the proxy http://p.example:3128",
        "at most 10M bytes",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let json = serde_json::to_string(&plan).unwrap();
    assert!(json.contains("X-Key") && !json.contains("hunter2") && !said.contains("hunter2"));
}

#[test]
fn the_machines_registries_are_allowed_where_the_bundle_is() {
    let mut facts = merged();
    let mirror = HostPattern::parse("mirror.example:443").unwrap();
    facts.registries.rules = vec![Rule::new(mirror, "npm")];
    facts.registries.notes = vec!["registries: something was not read".to_owned()];
    let mut policy = policy();
    policy.net.mode = NetMode::Allow;
    let reaches = |policy: &Policy| {
        let plan = plan::build(policy, &facts, &request()).unwrap();
        assert!(plan.notes.contains(&facts.registries.notes[0]));
        let name = Name::parse("mirror.example").unwrap();
        plan.egress.unwrap().rules.knows(&name)
    };
    assert!(!reaches(&policy));
    policy.net.bundles = vec![BundleName::parse("registries").unwrap()];
    assert!(reaches(&policy));
}
