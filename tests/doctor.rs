//! `doctor` on this host as it is, and on this host made worse.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use support::{Ran, World};

const ROWS: [&str; 15] = [
    "kernel",
    "user namespaces",
    "private /proc",
    "mount API",
    "Landlock",
    "seccomp",
    "keyring",
    "redirection",
    "overlay",
    "idmapped mounts",
    "cgroup v2",
    "state directory",
    "sub-ids",
    "policy",
    "the box",
];

/// Loads a filter that answers some calls itself, then becomes the rest of its command line.
/// `A` in the rules below is the first argument's lower half.
const WRAPPER: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(e) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (e))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define CALL(nr, e) LOAD(nr_), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), ANSWER(e)
#define nr_ nr
#define NEWUSER 0x10000000
#define WITH_NEWUSER(nr, e) LOAD(nr_), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3), \
    LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, NEWUSER, 0, 1), ANSWER(e)
static struct sock_filter docker[] = {
    CALL(SYS_clone3, ENOSYS), WITH_NEWUSER(SYS_clone, EPERM), WITH_NEWUSER(SYS_unshare, EPERM), ALLOW };
static struct sock_filter plain[] = {
    CALL(SYS_clone3, EPERM), WITH_NEWUSER(SYS_clone, EPERM), WITH_NEWUSER(SYS_unshare, EPERM), ALLOW };
static struct sock_filter landlock[] = { CALL(444, ENOSYS), ALLOW };
static struct sock_filter keyring[] = { CALL(SYS_keyctl, EPERM), ALLOW };
static struct sock_filter netfilter[] = {
    LOAD(nr_), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
    LOAD(args[2]), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 12, 0, 1), ANSWER(EPROTONOSUPPORT), ALLOW };
static struct sock_filter mounts[] = { CALL(442, ENOSYS), ALLOW };
#define USE(name) if (!strcmp(argv[1], #name)) \
    program = (struct sock_fprog){ sizeof name / sizeof *name, name }
int main(int argc, char **argv) {
    struct sock_fprog program = { 0 };
    USE(docker); USE(plain); USE(landlock); USE(keyring); USE(netfilter); USE(mounts);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program)) {
        perror("filter");
        return 99;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 98;
}
"#;

struct Doctor {
    world: World,
}

impl Doctor {
    fn new() -> Self {
        Self {
            world: World::new(),
        }
    }

    /// `doctor ARGS` as the last words of another command, in this test's world.
    fn under(&self, before: &[&Path], args: &[&str]) -> Ran {
        let mut plain = self.world.cowork();
        let Some((first, rest)) = before.split_first() else {
            return Ran::of(plain.arg("doctor").args(args));
        };
        let mut command = Command::new(first);
        command.args(rest).arg(support::binary()).arg("doctor");
        command.args(args).env_clear();
        for (name, value) in plain.get_envs() {
            command.env(name, value.unwrap());
        }
        Ran::of(&mut command)
    }

    fn behind_filter(&self, filter: &str, args: &[&str]) -> Ran {
        let wrapper = support::compile(&self.world, "filtered", WRAPPER);
        self.under(&[&wrapper, Path::new(filter)], args)
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

fn row(all: &Value, name: &str) -> Value {
    let rows = all["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["name"] == name);
    found
        .unwrap_or_else(|| panic!("no row {name}: {all}"))
        .clone()
}

#[track_caller]
fn has(row: &Value, part: &str, text: &str) {
    let part = match part {
        "remedy" => &row["remedy"]["say"],
        _ => &row[part],
    };
    assert!(
        part.as_str().unwrap_or("").contains(text),
        "no `{text}` in {row}"
    );
}

/// Every file below a folder, with its size: what a run left or changed.
fn tree(at: &Path) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        all.push((path.clone(), metadata.len()));
        if metadata.is_dir() {
            all.extend(tree(&path));
        }
    }
    all.sort();
    all
}

#[test]
fn this_host_can_run_boxes() {
    let doctor = Doctor::new();
    let ran = doctor.under(&[], &[]).ok();
    assert!(ran.out.ends_with("\n`run` works\n"), "{}", ran.out);
    assert!(!ran.out.contains('\x1b'), "colours without a terminal");
    assert_eq!(ran.err, "");
}

#[test]
fn json_has_every_row_once_with_its_parts() {
    let ran = Doctor::new().under(&[], &["--json"]).ok();
    let all = json(&ran);
    assert_eq!(all["works"], true);
    assert!(all["because"].is_null());
    let names: Vec<&str> = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ROWS);
    for row in all["rows"].as_array().unwrap() {
        let state = row["state"].as_str().unwrap();
        assert!(["good", "weaker", "info"].contains(&state), "{row}");
        assert!(!row["found"].as_str().unwrap().is_empty(), "{row}");
        assert!(!row["means"].as_str().unwrap().is_empty(), "{row}");
    }
}

#[test]
fn a_real_box_is_measured_from_inside() {
    let all = json(&Doctor::new().under(&[], &["--json"]).ok());
    let measured = row(&all, "the box");
    assert_eq!(measured["state"], "good");
    has(
        &measured,
        "means",
        "7 namespaces of its own, Landlock, seccomp, no capabilities",
    );
}

#[test]
fn nothing_is_left_behind() {
    let doctor = Doctor::new();
    let seen = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let [home, state] = ["home", "state"].map(|name| tree(&doctor.world.path(name)));
        (mounts, home, state)
    };
    // The first box makes the folders that every later one uses.
    doctor.under(&[], &[]).ok();
    let before = seen();
    let sessions = std::fs::read_dir(doctor.world.path("state/cowork-linux/sessions"));
    assert_eq!(sessions.map_or(0, |list| list.count()), 0);
    doctor.under(&[], &["--fix"]).ok();
    assert_eq!(before, seen());
}

#[test]
fn a_container_that_refuses_user_namespaces_is_named_with_the_remedy() {
    for filter in ["docker", "plain"] {
        let doctor = Doctor::new();
        let ran = doctor.behind_filter(filter, &["--json"]).failed_with(1);
        let all = json(&ran);
        assert_eq!(all["works"], false);
        let because = all["because"].as_str().unwrap();
        assert!(because.starts_with("user namespaces: blocked"), "{because}");
        let blocked = row(&all, "user namespaces");
        assert_eq!(blocked["state"], "missing");
        has(&blocked, "found", "seccomp filter");
        has(&blocked, "found", "refuses clone3");
        has(&blocked, "remedy", "--isolation landlock");
        has(
            &row(&all, "seccomp"),
            "found",
            "a filter is around this shell already",
        );
        assert_eq!(row(&all, "overlay")["found"], "not tried");
        let table = doctor.behind_filter(filter, &[]).failed_with(1);
        assert!(
            table
                .out
                .contains("`run` does not work because of user namespaces: blocked")
        );
    }
}

#[test]
fn the_weaker_way_counts_when_the_policy_asks_for_it() {
    let doctor = Doctor::new();
    doctor.world.write(
        "home/.config/cowork-linux/policy.toml",
        "[lock]\nisolation = \"landlock\"\n",
    );
    let run = Ran::of(doctor.world.cowork().args(["run", "-q", "--", "true"]));
    let ran = doctor.behind_filter("docker", &["--json"]);
    let all = json(&ran);
    assert_eq!(row(&all, "user namespaces")["state"], "weaker");
    let ran = doctor.under(&[], &["--json"]);
    assert_eq!(ran.code == 0, run.code == 0, "{ran:?} {run:?}");
}

#[test]
fn missing_landlock_is_named() {
    let ran = Doctor::new()
        .behind_filter("landlock", &["--json"])
        .failed_with(1);
    let all = json(&ran);
    let missing = row(&all, "Landlock");
    assert_eq!(missing["state"], "missing");
    has(&missing, "found", "none (ENOSYS)");
    has(&missing, "remedy", "--allow-missing landlock");
    assert!(all["because"].as_str().unwrap().starts_with("Landlock: "));
}

#[test]
fn a_kernel_that_cannot_redirect_is_named_and_run_works_all_the_same() {
    let doctor = Doctor::new();
    let usual = json(&doctor.under(&[], &["--json"]).ok());
    assert_eq!(row(&usual, "redirection")["state"], "good", "{usual}");
    let all = json(&doctor.behind_filter("netfilter", &["--json"]).ok());
    let row = row(&all, "redirection");
    assert_eq!(row["state"], "weaker");
    has(&row, "found", "nftables refused: Protocol not supported");
    has(&row, "means", "programs that know a proxy");
    has(&row, "remedy", "modprobe");
    assert_eq!(all["works"], true);
}

#[test]
fn a_refused_keyring_and_a_missing_mount_call_are_named() {
    let all = json(
        &Doctor::new()
            .behind_filter("keyring", &["--json"])
            .failed_with(1),
    );
    has(&row(&all, "keyring"), "found", "Operation not permitted");
    has(&row(&all, "keyring"), "remedy", "--allow-missing keyring");
    let all = json(
        &Doctor::new()
            .behind_filter("mounts", &["--json"])
            .failed_with(1),
    );
    has(&row(&all, "mount API"), "found", "without mount_setattr");
}

#[test]
fn a_ceiling_of_no_user_namespaces_is_named_with_the_line_to_write() {
    let doctor = Doctor::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let before = ["unshare", "-Ur", "sh", "-c", script, "sh"].map(Path::new);
    let all = json(&doctor.under(&before, &["--json"]).failed_with(1));
    let blocked = row(&all, "user namespaces");
    assert_eq!(blocked["found"], "blocked: user.max_user_namespaces is 0");
    let file = &blocked["remedy"]["file"];
    assert_eq!(file["content"], "user.max_user_namespaces = 15000\n");
    let fix = doctor.under(&before, &["--fix"]).failed_with(1);
    let path = "/etc/sysctl.d/60-cowork-linux-user-max_user_namespaces.conf";
    let fix = fix.says(&format!("sudo tee {path} >/dev/null <<'END'\n"));
    fix.says("user.max_user_namespaces = 15000\nEND\n")
        .says(&format!("sudo sysctl -p {path}\n"))
        .says("# Nothing has been changed");
    assert!(!Path::new(path).exists());
}

#[test]
fn a_covered_proc_is_named() {
    let doctor = Doctor::new();
    let script = "mount --bind /dev/null /proc/version && exec \"$@\"";
    let before = ["unshare", "-Urm", "sh", "-c", script, "sh"].map(Path::new);
    let all = json(&doctor.under(&before, &["--json"]).failed_with(1));
    let covered = row(&all, "private /proc");
    assert_eq!(covered["state"], "missing");
    has(&covered, "found", "own /proc are covered");
    has(&covered, "remedy", "--security-opt");
    assert_eq!(row(&all, "user namespaces")["state"], "good");
}

#[test]
fn what_is_wrong_with_the_state_directory_or_the_policy_is_said() {
    let doctor = Doctor::new();
    doctor
        .world
        .write("state/cowork-linux", "a file in the way");
    let all = json(&doctor.under(&[], &["--json"]).failed_with(1));
    has(&row(&all, "state directory"), "found", "is not a folder");
    assert_eq!(row(&all, "the box")["state"], "missing");
    let doctor = Doctor::new();
    doctor.world.write(
        "home/.config/cowork-linux/policy.toml",
        "[lock]\nno-such = 1\n",
    );
    let all = json(&doctor.under(&[], &["--json"]).failed_with(1));
    assert_eq!(row(&all, "policy")["state"], "missing", "{all}");
}

#[test]
fn an_outer_filter_that_is_harmless_does_not_hide_our_own() {
    // Mode 2 is inherited: only the count tells that the box added its own.
    let world = World::new();
    let doctor = Doctor { world };
    let wrapper = WRAPPER.replace("CALL(SYS_keyctl, EPERM), ", "");
    let wrapper = support::compile(&doctor.world, "filtered", &wrapper);
    let ran = doctor
        .under(&[&wrapper, Path::new("keyring")], &["--json"])
        .ok();
    assert_eq!(row(&json(&ran), "the box")["state"], "good");
}

#[test]
fn the_packaged_profile_is_the_one_that_is_printed() {
    let profile = support::project().join("packaging/apparmor/cowork-linux");
    let profile = std::fs::read_to_string(profile).unwrap();
    let line = "profile cowork-linux /usr/bin/cowork-linux flags=(unconfined) {\n  userns,\n";
    assert!(profile.contains("abi <abi/4.0>,\n") && profile.contains(line));
}

const DESKTOP_ROWS: [&str; 12] = [
    "app",
    "environment file",
    "helper file",
    "runtime directory",
    "helper",
    "user namespaces",
    "the box",
    "file names",
    "managed settings",
    "app's own gate",
    "device registration",
    "host loop",
];

/// Answers every call on one connection as a helper would that has been started.
fn serve_once(listener: std::os::unix::net::UnixListener) {
    use std::io::{Read, Write};
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = [0; 4];
    while stream.read_exact(&mut head).is_ok() {
        let mut body = vec![0; u32::from_be_bytes(head) as usize];
        stream.read_exact(&mut body).unwrap();
        let call: Value = serde_json::from_slice(&body).unwrap();
        let result = serde_json::json!({ "running": true, "connected": true });
        let answer = serde_json::json!({ "success": true, "result": result, "id": call["id"] });
        let answer = answer.to_string();
        let length = (answer.len() as u32).to_be_bytes();
        stream
            .write_all(&[&length, answer.as_bytes()].concat())
            .unwrap();
    }
}

#[test]
fn every_step_between_the_app_and_its_boxes_is_looked_at() {
    let world = World::new();
    let run = world.path("run");
    std::fs::create_dir(&run).unwrap();
    let mode =
        |mode| std::fs::set_permissions(&run, std::os::unix::fs::PermissionsExt::from_mode(mode));
    mode(0o700).unwrap();
    let look = || {
        let mut command = world.cowork();
        let ran = Ran::of(
            command
                .args(["doctor", "--desktop", "--json"])
                .env("XDG_RUNTIME_DIR", &run),
        );
        let all = json(&ran);
        assert_eq!(ran.code == 0, all["works"] == true, "{ran:?}");
        all
    };
    let all = look();
    let names: Vec<_> = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].clone())
        .collect();
    assert_eq!(names, DESKTOP_ROWS);
    for row in all["rows"].as_array().unwrap() {
        // Whatever is wrong comes with what to do.
        let is_wrong = row["state"] == "missing" || row["state"] == "weaker";
        assert!(!is_wrong || !row["remedy"].is_null(), "{row}");
    }
    assert_eq!(row(&all, "the box")["state"], "good");
    assert_eq!(row(&all, "helper")["state"], "info");
    assert_eq!(row(&all, "runtime directory")["state"], "good");

    // Somebody else's helper, at the old socket, is known for what it is.
    let listener =
        std::os::unix::net::UnixListener::bind(run.join("cowork-vm-service.sock")).unwrap();
    let served = std::thread::spawn(move || serve_once(listener));
    let theirs = row(&look(), "helper");
    served.join().unwrap();
    assert_eq!(theirs["state"], "weaker");
    let this_test = std::env::current_exe().unwrap();
    has(&theirs, "found", this_test.to_str().unwrap());

    mode(0o711).unwrap();
    let open = row(&look(), "runtime directory");
    assert_eq!(open["state"], "missing");
    has(&open, "remedy", "chmod 700");
}
