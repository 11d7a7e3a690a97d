//! The kernel itself: its age, and the walls it has to offer.

use super::child::{Tried, attempt};
use super::evidence::Evidence;
use super::namespaces::{in_words, map_user, not_tried};
use super::remedy::Remedy;
use super::{Row, State, Wanted, unless};
use crate::plan::{OWN_V4, OWN_V6, REDIRECT_PORT};
use crate::sys;
use crate::sys::process::SingleThreaded;

/// The first with all of the descriptor-based mount API, user namespace overlays and Landlock.
const OLDEST: (u32, u32) = (5, 15);
/// What each version of Landlock added.
const LANDLOCK: [&str; 7] = [
    "files",
    "moving between folders",
    "truncation",
    "TCP ports",
    "device controls",
    "signals and abstract sockets",
    "a log of refusals",
];
/// From here on the box gets all it asks for.
const ENOUGH_LANDLOCK: usize = 6;

pub(super) fn version(evidence: &Evidence) -> Row {
    let name = "kernel";
    let found = format!("Linux {}", evidence.release);
    // The old kind has no kernel of Linux at all, only its calls.
    if evidence.release.ends_with("-Microsoft") {
        return Row::new(name, State::Missing, found, "this is WSL 1: no namespaces").fix(
            Remedy::say("in Windows: `wsl --set-version DISTRIBUTION 2`"),
        );
    }
    if evidence.version() < OLDEST {
        let means = "too old: 5.15 is the oldest that works";
        return Row::new(name, State::Missing, found, means)
            .fix(Remedy::say("install a newer kernel, and restart"));
    }
    Row::new(name, State::Good, found, "5.15 is the oldest that works")
}

pub(super) fn mount_api(evidence: &Evidence, wanted: &Wanted) -> Row {
    let name = "mount API";
    let missing = sys::kernel::missing_mount_calls();
    if missing.is_empty() {
        let found = "open_tree, move_mount, fsopen, mount_setattr";
        let means = "folders are shared by descriptor: a name cannot be swapped";
        return Row::new(name, State::Good, found, means);
    }
    let found = format!("without {}", missing.join(", "));
    let remedy = match evidence.version() < OLDEST {
        true => Remedy::say("install a newer kernel, and restart"),
        false => Remedy::container(evidence.container),
    };
    Row::new(
        name,
        unless(wanted.namespaces),
        found,
        "no box can be built",
    )
    .fix(remedy)
}

pub(super) fn landlock(evidence: &Evidence, wanted: &Wanted) -> Row {
    match sys::kernel::landlock_version() {
        Ok(abi) if abi > 0 => landlock_has(abi as usize),
        Ok(_) => landlock_lacks(evidence, wanted, libc::EOPNOTSUPP),
        Err(error) => landlock_lacks(evidence, wanted, error.raw_os_error().unwrap_or(0)),
    }
}

fn landlock_has(abi: usize) -> Row {
    let name = "Landlock";
    let (brought, rest) = LANDLOCK.split_at(abi.min(LANDLOCK.len()));
    let found = format!("ABI {abi}: {}", brought.join(", "));
    if abi >= ENOUGH_LANDLOCK {
        let means = "a second wall behind the mounts";
        return Row::new(name, State::Good, found, means);
    }
    let lacking = &rest[..ENOUGH_LANDLOCK - abi];
    let means = format!("a second wall, without: {}", lacking.join(", "));
    Row::new(name, State::Weaker, found, &means)
        .fix(Remedy::say("Linux 6.12 has all that the box asks for"))
}

fn landlock_lacks(evidence: &Evidence, wanted: &Wanted, errno: i32) -> Row {
    let listed = evidence
        .modules
        .as_deref()
        .map(|list| list.split(',').any(|module| module == "landlock"));
    let excuse = "or `--allow-missing landlock`";
    let (found, remedy) = match (errno, listed) {
        (libc::EOPNOTSUPP, _) => switched_off(evidence),
        (_, Some(true)) => (
            "none (ENOSYS): the kernel has it, a filter around this shell hides it".to_owned(),
            Remedy::container(evidence.container),
        ),
        (_, _) if evidence.version() < (5, 13) => (
            format!("none (ENOSYS): Linux {} is older than it", evidence.release),
            Remedy::say(format!("use Linux 5.15 or newer, {excuse}")),
        ),
        (_, None) if evidence.seccomp_mode == 2 => (
            "none (ENOSYS): not built into the kernel, or hidden by the seccomp filter around \
             this shell"
                .to_owned(),
            Remedy::say(format!("run from a shell without a filter, {excuse}")),
        ),
        _ => (
            "none (ENOSYS): not built into this kernel".to_owned(),
            Remedy::say(format!(
                "use a kernel with CONFIG_SECURITY_LANDLOCK=y, {excuse}"
            )),
        ),
    };
    let state = unless(wanted.landlock);
    let means = match state {
        State::Missing => "a promised wall is missing: `run` refuses",
        _ => "the policy excuses it: mounts and seccomp stand alone",
    };
    Row::new("Landlock", state, found, means).fix(remedy)
}

/// Built in, but left out of the list of modules that the boot loader or the kernel was given.
fn switched_off(evidence: &Evidence) -> (String, Remedy) {
    let list = evidence
        .modules
        .as_deref()
        .unwrap_or("lockdown,yama,integrity,apparmor,bpf");
    let others: Vec<&str> = list.split(',').filter(|m| *m != "capability").collect();
    let remedy = Remedy::say(format!(
        "add `lsm=landlock,{}` to the kernel's command line (GRUB_CMDLINE_LINUX in \
         /etc/default/grub, then `sudo update-grub`), and restart",
        others.join(",")
    ));
    let found = "none: built into the kernel, but not in its lsm= list";
    (found.to_owned(), remedy)
}

pub(super) fn seccomp(evidence: &Evidence, wanted: &Wanted) -> Row {
    let name = "seccomp";
    let outer = match evidence.seccomp_mode {
        2 => "; a filter is around this shell already",
        _ => "",
    };
    match (
        sys::kernel::has_seccomp_filter(),
        sys::kernel::has_seccomp_notify(),
    ) {
        (true, true) => Row::new(
            name,
            State::Good,
            format!("filters, and asking a supervisor{outer}"),
            "system calls that no agent needs do not exist inside",
        ),
        (true, false) => Row::new(
            name,
            State::Weaker,
            format!("filters, but no asking a supervisor{outer}"),
            "calls are refused, never asked about",
        )
        .fix(Remedy::say("install a newer kernel, and restart")),
        (false, _) => Row::new(
            name,
            unless(wanted.seccomp),
            format!("none{outer}"),
            "a promised wall is missing: `run` refuses",
        )
        .fix(Remedy::say("use a kernel with CONFIG_SECCOMP_FILTER=y")),
    }
}

/// Tried as a box with a list of hosts does it.
pub(super) fn redirection(
    proof: &SingleThreaded,
    evidence: &Evidence,
    namespaces_work: bool,
) -> Row {
    let name = "redirection";
    if !namespaces_work {
        return not_tried(name);
    }
    let own = (OWN_V4, OWN_V6);
    let work = || {
        map_user(evidence).map_err(|error| (1, error))?;
        let ways = sys::routes::lay(own).map_err(|error| (2, error))?;
        ways.four.map_err(|errno| (2, errno.into()))?;
        sys::redirect::set_up(own, REDIRECT_PORT).map_err(|error| (3, error))?;
        Ok(i32::from(ways.six.is_ok()))
    };
    let namespaces = libc::CLONE_NEWUSER | libc::CLONE_NEWNET;
    match attempt(proof, namespaces, &work) {
        Tried::Worked(with_six) => {
            let kinds = if with_six == 1 {
                "IPv4 and IPv6"
            } else {
                "IPv4 only"
            };
            let found = format!("nftables leads connections to the gateway, {kinds}");
            let means = "`--network allow` serves every program that speaks TCP";
            Row::new(name, State::Good, found, means)
        }
        Tried::Failed { stage, error } => {
            let what = if stage == 3 { "nftables" } else { "routes" };
            let found = format!("{what} refused: {}", in_words(&error));
            let means = "`--network allow` serves programs that know a proxy, others only at \
                         allowed ports below 1024";
            Row::new(name, State::Weaker, found, means).fix(Remedy::say(
                "as root: `modprobe -a nf_tables nft_chain_nat nft_nat`; or use a kernel with \
                 CONFIG_NF_TABLES_INET and CONFIG_NFT_NAT",
            ))
        }
    }
}

pub(super) fn keyring(proof: &SingleThreaded, evidence: &Evidence, wanted: &Wanted) -> Row {
    let name = "keyring";
    let work = || match sys::process::new_session_keyring() {
        Ok(()) => Ok(0),
        Err(error) => Err((1, error)),
    };
    let error = match attempt(proof, 0, &work) {
        Tried::Worked(_) => {
            let means = "the caller's keys in the kernel stay out of reach";
            return Row::new(name, State::Good, "a fresh one can be had", means);
        }
        Tried::Failed { error, .. } => error,
    };
    if error.raw_os_error() == Some(libc::ENOSYS) {
        let means = "the kernel keeps no keys, so none can leak";
        return Row::new(name, State::Info, "none", means);
    }
    Row::new(
        name,
        unless(wanted.keyring),
        format!("refused: {}", in_words(&error)),
        "the caller's keys in the kernel could be used inside",
    )
    .fix(match evidence.seccomp_mode {
        2 => {
            Remedy::say("run from a shell without a filter around it, or `--allow-missing keyring`")
        }
        _ => Remedy::say("raise kernel.keys.maxkeys, or `--allow-missing keyring`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(release: &str, modules: Option<&str>) -> Evidence {
        Evidence {
            release: release.to_owned(),
            modules: modules.map(str::to_owned),
            ..Evidence::default()
        }
    }

    #[test]
    fn an_early_landlock_says_what_it_lacks() {
        let row = landlock_has(4);
        assert_eq!(row.state, State::Weaker);
        assert!(row.found.ends_with("truncation, TCP ports"));
        assert!(
            row.means
                .ends_with("device controls, signals and abstract sockets")
        );
        assert_eq!(landlock_has(9).state, State::Good);
    }

    #[test]
    fn landlock_left_out_at_boot_gets_the_line_to_add() {
        let host = host("6.1.0", Some("capability,yama,apparmor"));
        let row = landlock_lacks(&host, &Wanted::EVERYTHING, libc::EOPNOTSUPP);
        assert_eq!(row.state, State::Missing);
        assert!(row.found.contains("not in its lsm= list"));
        assert!(
            row.remedy
                .unwrap()
                .say
                .contains("lsm=landlock,yama,apparmor")
        );
    }

    #[test]
    fn landlock_that_is_listed_and_hidden_is_a_filters_doing() {
        let host = host("6.1.0", Some("landlock,yama"));
        let row = landlock_lacks(&host, &Wanted::EVERYTHING, libc::ENOSYS);
        assert!(row.found.contains("a filter around this shell hides it"));
    }

    #[test]
    fn what_the_policy_excuses_is_only_weaker() {
        let wanted = Wanted {
            landlock: false,
            ..Wanted::EVERYTHING
        };
        let row = landlock_lacks(&host("6.1.0", None), &wanted, libc::ENOSYS);
        assert_eq!(row.state, State::Weaker);
    }

    #[test]
    fn old_kernels_are_refused() {
        assert_eq!(
            version(&host("5.10.0-33-amd64", None)).state,
            State::Missing
        );
        assert_eq!(version(&host("5.15.0", None)).state, State::Good);
        let wsl = version(&host("4.4.0-19041-Microsoft", None));
        assert!(wsl.means.contains("WSL 1"));
    }
}
