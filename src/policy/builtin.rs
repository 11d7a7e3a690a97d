//! The policies that come with the program.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Bytes, Env, Files, Guard, Isolation, Limits, Lock, Net, Policy, PolicyError, PolicyFile,
};

#[derive(Debug)]
pub struct BuiltIn {
    pub name: &'static str,
    /// The file as it is in `policies/`.
    pub text: &'static str,
}

pub const ALL: [BuiltIn; 6] = [
    BuiltIn {
        name: "default",
        text: include_str!("../../policies/default.toml"),
    },
    BuiltIn {
        name: "claude",
        text: include_str!("../../policies/claude.toml"),
    },
    BuiltIn {
        name: "online",
        text: include_str!("../../policies/online.toml"),
    },
    BuiltIn {
        name: "offline",
        text: include_str!("../../policies/offline.toml"),
    },
    BuiltIn {
        name: "strict",
        text: include_str!("../../policies/strict.toml"),
    },
    BuiltIn {
        name: "cowork",
        text: include_str!("../../policies/cowork.toml"),
    },
];

pub fn find(name: &str) -> Result<&'static BuiltIn, PolicyError> {
    ALL.iter()
        .find(|one| one.name == name)
        .ok_or_else(|| PolicyError::Unknown {
            name: name.to_owned(),
            like: like(name),
        })
}

impl BuiltIn {
    pub fn file(&self) -> Result<PolicyFile, PolicyError> {
        PolicyFile::parse(self.text).map_err(|source| PolicyError::Syntax {
            place: format!("`{}`", self.name),
            source: Box::new(source),
        })
    }
}

/// The built-in name that was probably meant.
fn like(name: &str) -> Option<&'static str> {
    let name: String = name.chars().take(32).flat_map(char::to_lowercase).collect();
    let near = |one: &BuiltIn| (distance(one.name, &name), one.name);
    let (steps, like) = ALL.iter().map(near).min()?;
    (steps <= 2).then_some(like)
}

/// How many letters must be put in, left out or changed to make one word the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, wanted) in other.iter().enumerate() {
            let change = corner + usize::from(letter != *wanted);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

/// What `policies/default.toml` says, without parsing it: every launch starts from here, and
/// parsing costs more than all the rest of resolving a policy. A test holds the two together.
pub(super) fn default_policy() -> Policy {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    Policy {
        name: "default".to_owned(),
        files: Files {
            mounts: Vec::new(),
            visible: Vec::new(),
            read_only_workspace: false,
            own_outputs: true,
            changeable_programs: false,
            tmp_size: Bytes(1 << 30),
        },
        net: Net::none(),
        guard: Guard {
            enabled: true,
            names: words(&GUARDED),
            git: true,
        },
        env: Env {
            pass: words(&PASSED),
            set: BTreeMap::from([("IS_SANDBOX".to_owned(), "1".to_owned())]),
            git_identity: true,
        },
        limits: Limits {
            timeout: None,
            open_files: Some(65536),
            processes: Some(4096),
        },
        lock: Lock {
            isolation: Isolation::Namespaces,
            seccomp: "default".to_owned(),
            nesting: false,
            allow_missing: BTreeSet::new(),
        },
    }
}

const PASSED: [&str; 8] = [
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "TZ",
];

const GUARDED: [&str; 61] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks",
    ".claude/commands",
    ".claude/agents",
    ".claude/skills",
    ".mcp.json",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
    ".codex/config.toml",
    ".codex/hooks.json",
    ".gemini/settings.json",
    ".gemini/extensions",
    ".opencode",
    "opencode.json",
    ".aider.conf.yml",
    ".cowork.toml",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".vscode/launch.json",
    ".vscode/extensions.json",
    ".vscode/mcp.json",
    ".idea",
    ".zed",
    ".devcontainer",
    ".devcontainer.json",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vimrc",
    ".dir-locals.el",
    ".gdbinit",
    ".lldbinit",
    ".envrc",
    ".direnv",
    ".mise.toml",
    "mise.toml",
    ".mise",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".config/fish",
    ".config/autostart",
    ".config/systemd",
    ".config/git",
    ".config/mise",
    ".xprofile",
    ".xsessionrc",
    ".gitconfig",
    ".husky",
    ".githooks",
    ".hg/hgrc",
    ".ssh",
];

#[cfg(test)]
mod tests {
    use super::super::stack::Stack;
    use super::*;

    #[test]
    fn the_default_in_code_is_the_default_in_the_file() {
        let file = find("default").unwrap().file().unwrap();
        assert_eq!(Stack::of_file(&file).policy, default_policy());
        // Laid over a policy that differs in every key, it sets every key.
        let mut odd = Stack::of_file(&find("claude").unwrap().file().unwrap());
        odd.policy.guard.names.clear();
        odd.lay_built_in(find("default").unwrap(), &file).unwrap();
        assert_eq!(odd.policy.guard, default_policy().guard);
        assert_eq!(odd.policy.net, default_policy().net);
    }

    #[test]
    fn every_built_in_is_sound_and_called_by_its_name() {
        for one in &ALL {
            let file = one.file().unwrap();
            assert_eq!(file.name.unwrap().as_str(), one.name);
            assert!(file.about.is_some());
            // Their paths would be relative to nothing.
            assert_eq!((file.files.mounts, file.files.visible), (None, None));
        }
    }

    #[test]
    fn strict_and_offline_are_no_wider_than_default() {
        let of = |name| Stack::of_file(&find(name).unwrap().file().unwrap()).policy;
        assert!(of("strict").at_least_as_tight(&default_policy()));
        assert!(of("offline").at_least_as_tight(&default_policy()));
        assert!(of("strict").at_least_as_tight(&of("claude")));
        assert!(!of("claude").at_least_as_tight(&default_policy()));
    }

    /// Whatever the user's own policy has been made to give.
    #[test]
    fn cowork_has_only_what_the_app_gives() {
        let mut stack = Stack::of_file(&find("online").unwrap().file().unwrap());
        let wide = PolicyFile::parse(
            "[net]\nallow = [\"*\"]\npublish = [\"8080:80\"]\nhost-ports = [22]\n\
             [env]\npass = [\"SECRET\"]\n[lock]\nnesting = true",
        );
        stack
            .lay_built_in(find("strict").unwrap(), &wide.unwrap())
            .unwrap();
        assert!(stack.policy.lock.nesting && !stack.policy.env.pass.is_empty());
        let cowork = find("cowork").unwrap();
        stack.lay_built_in(cowork, &cowork.file().unwrap()).unwrap();
        let Policy { net, env, lock, .. } = &stack.policy;
        assert_eq!(net.mode, crate::policy::NetMode::Allow);
        assert!(net.allow.is_empty() && net.bundles.is_empty());
        assert!(net.publish.is_empty() && net.host_ports.is_empty() && net.secrets.is_empty());
        assert!(env.pass.is_empty() && !env.git_identity);
        assert_eq!(lock.nesting, default_policy().lock.nesting);
        assert_eq!(stack.policy.guard, default_policy().guard);
    }

    #[test]
    fn a_misspelt_name_is_guessed_and_a_strange_one_is_not() {
        assert_eq!(like("cluade"), Some("claude"));
        assert_eq!(like("Strict"), Some("strict"));
        assert_eq!(like("offlin"), Some("offline"));
        assert_eq!(like("docker"), None);
        assert_eq!(like(&"x".repeat(1 << 20)), None);
    }
}
