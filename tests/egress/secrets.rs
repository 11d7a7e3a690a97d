//! Values that are added outside: the host they are for gets them, and nothing inside has them.

use serde_json::{Value, json};

use crate::ground::Ground;
use crate::support::Ran;
use crate::world::{WEB4, fresh, world};

/// A value that nothing else in the world contains.
pub(crate) fn secret_value() -> String {
    format!(
        "sk-{}-{:08x}-do-not-tell",
        std::process::id(),
        fresh() * 2_654_435
    )
}

fn headers_of(told: &Value, name: &str) -> Vec<String> {
    let all = told["headers"].as_array().unwrap().iter();
    let named = all.filter(|pair| pair[0].as_str().unwrap().eq_ignore_ascii_case(name));
    named
        .map(|pair| pair[1].as_str().unwrap().to_owned())
        .collect()
}

fn running(ground: &Ground, flags: &[String], value: &str, script: &str) -> Ran {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut command = ground.running(&flags);
    command.env("REAL", value).args(["sh", "-c", script]);
    Ran::of(&mut command)
}

/// `--secret TOKEN=env:REAL@HOST[:HEADER]`, with TLS to the host ended outside.
fn flags_for(host: &str, header: &str) -> Vec<String> {
    let secret = format!("TOKEN=env:REAL@{host}{header}");
    [
        "--allow-host",
        "*.names.test",
        "--secret",
        &secret,
        "--tls-audit",
        host,
    ]
    .map(str::to_owned)
    .to_vec()
}

#[test]
fn a_header_is_set_for_one_host_and_no_other() {
    let ground = Ground::new();
    let value = secret_value();
    let fine = world().name_at("fine", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    // With what the box itself offers for trust; through the proxy and without it.
    let script = format!(
        "for way in '' '*'; do
            curl -sS --noproxy \"$way\" -o /dev/null https://{fine}/echo
            curl -sS --noproxy \"$way\" -o /dev/null -H \"X-Token: $TOKEN\" https://{fine}/echo
            curl -sS --noproxy \"$way\" -o /dev/null -H \"X-Token: $TOKEN\" https://{other}/echo
        done
        echo inside $TOKEN; echo real $REAL"
    );
    let flags = flags_for(&fine, ":X-Token");
    let ran = running(&ground, &flags, &value, &script).ok();
    assert!(
        ran.out.contains("inside ") && ran.out.ends_with("real\n"),
        "{ran:?}"
    );
    assert!(
        !ran.out.contains(&value) && !ran.err.contains(&value),
        "{ran:?}"
    );
    let seen = world().requests(&fine);
    assert_eq!(seen.len(), 4);
    for seen in &seen {
        assert_eq!(headers_of(seen, "x-token"), [value.as_str()], "{seen}");
        assert_eq!(seen["sni"], fine.as_str());
    }
    let elsewhere = world().requests(&other);
    assert_eq!(elsewhere.len(), 2);
    for seen in &elsewhere {
        assert!(!seen.to_string().contains(&value), "{seen}");
    }
}

#[test]
fn a_stand_in_is_replaced_wherever_a_header_has_it() {
    let ground = Ground::new();
    let value = secret_value();
    let fine = world().name_at("fine", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let script = format!(
        "curl -sS -o /dev/null -H \"Authorization: Bearer $TOKEN\" https://{fine}/echo
        curl -sS -o /dev/null -u \"somebody:$TOKEN\" https://{fine}/echo
        curl -sS -o /dev/null https://{fine}/echo
        curl -sS -o /dev/null -H \"Authorization: Bearer $TOKEN\" https://{other}/echo; echo $TOKEN"
    );
    let ran = running(&ground, &flags_for(&fine, ""), &value, &script).ok();
    let stand_in = ran.out.trim().to_owned();
    assert!(
        !stand_in.is_empty() && !stand_in.contains(&value),
        "{ran:?}"
    );
    let seen = world().requests(&fine);
    let sent: Vec<_> = seen
        .iter()
        .map(|seen| headers_of(seen, "authorization"))
        .collect();
    assert_eq!(sent.len(), 3, "{seen:?}");
    assert_eq!(sent[0], [format!("Bearer {value}")]);
    let basic = sent[1][0].strip_prefix("Basic ").unwrap().to_owned();
    let basic = ground
        .control(&format!("echo {basic} | base64 -d"))
        .ok()
        .out;
    assert_eq!(basic, format!("somebody:{value}"));
    assert_eq!(sent[2], Vec::<String>::new());
    let elsewhere = world().requests(&other);
    assert_eq!(
        headers_of(&elsewhere[0], "authorization"),
        [format!("Bearer {stand_in}")]
    );
}

/// A secret for a host is not for whoever listens on the way there.
#[test]
fn a_secret_does_not_go_where_it_could_be_read() {
    let ground = Ground::new();
    let value = secret_value();
    let fine = world().name_at("fine", &[WEB4]);
    let script = format!(
        "for way in '' '*'; do curl -sS --noproxy \"$way\" -H \"X-Token: $TOKEN\" -o /dev/null http://{fine}/echo; done"
    );
    for header in ["", ":X-Token"] {
        running(&ground, &flags_for(&fine, header), &value, &script).ok();
    }
    let seen = world().requests(&fine);
    assert_eq!(seen.len(), 4);
    assert!(
        seen.iter().all(|seen| !seen.to_string().contains(&value)),
        "{seen:?}"
    );
}

/// What is to be forgotten is looked for in all of the first process's memory, however that lies.
#[test]
fn a_secret_keeps_no_program_from_starting() {
    let ground = Ground::new();
    const TOKEN: &str = "CLAUDE_CODE_OAUTH_TOKEN";
    let secret = format!("{TOKEN}@api.anthropic.com");
    for size in (0..2_000).step_by(250) {
        let padding = format!("PADDING={}", "x".repeat(size));
        let flags = [
            "--profile",
            "cowork",
            "--env",
            &padding,
            "--secret",
            &secret,
        ];
        let host = ["--allow-host", "api.anthropic.com:443"];
        let mut command = ground.running(&[&flags[..], &host].concat());
        command.env(TOKEN, secret_value()).arg("true");
        Ran::of(&mut command).ok();
    }
}

/// Only the host that was named has its TLS ended; others get theirs from end to end.
#[test]
fn tls_of_other_hosts_is_not_touched() {
    let ground = Ground::new();
    let audited = world().name_at("audited", &[WEB4]);
    let other = world().name_at("other", &[WEB4]);
    let script = format!(
        "issuer() {{ openssl s_client -connect $1:443 -servername $1 < /dev/null 2>/dev/null | grep '^issuer'; }}
        issuer {audited}; issuer {other}"
    );
    let flags = [
        "--allow-host",
        "*.names.test",
        "--tls-audit",
        audited.as_str(),
    ];
    let ran = ground.sh(&flags, &script).ok();
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(!lines[0].contains("The tests' own authority"), "{ran:?}");
    assert!(lines[1].contains("The tests' own authority"), "{ran:?}");
    // The gateway is as strict with certificates as the programs it stands in for.
    let elsewhere = "stranger.exfil.example";
    world().put(elsewhere, json!({"answers": {"A": [[WEB4]]}}));
    let flags = ["--allow-host", elsewhere, "--tls-audit", elsewhere];
    let ran = ground.sh(&flags, &format!("curl -sS -i https://{elsewhere}/echo"));
    assert!(
        !ran.out
            .contains(" 200 OK\r\nContent-Type: application/json"),
        "{ran:?}"
    );
    assert!(world().requests(elsewhere).is_empty());
}

#[test]
fn a_secret_is_in_no_file_no_variable_and_no_memory_of_the_box() {
    for source in ["env", "file", "said"] {
        stays_outside(source);
    }
}

fn stays_outside(source: &str) {
    let ground = Ground::new();
    let value = secret_value();
    let fine = world().name_at("fine", &[WEB4]);
    let file = ground.scratch.write("key", &format!("{value}\n"));
    let from = match source {
        "env" => "env:REAL".to_owned(),
        "file" => format!("file:{}", file.display()),
        _ => value.clone(),
    };
    let secret = format!("TOKEN={from}@{fine}:X-Token");
    let mut command = ground.cowork();
    command
        .args([
            "run",
            "-d",
            "-q",
            "--network",
            "allow",
            "--allow-host",
            &fine,
        ])
        .args(["--secret", &secret, "--tls-audit", &fine])
        .arg("--mount")
        .arg(ground.work())
        .args(["--", "sh", "-c"])
        .arg(format!(
            "curl -sS https://{fine}/hold > /dev/null &
            while :; do curl -sS -o /dev/null https://{fine}/echo; touch asked; sleep 1; done"
        ));
    if source == "env" {
        command.env("REAL", &value);
    }
    let id = Ran::of(&mut command).ok().out.trim().to_owned();
    ground.waits_for(&ground.work().join("asked"));
    let stand_in = ground
        .exec(&id, &["sh", "-c", "echo $TOKEN"])
        .ok()
        .out
        .trim()
        .to_owned();
    assert!(stand_in.len() >= 8, "{stand_in}");
    let seen = world().requests(&fine);
    assert!(
        seen.iter()
            .all(|seen| headers_of(seen, "x-token") == [value.as_str()]),
        "{seen:?}"
    );

    ground.holds_no_secret(&id, &value, &stand_in);
    // The same look at the gateway finds it: the eyes are good.
    let gateway = ground.gateway(&id);
    let looked = world().host(&json!({"ask": "scan", "pids": [gateway], "needles": [value]}));
    assert_ne!(looked["found"][&value], json!([]), "{looked}");
}

impl Ground {
    /// Looks for a secret in every process and file of a box, where its stand-in is.
    #[track_caller]
    pub(crate) fn holds_no_secret(&self, id: &str, value: &str, stand_in: &str) {
        let pids = self.processes_of(id);
        assert!(pids.len() >= 2, "{pids:?}");
        let looked =
            world().host(&json!({"ask": "scan", "pids": pids, "needles": [value, stand_in]}));
        assert_eq!(looked["found"][value], json!([]), "{looked}");
        assert_ne!(
            looked["found"][stand_in],
            json!([]),
            "the look finds what is there: {looked}"
        );
        // The value is spelled in two parts, so that the search does not find itself.
        let (one, two) = value.split_at(value.len() / 2);
        let search = "import os, sys
value = (sys.argv[1] + sys.argv[2]).encode()
found = [name for name in os.environ.values() if value.decode() in name]
for top in ['/sessions', '/tmp', '/run', '/etc', '/dev/shm', '/workspace/.']:
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            try:
                if os.path.isfile(path) and os.path.getsize(path) < 1 << 24 and value in open(path, 'rb').read():
                    found.append(path)
            except OSError:
                pass
for pid in filter(str.isdigit, os.listdir('/proc')):
    for part in ['environ', 'cmdline']:
        try:
            if value in open(f'/proc/{pid}/{part}', 'rb').read(): found.append(pid + part)
        except OSError:
            pass
print(found)";
        let ran = self.exec(id, &["python3", "-c", search, one, two]).ok();
        assert_eq!(ran.out, "[]\n");
        // What is kept of the session on the host's disk has it not, either.
        let kept = self.scratch.path("state");
        let ran = self.control(&format!(
            "chmod -R u+rwX {0} 2>/dev/null; grep -rlF -- '{value}' {0}",
            kept.display()
        ));
        assert_eq!(ran.out, "", "{ran:?}");
    }
}
