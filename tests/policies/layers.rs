//! Which layer wins, and which may not.

use std::path::Path;
use std::time::Duration;

use cowork_linux::policy::{Access, Cap, Key, NetMode, Origin, PolicyFile, Sources, resolve};

use crate::world::{World, flags, refusal, widening};

#[test]
fn without_files_the_default_holds() {
    let world = World::new();
    let resolved = world.plain().unwrap();
    assert_eq!(resolved.policy.name, "default");
    assert_eq!(resolved.policy.net.mode, NetMode::None);
    assert!(resolved.policy.guard.enabled && resolved.policy.guard.git);
    assert_eq!(resolved.policy.env.set["IS_SANDBOX"], "1");
    assert!(resolved.files.is_empty());
    assert_eq!(resolved, world.named("default").unwrap());
}

#[test]
fn nearer_layers_win_key_by_key() {
    let world = World::new();
    world.user("[net]\nmode = \"host\"\n[limits]\nprocesses = 300\n");
    world.project("[limits]\nprocesses = 200\n");
    let resolved = world
        .resolve(None, flags("[limits]\ntimeout = \"5m\"\n"))
        .unwrap();
    assert_eq!(resolved.policy.net.mode, NetMode::Host);
    assert!(resolved.policy.net.loopback);
    assert_eq!(resolved.policy.limits.processes, Some(200));
    assert_eq!(
        resolved.policy.limits.timeout,
        Some(Duration::from_secs(300))
    );
    assert_eq!(resolved.files.len(), 2);
    let from = |key| resolved.origins.of(key).cloned().collect::<Vec<_>>();
    assert_eq!(from(Key::Loopback), [Origin::BuiltIn("default")]);
    assert!(matches!(from(Key::NetMode)[..], [Origin::User(_)]));
    assert!(matches!(from(Key::Processes)[..], [Origin::Project(_)]));
    assert_eq!(from(Key::Timeout), [Origin::Flags]);
}

#[test]
fn a_policy_named_on_the_command_line_beats_the_user_s_file() {
    let world = World::new();
    world.user("[net]\nmode = \"host\"\n[env]\npass = [\"FOO\"]\n");
    let offline = world.named("offline").unwrap().policy;
    assert_eq!(offline.net.mode, NetMode::None);
    assert_eq!(offline.name, "offline");
    assert!(offline.env.pass.contains(&"FOO".to_owned()));
    assert_eq!(
        world.named("strict").unwrap().policy.net.mode,
        NetMode::None
    );
    assert_eq!(
        world.named("default").unwrap().policy.net.mode,
        NetMode::None
    );
    assert_eq!(world.policy().net.mode, NetMode::Host);
}

#[test]
fn a_file_extends_a_built_in() {
    let world = World::new();
    world.user("extends = \"strict\"\n[limits]\ntimeout = \"none\"\n");
    let policy = world.policy();
    assert!(!policy.net.loopback);
    assert_eq!(policy.limits.timeout, None);
    world.user("extends = \"stritc\"\n");
    assert!(refusal(world.plain()).contains("did you mean `strict`?"));
}

#[test]
fn a_misspelt_policy_is_guessed() {
    let world = World::new();
    let text = refusal(world.named("cluade"));
    assert!(text.contains("no policy called `cluade`"), "{text}");
    assert!(text.contains("did you mean `claude`?"), "{text}");
    assert!(refusal(world.named("podman")).contains("policy list"));
    assert!(refusal(world.named("/nosuch.toml")).contains("check the path"));
}

#[test]
fn an_unknown_key_is_shown_with_its_line() {
    let world = World::new();
    world.user("# mine\n[net]\nmodee = \"none\"\n");
    let text = refusal(world.plain());
    for part in ["policy.toml", "line 3", "modee", "^"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn paths_are_relative_to_the_file_and_variables_must_be_set() {
    let world = World::new();
    let file = world.write(
        "etc/p.toml",
        "[files]\nmounts = [\"src:w:ro\", \"~/x\"]\nvisible = [\".\"]",
    );
    let policy = world.named(file.to_str().unwrap()).unwrap().policy;
    assert_eq!(policy.name, "p");
    assert_eq!(policy.files.mounts[0].source, world.path("etc/src"));
    assert_eq!(policy.files.mounts[0].access, Access::Read);
    assert_eq!(policy.files.mounts[1].source, world.path("home/x"));
    assert_eq!(policy.files.visible, [world.path("etc")]);
    world.write("etc/p.toml", "[files]\nvisible = [\"${NOPE}/x\"]");
    let text = refusal(world.named(file.to_str().unwrap()));
    assert!(
        text.contains("files.visible") && text.contains("NOPE"),
        "{text}"
    );
}

#[test]
fn the_command_line_s_mounts_come_first() {
    let world = World::new();
    world.user("[files]\nmounts = [\"/usr/share/doc:ro\"]");
    let mut flags = PolicyFile::default();
    flags.files.mounts = Some(vec!["/tmp".into()]);
    flags.limits.processes = Some(Cap::None);
    let policy = world.resolve(None, flags).unwrap().policy;
    let sources: Vec<_> = policy
        .files
        .mounts
        .iter()
        .map(|m| m.source.as_path())
        .collect();
    assert_eq!(sources, [Path::new("/tmp"), Path::new("/usr/share/doc")]);
    assert_eq!(policy.limits.processes, None);
}

#[test]
fn an_empty_list_takes_everything_back() {
    let world = World::new();
    world.user("[files]\nmounts = [\"/tmp\"]\n[env]\npass = [\"FOO\"]\n");
    world.project("[files]\nmounts = []\n[env]\npass = []\n");
    let policy = world.policy();
    assert!(policy.files.mounts.is_empty());
    assert!(policy.env.pass.is_empty());
    world.project("[guard]\nnames = []\n");
    assert_eq!(widening(world.plain()), [Key::GuardNames]);
}

#[test]
fn an_untrusted_project_may_only_tighten() {
    let world = World::new();
    world.user("[net]\nmode = \"host\"\n");
    world.project(
        "extends = \"strict\"\n[guard]\nadd = [\"x\"]\n[files]\nread-only-workspace = true\n",
    );
    let policy = world.policy();
    assert_eq!(policy.net.mode, NetMode::None);
    assert!(policy.files.read_only_workspace);
    assert!(policy.guard.names.contains(&"x".to_owned()));
    world.user("");
    for (text, key) in [
        ("[net]\nmode = \"host\"", Key::NetMode),
        ("[net]\nmode = \"allow\"", Key::NetMode),
        ("[net]\nallow = [\"evil.example\"]", Key::Allow),
        ("[net]\nbundles = [\"github\"]", Key::Bundles),
        ("[net]\npublish = [\"8080:80\"]", Key::Publish),
        ("[net]\nhost-ports = [5432]", Key::HostPorts),
        (
            "[net]\nsecrets = [\"A=file:~/.ssh/id@evil.example\"]",
            Key::Secrets,
        ),
        ("[net]\ntls-audit = [\"a.example\"]", Key::TlsAudit),
        (
            "[net]\nupstream-proxy = \"http://evil.example:80\"",
            Key::UpstreamProxy,
        ),
        ("[net]\nconnections = 4096", Key::Connections),
        (
            "extends = \"claude\"\n[net]\nmode = \"none\"\nbundles = []\n[env]\npass = []",
            Key::EnvSet,
        ),
        ("[files]\nmounts = [\"/\"]", Key::Mounts),
        ("[files]\nvisible = [\"~/.ssh\"]", Key::Visible),
        ("[files]\ntmp-size = \"2G\"", Key::TmpSize),
        ("[guard]\nenabled = false", Key::GuardEnabled),
        ("[guard]\ngit = false", Key::GuardGit),
        ("[guard]\nlift = [\".envrc\"]", Key::GuardNames),
        ("[env]\npass = [\"AWS_SECRET_ACCESS_KEY\"]", Key::EnvPass),
        (
            "[env]\nset = { ANTHROPIC_BASE_URL = \"http://evil\" }",
            Key::EnvSet,
        ),
        ("[limits]\nopen-files = \"none\"", Key::OpenFiles),
        ("[limits]\nprocesses = 5000", Key::Processes),
        ("[lock]\nisolation = \"landlock\"", Key::Isolation),
        ("[lock]\nseccomp = \"nested\"", Key::Seccomp),
        ("[lock]\nnesting = true", Key::Nesting),
        ("[lock]\nallow-missing = [\"seccomp\"]", Key::AllowMissing),
    ] {
        let path = world.project(text);
        assert_eq!(widening(world.plain()), [key], "{text}");
        let words = refusal(world.plain());
        assert!(words.contains(key.name()), "{words}");
        assert!(
            words.contains(&format!("policy trust {}", path.display())),
            "{words}"
        );
    }
    world.user("[env]\ngit-identity = false\n[limits]\ntimeout = \"1h\"\n[net]\nloopback = false\n[files]\nread-only-workspace = true\n");
    for (text, key) in [
        ("[env]\ngit-identity = true", Key::GitIdentity),
        ("[limits]\ntimeout = \"2h\"", Key::Timeout),
        ("[limits]\ntimeout = \"none\"", Key::Timeout),
        ("[net]\nloopback = true", Key::Loopback),
        (
            "[files]\nread-only-workspace = false",
            Key::ReadOnlyWorkspace,
        ),
    ] {
        world.project(text);
        assert_eq!(widening(world.plain()), [key], "{text}");
    }
}

#[test]
fn lists_of_hosts_grow_and_who_said_a_host_is_kept() {
    let world = World::new();
    let user = "[net]\nmode = \"allow\"\nallow = [\"a.example\"]\ndeny = [\"x.example\"]\n\
                bundles = [\"github\"]\nrate = \"1M\"\n";
    world.user(user);
    let resolved = world
        .resolve(
            None,
            flags("[net]\nallow = [\"b.example:22\", \"A.example\"]\n"),
        )
        .unwrap();
    let net = &resolved.policy.net;
    let said: Vec<_> = net.allow.iter().map(|rule| rule.said_by.as_str()).collect();
    assert!(
        said[0].starts_with("allow a.example of user policy /") && said[0].ends_with("policy.toml"),
        "{said:?}"
    );
    assert_eq!(said[1..], ["--allow-host b.example:22"]);
    assert_eq!(net.bundles.len(), 1);
    assert_eq!(resolved.origins.of(Key::Allow).count(), 3);
    // A project may forbid more and allow less, and not the other way round.
    world.project("[net]\ndeny = [\"a.example:80\"]\nbundles = []\nrate = \"512K\"\n");
    let net = world.policy().net;
    assert_eq!((net.deny.len(), net.bundles.len()), (2, 0));
    world.project("[net]\nallow = [\"a.example:443\"]\n");
    assert_eq!(world.policy().net.allow.len(), 2);
    for (text, key) in [
        ("[net]\ndeny = []", Key::Deny),
        ("[net]\nrate = \"none\"", Key::Rate),
        ("[net]\nallow = [\"a.example:22\"]", Key::Allow),
    ] {
        world.project(text);
        assert_eq!(widening(world.plain()), [key], "{text}");
    }
    world.project("[net]\nallow = []\n");
    assert_eq!(world.policy().net.allow, []);
}

#[test]
fn offline_means_no_port_of_the_host_either() {
    let world = World::new();
    world.user("[net]\nmode = \"allow\"\npublish = [\"8080:80\"]\nhost-ports = [5432]\n");
    for name in ["offline", "strict", "default"] {
        let net = world.named(name).unwrap().policy.net;
        assert_eq!(net.mode, NetMode::None, "{name}");
        assert!(
            net.publish.is_empty() && net.host_ports.is_empty(),
            "{name}"
        );
    }
    let online = world.named("online").unwrap().policy;
    assert_eq!(
        (online.net.mode, online.name.as_str()),
        (NetMode::Allow, "online")
    );
    assert_eq!(online.net.bundles.len(), 3);
}

#[test]
fn the_environment_cannot_switch_anything_off() {
    let world = World::new();
    let home = world.env();
    let env = |name: &str| home(name).or_else(|| (!name.starts_with("XDG_")).then(|| "0".into()));
    let sources = Sources {
        profile: None,
        project_dir: None,
        flags: PolicyFile::default(),
        env: &env,
    };
    assert_eq!(resolve(&sources).unwrap(), world.plain().unwrap());
}
