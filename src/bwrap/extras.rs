//! Our own options: walls that bubblewrap leaves to its callers. Without them nothing is added.

use std::ffi::OsStr;
use std::path::Path;

use super::args::Asked;
use super::plan::{Surroundings, Walls};
use crate::filter;
use crate::plan::Limit;
use crate::policy::{self, Isolation, NetMode, Policy, PolicyFile};
use crate::probe;

/// The walls that were asked for, and the filters that belong to them; or why they cannot stand.
pub(super) fn walls(asked: &Asked, here: &Surroundings) -> Result<(Walls, Vec<Vec<u8>>), String> {
    let extras = &asked.extras;
    let mut walls = Walls {
        landlock: extras.landlock,
        ..Walls::default()
    };
    let mut filters = Vec::new();
    if let Some(name) = &extras.profile {
        let policy = profile(name)?;
        let name = name.to_string_lossy();
        fits(&name, &policy, asked)?;
        walls.landlock |= !policy.lock.nesting;
        walls.limits = limits(&policy);
        walls.timeout = policy.limits.timeout;
        let seccomp = match (policy.lock.seccomp.as_str(), policy.lock.nesting) {
            ("default", true) => "nested",
            (other, _) => other,
        };
        filters.push(filter_called(OsStr::new(seccomp))?);
    }
    if let Some(name) = &extras.seccomp {
        filters.push(filter_called(name)?);
    }
    if walls.landlock && here.landlock_abi < 1 {
        return Err(
            "cannot put up Landlock, because this kernel has none; leave out --cowork-landlock \
             and --cowork-profile, or use a kernel from 5.13 on"
                .to_owned(),
        );
    }
    walls.filters = filters.len();
    Ok((walls, filters))
}

fn profile(name: &OsStr) -> Result<Policy, String> {
    let shown = name.to_string_lossy();
    let env = |name: &str| std::env::var_os(name);
    let sources = policy::Sources {
        profile: Some(&shown),
        project_dir: None,
        flags: PolicyFile::default(),
        env: &env,
    };
    match policy::resolve(&sources) {
        Ok(resolved) => Ok(resolved.policy),
        Err(error) => {
            // The first line says that it is a policy; what follows says why and what to do.
            let text = crate::report::text(&error);
            let lines = text.lines().skip(1).map(str::trim);
            let plain = |line: &'_ str| {
                let rest = line
                    .strip_prefix("because: ")
                    .or(line.strip_prefix("help: "));
                rest.unwrap_or(line).to_owned()
            };
            let why: Vec<_> = lines.map(plain).collect();
            Err(format!(
                "cannot use --cowork-profile {shown}: {}",
                why.join("; ")
            ))
        }
    }
}

/// A profile is refused rather than weakened when the rest of the line says something else.
fn fits(name: &str, policy: &Policy, asked: &Asked) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("cannot use --cowork-profile {name}: {why}"));
    if policy.lock.isolation == Isolation::Landlock {
        return refuse("it asks for no namespaces; use `cowork-linux run`");
    }
    if policy.net.mode == NetMode::Allow {
        return refuse("it has a list of hosts; use `cowork-linux run`");
    }
    if policy.net.mode == NetMode::None && !asked.unshare.net {
        return refuse("it has no network; add --unshare-net, or choose another profile");
    }
    if policy.limits.timeout.is_some() && !asked.unshare.pid {
        return refuse("it has a time limit, which takes --unshare-pid to hold for everybody");
    }
    Ok(())
}

fn limits(policy: &Policy) -> Vec<(Limit, u64)> {
    let own = [
        (Limit::OpenFiles, policy.limits.open_files),
        (Limit::Processes, policy.limits.processes),
    ];
    let own = own
        .into_iter()
        .filter_map(|(what, value)| Some((what, value?)));
    std::iter::once((Limit::CoreSize, 0)).chain(own).collect()
}

/// A built-in filter by its name, or an OCI profile by its path.
fn filter_called(name: &OsStr) -> Result<Vec<u8>, String> {
    let shown = name.to_string_lossy();
    if !shown.contains('/') {
        let found = filter::builtin(&shown).map(|filter| filter.bytes().to_vec());
        return found.ok_or_else(|| {
            let names = filter::builtin_names().join(", ");
            format!(
                "unknown seccomp profile: {shown} (there are: {names}; or name a file with a /)"
            )
        });
    }
    let failed = |why: &dyn std::fmt::Display| format!("cannot use the filter {shown}: {why}");
    let text = std::fs::read_to_string(Path::new(name)).map_err(|error| failed(&error))?;
    let arch = filter::Arch::native().ok_or_else(|| failed(&"this processor is not known"))?;
    let env = |name: &str| std::env::var_os(name);
    let state = probe::state_directory(&env).unwrap_or_else(|| "/nonexistent".into());
    let compiled = filter::compiled(&text, arch, &state.join("filters"));
    Ok(compiled.map_err(|error| failed(&error))?.bytes().to_vec())
}
