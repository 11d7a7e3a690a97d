//! Laying one layer over another, and who may widen what.

use std::path::Path;

use super::builtin::{self, BuiltIn};
use super::error::ValueError;
use super::expand::{Environment, Paths};
use super::file::{FilesPart, GuardPart, LockPart};
use super::key::{Key, Origin, Origins};
use super::{Cap, GuardName, Policy, PolicyError, PolicyFile, TrustStore};

/// A policy with some layers on it.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    pub(super) policy: Policy,
    pub(super) origins: Origins,
}

impl Stack {
    pub(super) fn new() -> Self {
        Self {
            policy: builtin::default_policy(),
            origins: Origins::all_from(Origin::BuiltIn("default")),
        }
    }

    /// The parents of a built-in or a file, oldest first. `default` is below everything already.
    fn parents(file: &PolicyFile) -> Result<Vec<(&'static BuiltIn, PolicyFile)>, PolicyError> {
        let mut parents: Vec<(&'static BuiltIn, PolicyFile)> = Vec::new();
        let mut next = file.extends.clone();
        while let Some(name) = next.filter(|name| name.as_str() != "default") {
            let parent = builtin::find(name.as_str())?;
            if parents.len() == builtin::ALL.len() {
                return Err(PolicyError::Circle(name.into()));
            }
            let file = parent.file()?;
            next = file.extends.clone();
            parents.insert(0, (parent, file));
        }
        Ok(parents)
    }

    /// A built-in policy with its parents, and its name.
    pub(super) fn lay_named(&mut self, one: &'static BuiltIn) -> Result<(), PolicyError> {
        one.name.clone_into(&mut self.policy.name);
        if one.name == "default" && self.origins == Self::new().origins {
            return Ok(());
        }
        let file = one.file()?;
        self.lay_parents(&file)?;
        self.lay_built_in(one, &file)
    }

    fn lay_parents(&mut self, file: &PolicyFile) -> Result<(), PolicyError> {
        for (parent, file) in Self::parents(file)? {
            self.lay_built_in(parent, &file)?;
        }
        Ok(())
    }

    pub(super) fn lay_built_in(
        &mut self,
        one: &'static BuiltIn,
        file: &PolicyFile,
    ) -> Result<(), PolicyError> {
        self.lay(Origin::BuiltIn(one.name), file, Paths::AsGiven)
    }

    pub(super) fn lay_file(
        &mut self,
        origin: Origin,
        path: &Path,
        text: &str,
        env: Environment<'_>,
    ) -> Result<(), PolicyError> {
        let file = PolicyFile::parse(text).map_err(|source| PolicyError::Syntax {
            place: path.display().to_string(),
            source: Box::new(source),
        })?;
        self.lay_parents(&file)?;
        if !matches!(origin, Origin::Project(_)) {
            match (&file.name, path.file_stem()) {
                (Some(name), _) => name.as_str().clone_into(&mut self.policy.name),
                (None, Some(stem)) if matches!(origin, Origin::Named(_)) => {
                    self.policy.name = stem.to_string_lossy().into_owned();
                }
                _ => {}
            }
        }
        self.lay(origin, &file, Paths::In(path.parent().unwrap_or(path), env))
    }

    pub(super) fn lay_project(
        &mut self,
        path: &Path,
        text: &str,
        env: Environment<'_>,
    ) -> Result<(), PolicyError> {
        let before = self.policy.clone();
        self.lay_file(Origin::Project(path.to_owned()), path, text, env)?;
        let keys = self.policy.wider_than(&before);
        // Nowhere to keep trust means that nobody has given any.
        let trusted = || TrustStore::of(env).map_or(Ok(false), |store| store.trusts(path, text));
        if keys.is_empty() || trusted()? {
            return Ok(());
        }
        Err(PolicyError::Widens {
            path: path.to_owned(),
            keys,
        })
    }

    /// Lays one layer over what is there. A list that grants grows, and an empty one takes
    /// everything back; all else is replaced by what the layer says.
    pub(super) fn lay(
        &mut self,
        origin: Origin,
        layer: &PolicyFile,
        paths: Paths<'_>,
    ) -> Result<(), PolicyError> {
        let place = origin.clone();
        let bad = |key: Key| {
            let place = &place;
            move |why: ValueError| PolicyError::Value {
                place: place.to_string(),
                key,
                why,
            }
        };
        self.origins.enter(origin);
        self.lay_files(&layer.files, paths, &bad)?;
        self.lay_guard(&layer.guard);
        let Self { policy, origins } = self;
        policy
            .net
            .lay(&layer.net, &place, origins, paths)
            .map_err(|(key, why)| bad(key)(why))?;
        let env = &layer.env;
        if let Some(pass) = &env.pass {
            let names = pass.iter().map(|name| name.as_str().to_owned());
            grow(origins, Key::EnvPass, &mut policy.env.pass, names.collect());
        }
        if let Some(set) = &env.set {
            let pairs = set
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.clone()));
            policy.env.set.extend(pairs);
            origins.join(Key::EnvSet);
        }
        put(
            origins,
            Key::GitIdentity,
            &mut policy.env.git_identity,
            env.git_identity,
        );
        let limits = &layer.limits;
        let count = |cap: Cap<std::num::NonZeroU64>| cap.limit().map(u64::from);
        put(
            origins,
            Key::Timeout,
            &mut policy.limits.timeout,
            limits.timeout.map(Cap::limit),
        );
        put(
            origins,
            Key::OpenFiles,
            &mut policy.limits.open_files,
            limits.open_files.map(count),
        );
        put(
            origins,
            Key::Processes,
            &mut policy.limits.processes,
            limits.processes.map(count),
        );
        self.lay_lock(&layer.lock, paths, matches!(place, Origin::Project(_)))
            .map_err(bad(Key::Seccomp))
    }

    fn lay_files<B>(
        &mut self,
        layer: &FilesPart,
        paths: Paths<'_>,
        bad: &impl Fn(Key) -> B,
    ) -> Result<(), PolicyError>
    where
        B: FnOnce(ValueError) -> PolicyError,
    {
        let Self { policy, origins } = self;
        let files = &mut policy.files;
        if let Some(mounts) = &layer.mounts {
            let nearer: Result<Vec<_>, _> = mounts.iter().map(|text| paths.mount(text)).collect();
            let nearer = nearer.map_err(bad(Key::Mounts))?;
            if nearer.is_empty() {
                files.mounts.clear();
                origins.set(Key::Mounts);
            } else {
                // The nearest layer's first: the first mount is where the program starts.
                let same = |a: &super::MountSpec, b: &super::MountSpec| {
                    a.source == b.source && a.place == b.place
                };
                files
                    .mounts
                    .retain(|old| !nearer.iter().any(|new| same(new, old)));
                files.mounts.splice(0..0, nearer);
                origins.join(Key::Mounts);
            }
        }
        if let Some(visible) = &layer.visible {
            let more: Result<Vec<_>, _> = visible.iter().map(|text| paths.path(text)).collect();
            let more = more.map_err(bad(Key::Visible))?;
            grow(origins, Key::Visible, &mut files.visible, more);
        }
        put(
            origins,
            Key::ReadOnlyWorkspace,
            &mut files.read_only_workspace,
            layer.read_only_workspace,
        );
        put(
            origins,
            Key::OwnOutputs,
            &mut files.own_outputs,
            layer.own_outputs,
        );
        put(
            origins,
            Key::ChangeablePrograms,
            &mut files.changeable_programs,
            layer.changeable_programs,
        );
        put(origins, Key::TmpSize, &mut files.tmp_size, layer.tmp_size);
        Ok(())
    }

    fn lay_guard(&mut self, layer: &GuardPart) {
        let Self { policy, origins } = self;
        let guard = &mut policy.guard;
        put(
            origins,
            Key::GuardEnabled,
            &mut guard.enabled,
            layer.enabled,
        );
        put(origins, Key::GuardGit, &mut guard.git, layer.git);
        let has = |list: &Option<Vec<GuardName>>, name: &str| {
            list.iter().flatten().any(|one| one.as_str() == name)
        };
        // What is both lifted and added stays guarded.
        let lifted = |name: &str| has(&layer.lift, name) && !has(&layer.add, name);
        if layer.names.is_some() {
            guard.names.clear();
            origins.set(Key::GuardNames);
        }
        let before = guard.names.len();
        guard.names.retain(|name| !lifted(name));
        if guard.names.len() < before {
            origins.join(Key::GuardNames);
        }
        let own = layer.names.iter().flatten();
        let own = own.filter(|name| !lifted(name.as_str()));
        for name in own.chain(layer.add.iter().flatten()) {
            if !guard.names.iter().any(|old| old == name.as_str()) {
                guard.names.push(name.as_str().to_owned());
            }
            origins.join(Key::GuardNames);
        }
    }

    fn lay_lock(
        &mut self,
        layer: &LockPart,
        paths: Paths<'_>,
        project: bool,
    ) -> Result<(), ValueError> {
        let Self { policy, origins } = self;
        let lock = &mut policy.lock;
        put(
            origins,
            Key::Isolation,
            &mut lock.isolation,
            layer.isolation,
        );
        put(origins, Key::Nesting, &mut lock.nesting, layer.nesting);
        let seccomp = match layer.seccomp.as_deref() {
            Some("") => return Err(ValueError::Empty),
            Some(path) if path.contains('/') && project => return Err(ValueError::ProjectFilter),
            Some(path) if path.contains('/') => Some(
                paths
                    .path(Path::new(path))?
                    .into_os_string()
                    .into_string()
                    .map_err(|path| ValueError::NotUtf8(path.to_string_lossy().into_owned()))?,
            ),
            name => name.map(str::to_owned),
        };
        put(origins, Key::Seccomp, &mut lock.seccomp, seccomp);
        if let Some(missing) = &layer.allow_missing {
            if missing.is_empty() {
                lock.allow_missing.clear();
                origins.set(Key::AllowMissing);
            } else {
                lock.allow_missing.extend(missing);
                origins.join(Key::AllowMissing);
            }
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn of_file(file: &PolicyFile) -> Self {
        let mut stack = Self::new();
        stack.lay_parents(file).unwrap();
        if let Some(name) = &file.name {
            name.as_str().clone_into(&mut stack.policy.name);
        }
        stack.lay(Origin::Flags, file, Paths::AsGiven).unwrap();
        stack
    }
}

pub(super) fn put<T>(origins: &mut Origins, key: Key, place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
        origins.set(key);
    }
}

pub(super) fn grow<T: PartialEq>(origins: &mut Origins, key: Key, list: &mut Vec<T>, more: Vec<T>) {
    if more.is_empty() {
        list.clear();
        origins.set(key);
        return;
    }
    for one in more {
        if !list.contains(&one) {
            list.push(one);
        }
    }
    origins.join(key);
}
