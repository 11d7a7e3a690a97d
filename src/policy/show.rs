//! A resolved policy in the words of a policy file, so that it can be read, kept and used again.

use std::fmt::Write;
use std::path::Path;

use super::egress::{SecretSource, SecretSpec};
use super::{Access, Isolation, Key, MountSpec, Resolved};

/// The policy as TOML; with `explain`, every key says which layers it comes from.
pub fn as_toml(resolved: &Resolved, explain: bool) -> String {
    let mut text = format!("name = {}\n", quoted(&resolved.policy.name));
    let mut table = "";
    for key in Key::ALL {
        let (head, word) = key.name().split_once('.').unwrap_or(("", key.name()));
        if head != table {
            table = head;
            let _ = write!(text, "\n[{table}]\n");
        }
        if explain {
            let origins: Vec<_> = resolved.origins.of(key).map(ToString::to_string).collect();
            let _ = writeln!(text, "# {}", origins.join(", then ").escape_debug());
        }
        let _ = writeln!(text, "{word} = {}", value(key, resolved));
    }
    text
}

/// One key's value as a policy file writes it.
pub(super) fn value(key: Key, resolved: &Resolved) -> String {
    let p = &resolved.policy;
    match key {
        Key::Mounts => list(p.files.mounts.iter().map(mount)),
        Key::Visible => list(p.files.visible.iter().map(|path| path_text(path))),
        Key::ReadOnlyWorkspace => p.files.read_only_workspace.to_string(),
        Key::OwnOutputs => p.files.own_outputs.to_string(),
        Key::ChangeablePrograms => p.files.changeable_programs.to_string(),
        Key::TmpSize => quoted(&p.files.tmp_size.to_string()),
        Key::NetMode => quoted(p.net.mode.name()),
        Key::Loopback => p.net.loopback.to_string(),
        Key::Redirect => p.net.redirect.to_string(),
        Key::Allow => list(p.net.allow.iter().map(|rule| rule.pattern.to_string())),
        Key::Deny => list(p.net.deny.iter().map(|rule| rule.pattern.to_string())),
        Key::Bundles => list(p.net.bundles.iter().map(ToString::to_string)),
        Key::UpstreamProxy => quoted(&or_none(p.net.upstream_proxy.as_ref())),
        Key::Publish => list(p.net.publish.iter().map(ToString::to_string)),
        Key::HostPorts => {
            let ports: Vec<_> = p.net.host_ports.iter().map(ToString::to_string).collect();
            format!("[{}]", ports.join(", "))
        }
        Key::Secrets => list(p.net.secrets.iter().map(secret)),
        Key::TlsAudit => list(p.net.tls_audit.iter().map(ToString::to_string)),
        Key::Connections => p.net.connections.to_string(),
        Key::Rate => quoted(&or_none(p.net.rate.as_ref())),
        Key::GuardEnabled => p.guard.enabled.to_string(),
        Key::GuardGit => p.guard.git.to_string(),
        Key::GuardNames => list(p.guard.names.iter().cloned()),
        Key::EnvPass => list(p.env.pass.iter().cloned()),
        Key::EnvSet => {
            let pair = |(name, value): (&String, &String)| format!("{name} = {}", quoted(value));
            let pairs: Vec<_> = p.env.set.iter().map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Key::GitIdentity => p.env.git_identity.to_string(),
        Key::Timeout => quoted(&match p.limits.timeout {
            Some(time) => humantime::format_duration(time).to_string(),
            None => "none".to_owned(),
        }),
        Key::OpenFiles => count(p.limits.open_files),
        Key::Processes => count(p.limits.processes),
        Key::Isolation => quoted(match p.lock.isolation {
            Isolation::Namespaces => "namespaces",
            Isolation::Landlock => "landlock",
        }),
        Key::Seccomp => quoted(&p.lock.seccomp.replace('$', "$$")),
        Key::Nesting => p.lock.nesting.to_string(),
        Key::AllowMissing => list(p.lock.allow_missing.iter().map(ToString::to_string)),
    }
}

fn or_none(value: Option<&impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn secret(spec: &SecretSpec) -> String {
    let mut spec = spec.clone();
    if let SecretSource::File(path) = &mut spec.from {
        *path = path_text(path).into();
    }
    spec.to_string()
}

fn count(limit: Option<u64>) -> String {
    limit.map_or_else(|| quoted("none"), |number| number.to_string())
}

fn mount(spec: &MountSpec) -> String {
    let colons = |text: String| text.replace(':', r"\:");
    let mut text = colons(path_text(&spec.source));
    if let Some(place) = &spec.place {
        let _ = write!(text, ":{}", colons(place.display().to_string()));
    }
    text.push_str(match spec.access {
        Access::Read => ":ro",
        Access::Keep => ":keep",
        Access::Write => ":rw",
    });
    text
}

fn path_text(path: &Path) -> String {
    path.display().to_string().replace('$', "$$")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// One line when it fits, else one entry a line.
fn list(entries: impl Iterator<Item = String>) -> String {
    let entries: Vec<_> = entries.map(|entry| quoted(&entry)).collect();
    let line = format!("[{}]", entries.join(", "));
    if line.len() <= 80 {
        return line;
    }
    format!("[\n    {},\n]", entries.join(",\n    "))
}
