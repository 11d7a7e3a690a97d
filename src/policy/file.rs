//! The TOML form of a policy: every key may be absent, none may be unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::egress::{
    BundleName, HostPattern, HostPort, Name, Publish, Rate, SecretSpec, UpstreamChoice,
};
use super::words::{
    self, Cap, DeniedPattern, EnvName, EnvPattern, GuardName, Later, PolicyName, Sentence,
};
use super::{Bytes, Isolation, Layer, NetMode};

/// One layer: what a policy file says, or the flags of one command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
#[schemars(title = "cowork-linux policy")]
pub struct PolicyFile {
    /// What the policy is called.
    pub name: Option<PolicyName>,
    /// One sentence for `policy list`.
    pub about: Option<Sentence>,
    /// A built-in policy whose keys come first.
    pub extends: Option<PolicyName>,
    pub files: FilesPart,
    pub net: NetPart,
    pub guard: GuardPart,
    pub env: EnvPart,
    pub limits: LimitsPart,
    pub lock: LockPart,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FilesPart {
    /// Folders shared with the box, `SRC[:DST][:MODE]`, before the inherited ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub mounts: Option<Vec<PathBuf>>,
    /// Host paths shown read-only at the same place, after the inherited ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub visible: Option<Vec<PathBuf>>,
    /// Every mount becomes read-only.
    pub read_only_workspace: Option<bool>,
    /// Whether the session has an `outputs` of its own below mnt; without one that name is free.
    pub own_outputs: Option<bool>,
    /// Make /usr/local/bin a folder into which programs can be mounted while the session runs.
    pub changeable_programs: Option<bool>,
    /// How much /tmp, /run, /var/tmp and /dev/shm may hold together, such as "512M".
    #[serde(deserialize_with = "words::size")]
    #[schemars(with = "Option<String>")]
    pub tmp_size: Option<Bytes>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct NetPart {
    #[serde(deserialize_with = "words::net_mode")]
    #[schemars(with = "Option<NetMode>")]
    pub mode: Option<NetMode>,
    /// Whether programs may talk TCP to each other over the box's own loopback.
    pub loopback: Option<bool>,
    /// Whether connections of programs that know no proxy are led to the gateway too.
    pub redirect: Option<bool>,
    /// Hosts that may be reached with the mode `allow`, `HOST[:PORTS]`, besides the inherited
    /// ones; `[]` drops those. Without ports: 80 and 443.
    #[serde(deserialize_with = "words::list")]
    pub allow: Option<Vec<HostPattern>>,
    /// Hosts that may not be reached whatever else is said, besides the inherited ones; `[]` drops
    /// those. Without ports: every port.
    #[serde(deserialize_with = "words::list")]
    pub deny: Option<Vec<DeniedPattern>>,
    /// Lists of hosts by name, besides the inherited ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub bundles: Option<Vec<BundleName>>,
    /// `http://HOST:PORT` or `socks5://HOST:PORT` through which everything goes, "env" for the
    /// caller's own, or "none". No user and password.
    #[schemars(with = "Option<String>")]
    pub upstream_proxy: Option<Later<Cap<UpstreamChoice>>>,
    /// Ports of the box that the host can reach, `[IP:]HOSTPORT:BOXPORT`, besides the inherited
    /// ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub publish: Option<Vec<Publish>>,
    /// Ports of the host's loopback that the box can reach at its own, besides the inherited ones;
    /// `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub host_ports: Option<Vec<HostPort>>,
    /// Values added outside on the way to one host, `NAME[=env:VARIABLE|=file:PATH]@HOST[:HEADER]`,
    /// besides the inherited ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    #[schemars(with = "Option<Vec<String>>")]
    pub secrets: Option<Vec<Later<SecretSpec>>>,
    /// Hosts whose TLS ends at the gateway, so that requests can be seen, besides the inherited
    /// ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    #[schemars(with = "Option<Vec<String>>")]
    pub tls_audit: Option<Vec<Name>>,
    /// How many connections at a time, at most 65536.
    #[serde(deserialize_with = "words::connections")]
    #[schemars(range(min = 1, max = 65536))]
    pub connections: Option<u32>,
    /// Bytes in a second both ways together, such as "10M"; or "none".
    #[serde(deserialize_with = "words::rate")]
    #[schemars(with = "Option<String>")]
    pub rate: Option<Cap<Rate>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct GuardPart {
    pub enabled: Option<bool>,
    /// Watch git's own directories: hooks, and configuration that names programs.
    pub git: Option<bool>,
    /// The guarded names, in place of the inherited ones.
    #[serde(deserialize_with = "words::list")]
    pub names: Option<Vec<GuardName>>,
    /// Names to take off the list.
    #[serde(deserialize_with = "words::list")]
    pub lift: Option<Vec<GuardName>>,
    /// Names to put on the list.
    #[serde(deserialize_with = "words::list")]
    pub add: Option<Vec<GuardName>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EnvPart {
    /// Variables handed on from the caller, after the inherited ones; `[]` drops those.
    #[serde(deserialize_with = "words::list")]
    pub pass: Option<Vec<EnvPattern>>,
    /// Variables set in the box; nothing in their values is expanded.
    #[serde(deserialize_with = "words::values")]
    pub set: Option<BTreeMap<EnvName, String>>,
    /// Tell git inside who the user is.
    pub git_identity: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitsPart {
    /// How long the program may run, such as "2h"; or "none".
    #[serde(deserialize_with = "words::timeout")]
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Cap<Duration>>,
    /// Open files per process; or "none".
    #[serde(deserialize_with = "words::count")]
    #[schemars(with = "Option<CountForm>")]
    pub open_files: Option<Cap<NonZeroU64>>,
    /// Processes and threads of the box's user; or "none".
    #[serde(deserialize_with = "words::count")]
    #[schemars(with = "Option<CountForm>")]
    pub processes: Option<Cap<NonZeroU64>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LockPart {
    pub isolation: Option<Isolation>,
    /// Name of a built-in filter, or the path of an OCI seccomp profile (with a `/` in it).
    pub seccomp: Option<String>,
    /// Let programs inside bring a sandbox of their own.
    pub nesting: Option<bool>,
    /// Layers that may be absent on this host, besides the inherited ones; `[]` drops those.
    pub allow_missing: Option<BTreeSet<Layer>>,
}

/// A whole number of at least 1, or the word "none".
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum CountForm {
    Number(NonZeroU64),
    Word(NoneWord),
}

#[derive(schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(dead_code)]
enum NoneWord {
    None,
}

impl PolicyFile {
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The JSON schema of the file form, for editors.
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(PolicyFile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        PolicyFile::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let why = refusal("[net]\nmode = \"none\"\nlopback = true\n");
        assert!(why.contains("line 3"), "{why}");
        assert!(why.contains("unknown field `lopback`"), "{why}");
        assert!(refusal("[nett]\n").contains("nett"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line() {
        for (text, word) in [
            (
                "[net]\nallow = [\"https://a.example\"]",
                "leave out the scheme",
            ),
            ("[net]\nallow = [\"evil*.example\"]", "at the front"),
            ("[net]\nallow = \"a.example\"", "expected a sequence"),
            ("[net]\ndeny = [\"a.example:0\"]", "no port"),
            ("[net]\nbundles = [\"npm\"]", "there are claude"),
            ("[net]\npublish = [\"80\"]", "HOSTPORT:BOXPORT"),
            ("[net]\nhost-ports = [3128]", "is taken"),
            ("[net]\nhost-ports = [70000]", "u16"),
            ("[net]\ntls-audit = [\"*.a.example\"]", "pattern"),
            ("[net]\nconnections = 0", "1 to 65536"),
            ("[net]\nconnections = 65537", "1 to 65536"),
            ("[net]\nconnections = \"none\"", "1 to 65536"),
            ("[net]\nrate = \"10\"", "at least 1K"),
            ("[net]\nrate = 10", "expected a string"),
            ("[net]\nsecrets = [5]", "expected a string"),
            ("[net]\nmode = \"off\"", "unknown variant `off`"),
            ("[net]\nloopback = \"false\"", "expected a boolean"),
            ("[files]\ntmp-size = 5", "expected a string"),
            ("[files]\ntmp-size = \"99999999999G\"", "too large"),
            ("[files]\nmounts = \"a\"", "expected a sequence"),
            ("[limits]\nprocesses = 0", "at least 1"),
            ("[limits]\nprocesses = -1", "at least 1"),
            ("[limits]\nprocesses = \"443\"", "at least 1"),
            ("[limits]\nprocesses = 99999999999999999999", "number"),
            ("[limits]\nopen-files = 1.5", "floating point"),
            ("[limits]\ntimeout = \"0s\"", "lets nothing run"),
            (
                "[limits]\ntimeout = \"99999999999999999999y\"",
                "is not a time",
            ),
            ("[env]\npass = [\"*\"]", "every variable"),
            ("[env]\nset = { A = \"\\u0000\" }", "NUL"),
            ("[guard]\nadd = [\"/etc\"]", "any depth"),
            (
                "[lock]\nallow-missing = [\"walls\"]",
                "unknown variant `walls`",
            ),
            ("\nabout = \"\\u001b[2J\"", "control character"),
            ("\nname = \"../x\"", "is not a policy name"),
        ] {
            let why = refusal(text);
            assert!(why.contains(word), "{text}: {why}");
            assert!(why.contains("line 2"), "{text}: {why}");
        }
    }

    #[test]
    fn a_key_said_twice_is_an_error() {
        assert!(refusal("[net]\nmode = \"none\"\nmode = \"host\"").contains("duplicate key"));
        assert!(refusal("[net]\n[net]\n").contains("duplicate key"));
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let text = format!("[env]\npass = [{}]", "\"A\",".repeat(100_000));
        assert!(refusal(&text).contains("at most 1024"));
    }

    #[test]
    fn the_schema_speaks_the_file_s_words() {
        let schema = serde_json::to_string(&PolicyFile::schema()).unwrap();
        for word in [
            "read-only-workspace",
            "allow-missing",
            "git-identity",
            "landlock-scopes",
            "upstream-proxy",
            "HOSTPORT:BOXPORT",
        ] {
            assert!(schema.contains(word), "{word}");
        }
        assert!(schema.contains("\"additionalProperties\":false"));
    }
}
