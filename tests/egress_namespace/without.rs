//! Kernels that cannot redirect, and boxes that are not to.

use std::os::unix::process::CommandExt;

use cowork_linux::filter::{Arch, Profile, compile};
use cowork_linux::plan::Door;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::Case;
use crate::ground::{self, knocker, start};
use crate::outside::Answers;
use crate::support::{Ran, World};

pub(crate) const CASES: &[Case] = &[
    (
        "without_netfilter_low_ports_and_proxies_remain",
        low_ports_remain,
    ),
    (
        "without_netfilter_it_is_said_and_the_program_runs",
        it_is_said,
    ),
    ("a_policy_can_leave_the_redirection_out", left_out),
];

/// Makes the kernel look as if it had been built without netfilter, for this process and all that it
/// starts.
fn lose_netfilter() {
    let profile = Profile::from_json(
        r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{
            "names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 93,
            "args": [{"index": 0, "value": 16, "op": "SCMP_CMP_EQ"},
                     {"index": 2, "value": 12, "op": "SCMP_CMP_EQ"}]}]}"#,
    );
    let filter = compile(&profile.unwrap(), Arch::native().unwrap()).unwrap();
    let program = libc::sock_fprog {
        len: filter.instructions().len() as u16,
        filter: filter.bytes().as_ptr().cast_mut().cast(),
    };
    nix::sys::prctl::set_no_new_privs().unwrap();
    // SAFETY: the program outlives the call and has the length it says.
    let loaded = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program, 0, 0) };
    assert_eq!(loaded, 0);
}

#[allow(clippy::disallowed_methods, reason = "this test has one thread")]
fn low_ports_remain() {
    // What is lost is lost for good, so it is a child that loses it.
    // SAFETY: one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
        ForkResult::Child => {
            lose_netfilter();
            let passed = std::panic::catch_unwind(by_port).is_ok();
            // SAFETY: ends this process, which has nothing to clear up that its parent has not.
            unsafe { libc::_exit(i32::from(!passed)) };
        }
    }
}

fn by_port() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() {
    meet("1.2.3.4", 443);
    meet("2001:db8::1", 443);
    meet("198.18.5.5", 22);
    meet("127.0.0.1", 3128);
    meet("1.2.3.4", 80);
    meet("1.2.3.4", 8443);
    ask("8.8.8.8", 53);
    return 0;
}"#,
    );
    let mut plan = ground::plan(&world, &["./knock"], |_| {});
    plan.egress.as_mut().unwrap().low_ports = vec![22, 443];
    let started = start(&plan);
    assert_eq!(started.not_redirected, libc::EPROTONOSUPPORT);
    let of = |door| started.doors.iter().filter(|(it, _)| *it == door).count();
    assert_eq!((of(Door::Redirect4), of(Door::Redirect6)), (2, 2));
    let (said, _) = started.serve();
    let answers = Answers::of(&said);
    assert_eq!(answers.get("1.2.3.4 443"), "Redirect4 1.2.3.4:443");
    assert_eq!(answers.get("198.18.5.5 22"), "Redirect4 198.18.5.5:22");
    assert_eq!(
        answers.get("2001:db8::1 443"),
        "Redirect6 [2001:db8::1]:443"
    );
    assert_eq!(answers.get("127.0.0.1 3128"), "Http 127.0.0.1:3128");
    for place in ["1.2.3.4 80", "1.2.3.4 8443", "udp 8.8.8.8 53"] {
        answers.refused(place, &["ECONNREFUSED"]);
    }
}

fn it_is_said() {
    let world = World::new();
    let run = |lost: bool| {
        let mut command = world.cowork();
        command.args(["run", "--network", "allow", "--name", "kept"]);
        command.args(["--", "echo", "it runs"]);
        if lost {
            // SAFETY: allocates and makes system calls; this process has one thread.
            unsafe {
                command.pre_exec(|| {
                    lose_netfilter();
                    Ok(())
                })
            };
        }
        Ran::of(&mut command).ok().says("it runs")
    };
    let note = "note: this kernel cannot redirect connections (Protocol not supported): ";
    let usual = run(false);
    assert!(!usual.err.contains(note), "{usual:?}");
    run(true).complains(note);
    let state = world.path("state/cowork-linux");
    let journals = std::fs::read_dir(state.join("journals")).unwrap();
    let journals = journals.map(|entry| std::fs::read_to_string(entry.unwrap().path()));
    let journal = journals.filter_map(Result::ok).collect::<String>();
    let noted = journal.matches("allow, by proxy").count();
    assert_eq!(noted, 1, "once, for the run that had less: {journal}");
    let record = std::fs::read_to_string(state.join("sessions/kept/record.json")).unwrap();
    assert!(
        record.contains(r#""network":"allow, by proxy""#),
        "{record}"
    );
}

fn left_out() {
    let world = World::new();
    knocker(
        &world,
        r#"
int main() { meet("1.2.3.4", 443); meet("127.0.0.1", 3128); return 0; }"#,
    );
    let plan = ground::plan(&world, &["./knock"], |policy| policy.net.redirect = false);
    assert!(plan.egress.as_ref().unwrap().proxies_only.is_some());
    let (said, visitors) = start(&plan).serve();
    let answers = Answers::of(&said);
    answers.refused("1.2.3.4 443", &["ECONNREFUSED"]);
    assert_eq!(answers.get("127.0.0.1 3128"), "Http 127.0.0.1:3128");
    assert_eq!(visitors.len(), 1);
}
