//! What a person can do about it: a sentence, and where there is one, the file and the commands.
//! Nothing here is ever carried out.

use std::path::{Path, PathBuf};

use serde::Serialize;

const PROFILE: &str = include_str!("../../../packaging/apparmor/cowork-linux");
const PACKAGED_PATH: &str = "/usr/bin/cowork-linux";

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    pub say: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<NewFile>,
    /// For a shell, as root.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NewFile {
    pub path: PathBuf,
    pub content: String,
}

impl Remedy {
    pub(super) fn say(say: impl Into<String>) -> Self {
        Self {
            say: say.into(),
            file: None,
            commands: Vec::new(),
        }
    }

    /// A kernel setting, kept over the next boot.
    pub(super) fn sysctl(name: &str, value: &str) -> Self {
        let path = format!(
            "/etc/sysctl.d/60-cowork-linux-{}.conf",
            name.replace('.', "-")
        );
        Self {
            say: format!("set {name} to {value}"),
            commands: vec![format!("sysctl -p {path}")],
            file: Some(NewFile {
                path: path.into(),
                content: format!("{name} = {value}\n"),
            }),
        }
    }

    /// Ubuntu's way: a profile that names the program and allows it user namespaces.
    pub(super) fn apparmor(program: &Path) -> Self {
        let path = PathBuf::from("/etc/apparmor.d/cowork-linux");
        let mut say = format!(
            "install the AppArmor profile that lets {} make user namespaces",
            program.display()
        );
        if program != Path::new(PACKAGED_PATH) && !program.starts_with("/usr") {
            say.push_str(
                "; who can replace that file gets the same, so a place that only root can write \
                 to, such as /usr/local/bin, is better",
            );
        }
        Self {
            say,
            commands: vec![format!("apparmor_parser -r {}", path.display())],
            file: Some(NewFile {
                path,
                content: PROFILE.replace(
                    &format!("profile cowork-linux {PACKAGED_PATH} "),
                    &format!("profile cowork-linux {} ", apparmor_path(program)),
                ),
            }),
        }
    }

    /// A filter around us that only whoever started it can widen.
    pub(super) fn container(kind: Option<&str>) -> Self {
        let weaker = "`--isolation landlock` is the weaker way without namespaces";
        Self::say(match kind {
            Some("podman") => format!(
                "start the container with `podman run --security-opt seccomp=unconfined \
                 --security-opt unmask=ALL`, or run outside it; {weaker}"
            ),
            Some(_) => format!(
                "start the container with `docker run --security-opt seccomp=unconfined \
                 --security-opt apparmor=unconfined --security-opt systempaths=unconfined`, or run \
                 outside it; {weaker}"
            ),
            None => format!(
                "run from a shell that no sandbox (container, snap, flatpak, service) was put \
                 around; {weaker}"
            ),
        })
    }
}

/// A path as AppArmor's parser takes it for a name and not for a pattern.
fn apparmor_path(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._+-".contains(c);
    if text.chars().all(is_plain) {
        return text;
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if "\"\\*?[]{}^@,".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_names_the_program_as_it_is_installed() {
        let remedy = Remedy::apparmor(Path::new("/opt/my tools/cowork-linux"));
        let profile = remedy.file.unwrap().content;
        let line = "profile cowork-linux \"/opt/my tools/cowork-linux\" flags=(unconfined) {";
        assert!(profile.contains(line), "{profile}");
        assert!(profile.contains("abi <abi/4.0>,") && profile.contains("\n  userns,\n"));
        assert!(!profile.contains(PACKAGED_PATH));
        assert!(remedy.say.contains("/usr/local/bin"));
    }

    #[test]
    fn a_setting_is_kept_over_the_next_boot() {
        let remedy = Remedy::sysctl("kernel.unprivileged_userns_clone", "1");
        let file = remedy.file.unwrap();
        assert_eq!(file.content, "kernel.unprivileged_userns_clone = 1\n");
        assert!(file.path.starts_with("/etc/sysctl.d"));
    }
}
