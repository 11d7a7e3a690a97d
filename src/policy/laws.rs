//! Laws of layering, tried on policies nobody would write.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::egress::*;
use super::expand::Paths;
use super::file::{EnvPart, FilesPart, GuardPart, LimitsPart, LockPart, NetPart};
use super::stack::Stack;
use super::*;

fn names() -> impl Strategy<Value = Vec<GuardName>> {
    let all = vec![".envrc", ".idea", ".npmrc", ".husky", "a/*/b", ".bashrc"];
    subsequence(all.clone(), 0..all.len())
        .prop_shuffle()
        .prop_map(|names| {
            names
                .into_iter()
                .map(|n| GuardName::parse(n).unwrap())
                .collect()
        })
}

fn patterns() -> impl Strategy<Value = Vec<EnvPattern>> {
    let one = select(vec![
        "LANG",
        "LC_*",
        "LC_ALL",
        "ANTHROPIC_*",
        "ANTHROPIC_API_KEY",
        "FOO",
    ]);
    vec(one.prop_map(|n| EnvPattern::parse(n).unwrap()), 0..4)
}

fn values() -> impl Strategy<Value = BTreeMap<EnvName, String>> {
    let name = select(vec!["IS_SANDBOX", "A", "B"]).prop_map(|n| EnvName::parse(n).unwrap());
    btree_map(name, "[01]", 0..3)
}

fn paths() -> impl Strategy<Value = Vec<PathBuf>> {
    let one = select(vec!["/a", "/a:ro", "/a:w", "/a:w:ro", "/b", "rel", "/c:/d"]);
    vec(one.prop_map(PathBuf::from), 0..4)
}

fn count() -> impl Strategy<Value = Cap<NonZeroU64>> {
    prop_oneof![
        Just(Cap::None),
        (1..100_000u64).prop_map(|n| Cap::At(NonZeroU64::new(n).unwrap()))
    ]
}

fn missing() -> impl Strategy<Value = BTreeSet<Layer>> {
    btree_set(select(Layer::ALL.to_vec()), 0..3)
}

prop_compose! {
    fn files()(mounts in of(paths()), visible in of(paths()), ro in of(any::<bool>()),
               own_outputs in of(any::<bool>()), changeable_programs in of(any::<bool>()),
               size in of(1..1u64 << 40)) -> FilesPart {
        FilesPart { mounts, visible, read_only_workspace: ro, own_outputs, changeable_programs,
                    tmp_size: size.map(Bytes) }
    }
}

prop_compose! {
    fn guard()(enabled in of(any::<bool>()), git in of(any::<bool>()), names_ in of(names()),
               lift in of(names()), add in of(names())) -> GuardPart {
        GuardPart { enabled, git, names: names_, lift, add }
    }
}

fn some<T: Clone + std::fmt::Debug + 'static>(
    words: &'static [&'static str],
    read: fn(&str) -> Result<T, String>,
) -> impl Strategy<Value = Option<Vec<T>>> {
    let all: Vec<T> = words.iter().map(|word| read(word).unwrap()).collect();
    of(subsequence(all.clone(), 0..=all.len()).prop_shuffle())
}

prop_compose! {
    fn hosts()(
        allow in some(
            &["*", "*:*", "a.example", "*.example:443", "b.a.example:22", "10.0.0.0/8", "[::1]:80"],
            HostPattern::parse,
        ),
        deny in some(&["*", "a.example", "*.example:443", "10.0.0.1"], |word| {
            DeniedPattern::try_from(word.to_owned())
        }),
        bundles in some(&["claude", "github", "registries"], BundleName::parse),
        proxy in of(select(vec!["none", "env", "http://p.example:3128", "socks5://10.0.0.1:1080"])),
        publish in some(&["8080:80", "0:80", "[::1]:1:2", "0.0.0.0:1:2"], Publish::parse),
        host_ports in some(&["1", "5432", "65535"], HostPort::parse),
        secrets in some(
            &["A@a.example", "A=env:B@a.example:x", "A=file:/a@b@b.example", "A=file:/c@a.example"],
            |word| Ok(Later::<SecretSpec>::from(word.to_owned())),
        ),
        tls_audit in some(&["a.example", "b.example"], |word| {
            Name::parse(word).map_err(|e| e.to_string())
        }),
        connections in of(1..=Net::MOST_CONNECTIONS),
        rate in of(select(vec!["none", "1K", "10M"])),
    ) -> NetPart {
        NetPart {
            allow, deny, bundles, publish, host_ports, secrets, tls_audit, connections,
            upstream_proxy: proxy.map(|word| Later::<Cap<_>>::from(word.to_owned())),
            rate: rate.map(|word| net_rate(word).unwrap()),
            ..NetPart::default()
        }
    }
}

prop_compose! {
    fn rest()(mode in of(select(NetMode::ALL.to_vec())), loopback in of(any::<bool>()),
              redirect in of(any::<bool>()), hosts in hosts(),
              pass in of(patterns()), set in of(values()), git_identity in of(any::<bool>()),
              time in of(of(1..100_000u64)), open_files in of(count()), processes in of(count()))
              -> (NetPart, EnvPart, LimitsPart) {
        let cap = |time: Option<u64>| time.map_or(Cap::None, |s| Cap::At(Duration::from_secs(s)));
        (
            NetPart { mode, loopback, redirect, ..hosts },
            EnvPart { pass, set, git_identity },
            LimitsPart { timeout: time.map(cap), open_files, processes },
        )
    }
}

prop_compose! {
    fn lock()(isolation in of(select(vec![Isolation::Namespaces, Isolation::Landlock])),
              seccomp in of(select(vec!["default", "nested"])), nesting in of(any::<bool>()),
              allow_missing in of(missing())) -> LockPart {
        LockPart { isolation, seccomp: seccomp.map(str::to_owned), nesting, allow_missing }
    }
}

prop_compose! {
    fn layer()(files in files(), guard in guard(), (net, env, limits) in rest(), lock in lock())
            -> PolicyFile {
        PolicyFile { files, guard, net, env, limits, lock, ..PolicyFile::default() }
    }
}

fn lay(stack: &Stack, layer: &PolicyFile) -> Stack {
    let mut stack = stack.clone();
    stack.lay(Origin::Flags, layer, Paths::AsGiven).unwrap();
    stack
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_layer_laid_twice_is_a_layer_laid_once(below in layer(), a in layer()) {
        let once = lay(&lay(&Stack::new(), &below), &a);
        prop_assert_eq!(&lay(&once, &a).policy, &once.policy);
    }

    #[test]
    fn an_empty_layer_changes_nothing(a in layer()) {
        let before = lay(&Stack::new(), &a);
        prop_assert_eq!(lay(&before, &PolicyFile::default()).policy, before.policy);
    }

    #[test]
    fn adding_a_guard_never_lifts_one(below in layer(), add in names()) {
        let before = lay(&Stack::new(), &below);
        let guard = GuardPart { add: Some(add.clone()), ..GuardPart::default() };
        let after = lay(&before, &PolicyFile { guard, ..PolicyFile::default() });
        prop_assert!(after.policy.at_least_as_tight(&before.policy));
        for name in before.policy.guard.names.iter().map(String::as_str)
            .chain(add.iter().map(GuardName::as_str)) {
            prop_assert!(after.policy.guard.names.iter().any(|n| n == name));
        }
    }

    #[test]
    fn a_key_that_widens_was_set_by_the_layer_that_widens_it(below in layer(), a in layer()) {
        let before = lay(&Stack::new(), &below);
        let after = lay(&before, &a);
        for key in after.policy.wider_than(&before.policy) {
            prop_assert!(after.origins.of(key).any(|o| *o == Origin::Flags), "{}", key);
        }
    }

    #[test]
    fn tightness_is_reflexive_and_transitive(a in layer(), b in layer(), c in layer()) {
        let a = lay(&Stack::new(), &a).policy;
        let b = lay(&Stack::new(), &b).policy;
        let c = lay(&Stack::new(), &c).policy;
        prop_assert!(a.at_least_as_tight(&a));
        if a.at_least_as_tight(&b) && b.at_least_as_tight(&c) {
            prop_assert!(a.at_least_as_tight(&c));
        }
    }

    #[test]
    fn an_untrusted_project_never_widens(
        below in layer(),
        project in layer(),
        keys in subsequence(Key::ALL.to_vec(), 0..4),
    ) {
        let home = tempfile::tempdir().unwrap();
        let env = |name: &str| (name == "HOME").then(|| home.path().into());
        let Stack { policy, origins } = lay(&Stack::new(), &project);
        let wished = Resolved { policy, origins, files: Vec::new() };
        // A few keys only: a project that says everything nearly always widens something.
        let line = |key: &Key| format!("{key} = {}\n", show::value(*key, &wished));
        let text: String = keys.iter().map(line).collect();
        let before = lay(&Stack::new(), &below);
        let mut after = before.clone();
        match after.lay_project(Path::new("/p/.cowork.toml"), &text, &env) {
            Ok(()) => prop_assert!(after.policy.at_least_as_tight(&before.policy)),
            Err(PolicyError::Widens { keys: named, .. }) => {
                prop_assert!(!named.is_empty() && named.iter().all(|key| keys.contains(key)));
            }
            Err(other) => prop_assert!(false, "{other}\n{text}"),
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again(a in layer()) {
        let stack = lay(&Stack::new(), &a);
        let mut wished = stack.policy.clone();
        // A mount or a path that is relative has no place to be relative to.
        wished.files.mounts.retain(|m| m.source.is_absolute());
        wished.files.visible.retain(|p| p.is_absolute());
        let text = as_toml(&Resolved { policy: wished.clone(), origins: stack.origins, files: Vec::new() }, true);
        let mut again = Stack::new();
        // What is inherited from the default could only be taken back, not be left out.
        again.policy.env.pass.clear();
        again.policy.env.set.clear();
        again.lay(Origin::Flags, &PolicyFile::parse(&text).unwrap(), Paths::AsGiven).unwrap();
        prop_assert_eq!(again.policy, wished);
    }

    #[test]
    fn parsing_never_panics(text in "\\PC{0,200}") {
        let _ = PolicyFile::parse(&text);
    }

    #[test]
    fn parsing_near_misses_never_panics(cut in 0..2000usize, junk in "[\\[\\]\"'={}.,\n#a-z0-9-]{0,8}") {
        let text = builtin::ALL[3].text;
        let cut = (0..=cut.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap();
        let _ = PolicyFile::parse(&format!("{}{junk}{}", &text[..cut], &text[cut..]));
    }
}
