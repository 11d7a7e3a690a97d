//! Programs as people use them, to a host that is allowed and to one that is not, with the proxies'
//! variables and without. Each is tried on the host first, where both hosts answer.

use std::path::PathBuf;
use std::process::Command;

use crate::ground::{Ground, SEARCH};
use crate::support::{Ran, project};
use crate::world::{WEB4, WEB6, world};

/// Makes an attempt with each host, with the variables and without them, and says how each went.
const ROUNDS: &str = r#"
rounds() {
    for host in "$1" "$2"; do
        echo "== $3 $host"
        timeout 60 sh client.sh "$host" 2>&1 < /dev/null
        echo "== ended $?"
    done
}
[ "$3" = once ] || rounds "$1" "$2" with
for name in $(env | sed -n 's/^\([A-Za-z_]*[Pp][Rr][Oo][Xx][Yy]\)=.*/\1/p'); do unset "$name"; done
rounds "$1" "$2" without
"#;

struct Client<'a> {
    /// The name in `COWORK_TEST_REQUIRE`, and what has to be there.
    feature: &'a str,
    programs: &'a [&'a str],
    /// A shell script; the host is its first word.
    script: &'a str,
    /// Part of what it says when it worked. `{host}` stands for the host.
    works: &'a str,
    /// One of these is part of what it says when it did not: through a proxy, and without one.
    refused: [&'a [&'a str]; 2],
}

/// What one attempt said, and how it ended.
#[derive(Debug)]
struct Attempt {
    said: String,
    code: i32,
}

fn attempts(ran: &Ran) -> Vec<Attempt> {
    let parts = ran.out.split("== ended ");
    let mut said: Vec<&str> = parts.collect();
    assert!(said.len() > 2, "out: {}\nerr: {}", ran.out, ran.err);
    let ends: Vec<i32> = said[1..]
        .iter()
        .map(|part| part.lines().next().unwrap().parse().unwrap())
        .collect();
    said.pop();
    let pairs = said.into_iter().zip(ends);
    pairs
        .map(|(said, code)| Attempt {
            said: said.to_owned(),
            code,
        })
        .collect()
}

impl Client<'_> {
    #[track_caller]
    fn is_served(&self) {
        let ground = Ground::new();
        self.is_served_on(&ground);
    }

    #[track_caller]
    fn is_served_on(&self, ground: &Ground) {
        if !has(self.feature, self.programs) {
            return;
        }
        std::fs::write(ground.work().join("client.sh"), self.script).unwrap();
        std::fs::write(ground.work().join("rounds.sh"), ROUNDS).unwrap();
        let fine = world().name_at("fine", &[WEB4, WEB6]);
        let other = world().name_at("other", &[WEB4, WEB6]);
        let words = ["sh", "rounds.sh", fine.as_str(), other.as_str()];

        // On the host there are no variables to be without.
        let control = Ran::of(ground.on_the_host().args(words).arg("once")).ok();
        let control = attempts(&control);
        assert_eq!(control.len(), 2);
        for (attempt, host) in control.iter().zip([&fine, &other]) {
            assert_eq!(attempt.code, 0, "without a box: {}", attempt.said);
            self.worked(attempt, host);
        }
        let asked = world().questions(&other).len();
        assert!(asked > 0, "the name server sees questions");

        let allowed = format!("{fine}:22,443,5432");
        let ran = ground.run(&["--allow-host", &allowed], &words).ok();
        let came = attempts(&ran);
        assert_eq!(came.len(), 4, "{ran:?}");
        for round in [0, 1] {
            let (fine_came, other_came) = (&came[round * 2], &came[round * 2 + 1]);
            assert_eq!(fine_came.code, 0, "{}", ran.out);
            self.worked(fine_came, &fine);
            // 124 is the end of patience; whoever is refused hears it at once.
            assert!(![0, 124].contains(&other_came.code), "{}", ran.out);
            let expected = self.refused[round];
            assert!(
                expected.iter().any(|part| other_came.said.contains(part)),
                "none of {expected:?} in: {}",
                other_came.said
            );
        }
        // Outside nobody was even asked where the other host is.
        assert_eq!(world().questions(&other).len(), asked);
    }

    #[track_caller]
    fn worked(&self, attempt: &Attempt, host: &str) {
        let works = self.works.replace("{host}", host);
        assert!(
            attempt.said.contains(&works),
            "no {works} in {}",
            attempt.said
        );
    }
}

/// Whether the host has these programs; what `COWORK_TEST_REQUIRE` lists has to be there.
#[allow(clippy::print_stderr)]
fn has(feature: &str, programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|name| find(name).is_none()) else {
        return true;
    };
    let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name == feature),
        "{missing} is missing, and COWORK_TEST_REQUIRE asks for {feature}"
    );
    eprintln!("SKIPPED: {missing} is missing (packaging/test-setup.sh installs it)");
    false
}

fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(SEARCH);
    let mut places = folders
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(name));
    places.find(|path| path.is_file())
}

const NO_NAME: &[&str] = &[
    "Name or service not known",
    "No address associated",
    "Could not resolve",
    "ENOTFOUND",
    "UnknownHostException",
    "no such host",
];

#[test]
fn curl() {
    Client {
        feature: "curl",
        programs: &["curl"],
        script: "curl -sS --cacert ca.pem https://$1/echo",
        works: "\"sni\": \"{host}\"",
        refused: [&["403"], &["Could not resolve host"]],
    }
    .is_served();
}

#[test]
fn wget() {
    Client {
        feature: "wget",
        programs: &["wget"],
        script: "wget -nv --tries=1 --ca-certificate=ca.pem -O - https://$1/echo",
        works: "\"sni\": \"{host}\"",
        refused: [
            &["tunneling failed: Forbidden"],
            &["unable to resolve host"],
        ],
    }
    .is_served();
}

#[test]
fn node_fetch() {
    Client {
        feature: "node",
        programs: &["node"],
        script: "NODE_EXTRA_CA_CERTS=ca.pem node -e '
            fetch(`https://${process.argv[1]}/echo`).then(answer => answer.text()).then(console.log, error => {
                console.log(error.cause ?? error); process.exit(1) })' $1",
        works: "\"sni\": \"{host}\"",
        refused: [&["ENOTFOUND", "403"], &["ENOTFOUND"]],
    }
    .is_served();
}

#[test]
fn node_https() {
    Client {
        feature: "node",
        programs: &["node"],
        script: "NODE_EXTRA_CA_CERTS=ca.pem node -e '
            const asked = require(`https`).get(`https://${process.argv[1]}/echo`, answer => answer.pipe(process.stdout))
            asked.on(`error`, error => { console.log(error); process.exit(1) })' $1",
        works: "\"sni\": \"{host}\"",
        refused: [&["ENOTFOUND", "403"], &["ENOTFOUND"]],
    }
    .is_served();
}

#[test]
fn python_urllib() {
    Client {
        feature: "python",
        programs: &["python3"],
        script: "SSL_CERT_FILE=ca.pem python3 -c '
import sys, urllib.request
print(urllib.request.urlopen(f\"https://{sys.argv[1]}/echo\").read())' $1",
        works: "\"sni\": \"{host}\"",
        refused: [&["403"], NO_NAME],
    }
    .is_served();
}

#[test]
fn python_requests() {
    if Command::new("/usr/bin/python3")
        .args(["-c", "import requests"])
        .status()
        .is_ok_and(|end| !end.success())
    {
        assert!(!has("requests", &["python3-requests"]));
        return;
    }
    Client {
        feature: "requests",
        programs: &["python3"],
        script: "REQUESTS_CA_BUNDLE=ca.pem /usr/bin/python3 -c '
import requests, sys
print(requests.get(f\"https://{sys.argv[1]}/echo\").text)' $1",
        works: "\"sni\": \"{host}\"",
        refused: [&["403"], NO_NAME],
    }
    .is_served();
}

#[test]
fn go() {
    let ground = Ground::new();
    if has("go", &["go"]) {
        let source = project().join("tests/egress/probes/fetch.go");
        let mut command = Command::new("go");
        command.env("PATH", SEARCH).args(["build", "-o"]);
        command.arg(ground.work().join("fetch")).arg(source);
        Ran::of(&mut command).ok();
    }
    Client {
        feature: "go",
        programs: &["go"],
        script: "SSL_CERT_FILE=ca.pem ./fetch $1",
        works: "\"sni\": \"{host}\"",
        refused: [&["Forbidden"], &["no such host"]],
    }
    .is_served_on(&ground);
}

#[test]
fn java() {
    let ground = Ground::new();
    if has("java", &["javac"]) {
        let source = project().join("tests/egress/probes/Fetch.java");
        let mut command = Command::new("javac");
        command.arg("-d").arg(ground.work()).arg(source);
        Ran::of(&mut command).ok();
    }
    Client {
        feature: "java",
        programs: &["javac", "java"],
        script: "java -XX:TieredStopAtLevel=1 -cp . Fetch $1 ca.pem",
        works: "\"sni\": \"{host}\"",
        refused: [&["UnknownHostException", "403"], &["UnknownHostException"]],
    }
    .is_served_on(&ground);
}

#[test]
fn git_over_https() {
    Client {
        feature: "git",
        programs: &["git"],
        script: "rm -rf /tmp/cloned.$$; git -c http.sslCAInfo=$PWD/ca.pem clone -q https://$1/git/project.git \
            /tmp/cloned.$$ && cat /tmp/cloned.$$/README; ended=$?; rm -rf /tmp/cloned.$$; exit $ended",
        works: "a project of the internet",
        refused: [&["403"], &["Could not resolve host"]],
    }
    .is_served();
}

#[test]
fn git_over_ssh() {
    let ground = Ground::new();
    if has("ssh", &["ssh", "dropbear"]) {
        let key = ground.work().join("key");
        std::fs::copy(world().ssh_key(), &key).unwrap();
    }
    Client {
        feature: "ssh",
        programs: &["ssh", "dropbear", "git"],
        script: "cp key /tmp/key.$$; chmod 600 /tmp/key.$$
            export GIT_SSH_COMMAND=\"ssh -i /tmp/key.$$ -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null\"
            git clone -q ssh://git@$1/~/project.git /tmp/cloned.$$ && cat /tmp/cloned.$$/README
            ended=$?; rm -rf /tmp/cloned.$$ /tmp/key.$$; exit $ended",
        works: "a project of the internet",
        refused: [&["Could not resolve hostname"], &["Could not resolve hostname"]],
    }
    .is_served_on(&ground);
}

#[test]
fn npm() {
    Client {
        feature: "node",
        programs: &["npm"],
        script: "mkdir /tmp/npm.$$ && cd /tmp/npm.$$ && npm install tiny-thing --registry=https://$1/npm/ \
                --cafile=$OLDPWD/ca.pem --cache=/tmp/npm.$$/cache --fetch-retries=0 --no-audit --no-fund \
                --no-update-notifier && node -p 'require(`tiny-thing`)'
            ended=$?; rm -rf /tmp/npm.$$; exit $ended",
        works: "a tiny thing of npm",
        refused: [&["403", "ENOTFOUND"], &["ENOTFOUND"]],
    }
    .is_served();
}

#[test]
fn pip() {
    Client {
        feature: "python",
        programs: &["pip3"],
        script: "/usr/bin/python3 -m pip install --no-deps --no-cache-dir --disable-pip-version-check --retries 0 \
                --cert ca.pem --target /tmp/pip.$$ --index-url https://$1/simple/ tiny-thing \
                && PYTHONPATH=/tmp/pip.$$ /usr/bin/python3 -c 'import tiny_thing; print(tiny_thing.WORD)'
            ended=$?; rm -rf /tmp/pip.$$; exit $ended",
        works: "a tiny thing of pip",
        // It keeps the reason to itself.
        refused: [&["No matching distribution"], &["No matching distribution"]],
    }
    .is_served();
}

#[test]
fn a_database_over_bare_tcp() {
    let ground = Ground::new();
    let query = project().join("tests/egress/probes/query.py");
    std::fs::copy(query, ground.work().join("query.py")).unwrap();
    Client {
        feature: "python",
        programs: &["python3"],
        script: "python3 query.py $1",
        works: "somebody asked select a thing",
        refused: [NO_NAME, NO_NAME],
    }
    .is_served_on(&ground);
}
