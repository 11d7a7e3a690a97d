//! Control groups: whether there is a v2 tree, and whether a part of it is the caller's.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::remedy::Remedy;
use super::{Row, State};

const NAME: &str = "cgroup v2";
const NO_LIMITS: &str = "no limit on a whole box's memory; rlimits hold";

/// How control groups are laid out here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    None,
    OnlyV1,
    /// The caller's group in the v2 tree, and the controllers that v1 keeps for itself.
    V2 {
        group: PathBuf,
        kept_by_v1: Vec<String>,
    },
}

pub(super) fn row() -> Row {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    match layout(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo")) {
        Layout::None => Row::new(NAME, State::Info, "none: no cgroups are mounted", NO_LIMITS),
        Layout::OnlyV1 => {
            Row::new(NAME, State::Info, "none: this host uses v1", NO_LIMITS).fix(unified())
        }
        Layout::V2 { group, kept_by_v1 } => {
            let names = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
            let files = [group.clone(), group.join("cgroup.procs")];
            let ours = files
                .iter()
                .all(|path| access(path, AccessFlags::W_OK).is_ok());
            describe(
                &group,
                names.split_whitespace().collect(),
                &kept_by_v1,
                ours,
            )
        }
    }
}

fn describe(group: &Path, controllers: Vec<&str>, kept_by_v1: &[String], ours: bool) -> Row {
    let at = group.display();
    let list = match controllers.is_empty() {
        true => "no controllers".to_owned(),
        false => controllers.join(", "),
    };
    if !kept_by_v1.is_empty() {
        let found = format!(
            "hybrid: v2 at {at} has {list}; v1 keeps {}",
            kept_by_v1.join(", ")
        );
        return Row::new(NAME, State::Info, found, NO_LIMITS).fix(unified());
    }
    if !ours {
        let found = format!("{at} is not delegated to this user ({list})");
        return Row::new(NAME, State::Info, found, NO_LIMITS).fix(Remedy::say(
            "start the shell with `systemd-run --user --scope -p Delegate=yes $SHELL`",
        ));
    }
    let enough = ["memory", "pids"]
        .iter()
        .all(|name| controllers.contains(name));
    let found = format!("{at} is delegated: {list}");
    match enough {
        true => Row::new(
            NAME,
            State::Good,
            found,
            "a box could be limited as a whole",
        ),
        false => Row::new(NAME, State::Info, found, NO_LIMITS).fix(Remedy::say(
            "ask systemd for more: `systemctl edit user@.service`, [Service] Delegate=cpu memory \
             pids io, then log in again",
        )),
    }
}

fn unified() -> Remedy {
    Remedy::say(
        "start the kernel with systemd.unified_cgroup_hierarchy=1, as distributions have done since 2021",
    )
}

/// From the lists of the kernel: which hierarchies there are and where the caller is in them.
fn layout(groups: &str, mountinfo: &str) -> Layout {
    // "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw"
    let mounted = |kind: &str| {
        mountinfo.lines().find_map(|line| {
            let (place, of) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            (of.split(' ').next() == Some(kind)).then(|| (place.next(), place.next()))
        })
    };
    let parts = |line: &str| -> Option<(String, String)> {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    };
    let groups: Vec<(String, String)> = groups.lines().filter_map(parts).collect();
    let (Some((Some(root), Some(mount))), Some((_, own))) = (
        mounted("cgroup2"),
        groups.iter().find(|(names, _)| names.is_empty()),
    ) else {
        return match mounted("cgroup") {
            Some(_) => Layout::OnlyV1,
            None => Layout::None,
        };
    };
    let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
    let kept_by_v1 = groups
        .iter()
        .flat_map(|(names, _)| names.split(','))
        .filter(|name| !name.is_empty() && !name.starts_with("name="))
        .filter(|_| mounted("cgroup").is_some())
        .map(str::to_owned)
        .collect();
    Layout::V2 {
        group: match below.as_os_str().is_empty() {
            true => PathBuf::from(mount),
            false => Path::new(mount).join(below),
        },
        kept_by_v1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "36 25 0:31 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
    const V1: &str = "37 36 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn a_systemd_session_is_found_in_the_one_tree() {
        let own = "0::/user.slice/user-1000.slice/user@1000.service/a.scope\n";
        let Layout::V2 { group, kept_by_v1 } = layout(own, V2) else {
            panic!()
        };
        let wanted = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/a.scope";
        assert_eq!(group, Path::new(wanted));
        let row = describe(&group, vec!["memory", "pids"], &kept_by_v1, true);
        assert_eq!(row.state, State::Good);
        let row = describe(&group, vec!["memory", "pids"], &kept_by_v1, false);
        assert_eq!(row.state, State::Info);
        assert!(row.found.contains("not delegated"));
    }

    #[test]
    fn a_hybrid_is_called_one() {
        let both = [V1, V2].concat();
        let Layout::V2 { group, kept_by_v1 } =
            layout("4:memory:/a\n1:name=systemd:/\n0::/\n", &both)
        else {
            panic!()
        };
        assert_eq!(kept_by_v1, ["memory"]);
        let row = describe(&group, vec!["hugetlb"], &kept_by_v1, true);
        assert!(row.found.starts_with("hybrid"), "{}", row.found);
    }

    #[test]
    fn hosts_without_the_new_tree_are_told_apart() {
        assert_eq!(layout("4:memory:/a\n", V1), Layout::OnlyV1);
        assert_eq!(layout("", ""), Layout::None);
    }
}
