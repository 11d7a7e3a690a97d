//! Which hosts a session reaches (I5 to I7), in the world of networks that the tests of the gateway have.

use serde_json::{Value, json};

use crate::client::{App, Done};
use crate::ground::{Ground, fresh, with};
use crate::support::{Ran, binary};
use crate::world::{Canary, WEB4, world};

/// A helper on the host of that world.
pub(crate) fn in_the_world() -> Ground {
    in_the_world_with(&[])
}

pub(crate) fn in_the_world_with(flags: &[&str]) -> Ground {
    in_the_world_as(flags, &[])
}

fn in_the_world_as(flags: &[&str], env: &[(&str, &str)]) -> Ground {
    let mut ground = Ground::bare();
    let mut command = world().on_the_host(&ground.world.path(""));
    command.arg(binary()).args(["helper", "-socket"]);
    command.arg(ground.socket()).args(flags);
    ground.surround(&mut command);
    command.envs(env.iter().copied());
    ground.start_as(&mut command);
    ground.boots();
    ground
}

fn control(ground: &Ground, script: &str) -> Ran {
    let mut command = world().on_the_host(&ground.world.path(""));
    command.args(["bash", "-c", script]);
    ground.surround(&mut command);
    Ran::of(command.stdin(std::process::Stdio::null()))
}

#[track_caller]
fn allowing(ground: &Ground, app: &mut App, domains: Value, script: &str) -> Done {
    let id = format!("n{}", fresh());
    let mut params = ground.sh(&id, script);
    if !domains.is_null() {
        params = with(params, json!({"allowedDomains": domains}));
    }
    app.run(params)
}

#[test]
fn i5_the_listed_hosts_and_no_others() {
    let ground = in_the_world();
    let mut app = ground.app();
    let allowed = world().name_at("allowed", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    // Nobody else sends anything there.
    let bare = "93.184.217.71";
    let fetch = format!("curl -sS --max-time 20 http://{allowed}/echo");
    let said = allowing(&ground, &mut app, json!([allowed]), &fetch).ok();
    let seen: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(seen["target"], "/echo", "{seen}");

    let refused = format!("curl -sSi --max-time 20 http://{other}/echo");
    control(&ground, &refused).ok().says("/echo");
    let before = world().requests(&other).len();
    let asked = world().questions(&other).len();
    let said = allowing(&ground, &mut app, json!([allowed]), &refused).ok();
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    assert!(said.contains(&other), "{said}");
    assert!(said.to_lowercase().contains("allow"), "{said}");
    let tunnel = format!("curl -sS --max-time 20 https://{other}/echo");
    let done = allowing(&ground, &mut app, json!([allowed]), &tunnel);
    assert_eq!(done.code(), 56, "{done:?}");
    assert!(done.err.contains("403"), "{done:?}");

    let raw = format!(
        "import socket, errno
def tried(name, work):
    try:
        work()
        print(name, 'done')
    except (OSError, PermissionError) as error:
        print(name, 'refused')
def tcp():
    s = socket.create_connection(('{bare}', 7), 10)
    s.sendall(b'hello'); s.settimeout(10)
    if not s.recv(5): raise OSError
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    s.sendto(b'hello', ('{bare}', 7)); s.recv(5)
def icmp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    s.settimeout(2)
    s.sendto(bytes([8, 0, 0xf7, 0xff]) + bytes(4), ('{bare}', 0)); s.recv(5)
tried('tcp', tcp); tried('udp', udp); tried('icmp', icmp)
tried('dns', lambda: socket.getaddrinfo('{other}', 80))"
    );
    let program = json!({"command": "python3", "args": ["-c", raw], "allowedDomains": [allowed]});
    let said = app.run(with(ground.sh("raw", ""), program)).ok();
    assert_eq!(
        said,
        "tcp refused\nudp refused\nicmp refused\ndns refused\n"
    );
    assert_eq!(world().packets(bare), [""; 0]);
    assert_eq!(world().requests(&other).len(), before);
    assert_eq!(world().questions(&other).len(), asked);

    // A list counts from the next program on, in the session that runs.
    let fetch = format!("curl -sS --max-time 20 http://{other}/echo");
    allowing(&ground, &mut app, json!([other]), &fetch).ok();
    let refused = format!("curl -sSi --max-time 20 http://{allowed}/echo");
    let said = allowing(&ground, &mut app, json!([other]), &refused).ok();
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    let nobody = allowing(&ground, &mut app, json!([]), &refused).ok();
    assert!(nobody.starts_with("HTTP/1.1 403"), "{nobody}");
}

#[test]
fn i6_all_hosts_or_none_listed() {
    let ground = in_the_world();
    let mut app = ground.app();
    let name = world().name_at("any", &[WEB4]);
    let fetch = format!(
        "curl -sS --max-time 20 http://{name}/echo && curl -sS --max-time 20 https://{name}/echo"
    );
    for domains in [json!(["*"]), json!(null), json!(["x.test", "*"])] {
        let said = allowing(&ground, &mut app, domains.clone(), &fetch).ok();
        assert_eq!(said.matches("\"/echo\"").count(), 2, "{domains}: {said}");
    }
    // Programs that know no proxy reach them too.
    let plain = format!(
        "env -u http_proxy -u HTTP_PROXY curl -sS --noproxy '*' --max-time 20 http://{name}/echo"
    );
    let said = allowing(&ground, &mut app, json!(["*"]), &plain).ok();
    assert!(said.contains("/echo"), "{said}");
    // But not what listens on this computer for itself.
    let canary = Canary::on_the_host("127.0.0.1");
    let knock = format!(
        "curl -sS --max-time 10 http://127.0.0.1:{0}/; curl -sS --noproxy '*' --max-time 10 http://127.0.0.1:{0}/; true",
        canary.port
    );
    control(&ground, &knock);
    let before = canary.visits();
    assert!(before > 0, "the control reaches it");
    let said = allowing(&ground, &mut app, json!(["*"]), &knock).ok();
    assert!(!said.contains("canary"), "{said}");
    assert_eq!(canary.visits(), before);
}

#[test]
fn i7_addresses_that_are_nobodys_business() {
    let ground = in_the_world();
    let mut app = ground.app();
    let canaries = [
        Canary::on_the_host("127.0.0.1"),
        Canary::on_the_host("::1"),
        Canary::beyond("169.254.169.254"),
        Canary::beyond("10.0.0.1"),
    ];
    let mut script = String::new();
    let mut names = Vec::new();
    for canary in &canaries {
        let name = world().name_at("private", &[&canary.address]);
        let host = match canary.address.contains(':') {
            true => format!("[{}]", canary.address),
            false => canary.address.clone(),
        };
        for host in [&host, &name] {
            script += &format!(
                "curl -sS --max-time 10 ${{http_proxy:+--noproxy ''}} http://{host}:{0}/; \
                 curl -sS --max-time 10 ${{http_proxy:+--noproxy '' --proxy $http_proxy}} -p http://{host}:{0}/; ",
                canary.port
            );
        }
        names.push(format!("{name}:{}", canary.port));
        names.push(name);
    }
    script += "true";
    control(&ground, &script);
    let before: Vec<usize> = canaries.iter().map(Canary::visits).collect();
    assert!(before.iter().all(|visits| *visits > 0), "{before:?}");
    names.push("*.names.test".into());
    for domains in [json!(names), json!(["*"])] {
        let done = allowing(&ground, &mut app, domains.clone(), &script).ok();
        assert!(!done.contains("canary"), "{domains}: {done}");
        let after: Vec<usize> = canaries.iter().map(Canary::visits).collect();
        assert_eq!(after, before, "{domains}");
    }
}

#[test]
fn the_way_out_is_the_computers_own() {
    let name = world().name_at("far", &[WEB4]);
    let fetch = format!("curl -sS --max-time 20 http://{name}/echo");
    let proxy = format!("http://127.0.0.1:{}", world().trusting_proxy());
    // Nobody listens there.
    let nobody = "http://127.0.0.1:1";
    for (proxy, is_reached) in [(proxy.as_str(), true), (nobody, false)] {
        let ground = in_the_world_as(&[], &[("HTTPS_PROXY", proxy)]);
        let mut app = ground.app();
        for domains in [json!([name]), json!(["*"])] {
            let done = allowing(&ground, &mut app, domains, &fetch);
            let is_there = done.out.contains("\"/echo\"");
            assert_eq!(is_there, is_reached, "{proxy}: {done:?}");
            assert!(!done.out.contains(nobody), "{done:?}");
        }
    }
}
