//! What an agent could do to a repository so that git on the host runs something for it.

/// An attack on one repository: what the agent does in it, and what its owner does later.
/// `RUN` stands for a program that leaves a mark, `OUT` for a folder of the session on the host.
pub(crate) struct Attack(
    pub(crate) &'static str,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

pub(crate) const EVIL: &str = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@x; evil() { mkdir -p $1 && printf '[core]\\nrepositoryformatversion=0\\nbare=false\\nfsmonitor=RUN\\n' > $1/config && \
    mkdir -p $1/objects $1/refs && echo 'ref: refs/heads/main' > $1/HEAD; }; hook() { printf '#!/bin/sh\\nRUN\\n' > $1 && chmod +x $1; }; ";

pub(crate) const ATTACKS: &[Attack] = &[
    Attack(
        "hook",
        "hook .git/hooks/post-checkout",
        "git checkout -q -b x",
    ),
    Attack(
        "hook-sample",
        "hook .git/hooks/a.sample; mv .git/hooks/a.sample .git/hooks/post-checkout",
        "git checkout -q -b x",
    ),
    Attack(
        "hook-link",
        "hook h; rm -rf .git/hooks; ln -s ../ .git/hooks; mv h post-checkout",
        "git checkout -q -b x",
    ),
    Attack(
        "hook-moved-in",
        "mkdir hk; hook hk/post-checkout; mv .git/hooks .git/old; mv hk .git/hooks",
        "git checkout -q -b x",
    ),
    Attack(
        "hook-hard-link",
        "hook h; ln h .git/hooks/post-checkout",
        "git checkout -q -b x",
    ),
    Attack(
        "hooks-path",
        "mkdir hk; hook hk/post-checkout; git config core.hooksPath hk",
        "git checkout -q -b x",
    ),
    Attack("fsmonitor", "git config core.fsmonitor RUN", "git status"),
    Attack(
        "fsmonitor-by-hand",
        "printf '[core]\\nfsmonitor=RUN\\n' >> .git/config",
        "git status",
    ),
    Attack(
        "fsmonitor-odd-spelling",
        "printf '[CoRe]FsMonitor=RUN\\n' >> .git/config",
        "git status",
    ),
    Attack(
        "config-replaced",
        "cp .git/config c; printf '[core]\\nfsmonitor=RUN\\n' >> c; mv c .git/config",
        "git status",
    ),
    Attack(
        "config-hard-link",
        "ln .git/config c; printf '[core]\\nfsmonitor=RUN\\n' >> c",
        "git status",
    ),
    Attack(
        "config-link",
        "printf '[core]\\nfsmonitor=RUN\\n' > c; rm -f .git/config; ln -s ../c .git/config",
        "git status",
    ),
    Attack(
        "config-through-link",
        "ln -s .git g; printf '[core]\\nfsmonitor=RUN\\n' >> g/config",
        "git status",
    ),
    Attack(
        "config-through-dots",
        "mkdir d; printf '[core]\\nfsmonitor=RUN\\n' >> d/..//.git/./config",
        "git status",
    ),
    Attack(
        "config-lock",
        "printf '[core]\\nfsmonitor=RUN\\n' > .git/config.lock; mv .git/config.lock .git/config",
        "git status",
    ),
    Attack(
        "config-held-open",
        "exec 9>.git/config.lock; cat .git/config >&9; mv .git/config.lock .git/config; printf '[core]\\nfsmonitor=RUN\\n' >&9",
        "git status",
    ),
    Attack(
        "include",
        "printf '[core]\\nfsmonitor=RUN\\n' > c; git config include.path ../c",
        "git status",
    ),
    Attack(
        "include-if",
        "printf '[core]\\nfsmonitor=RUN\\n' > c; git config includeIf.gitdir:**.path ../c",
        "git status",
    ),
    Attack(
        "worktree-config",
        "git config extensions.worktreeConfig true; printf '[core]\\nfsmonitor=RUN\\n' > .git/config.worktree",
        "git status",
    ),
    Attack("alias", "git config alias.st '!RUN'", "git st"),
    Attack(
        "pager",
        "git config core.pager RUN; git config pager.status true",
        "script -qec 'git --paginate status' /dev/null",
    ),
    Attack(
        "editor",
        "git config core.editor RUN",
        "git commit --allow-empty --amend",
    ),
    Attack(
        "filter",
        "echo '* filter=x' > .gitattributes; git config filter.x.clean RUN",
        "git add .",
    ),
    Attack(
        "diff-driver",
        "echo '* diff=x' > .gitattributes; git config diff.x.textconv RUN; echo y >> f",
        "git diff",
    ),
    Attack(
        "diff-external",
        "git config diff.external RUN; echo y >> f",
        "git diff",
    ),
    Attack(
        "merge-driver",
        "echo '* merge=x' > .gitattributes; git config merge.x.driver RUN; git checkout -q -b a; echo a > f; git commit -qam a; git checkout -q -; echo b > f; git commit -qam b",
        "git merge a",
    ),
    Attack(
        "gpg",
        "git config gpg.program RUN; git config commit.gpgSign true",
        "git commit -q --allow-empty -m x",
    ),
    Attack(
        "credential",
        "git config credential.helper '!RUN;:'",
        "printf 'protocol=https\\nhost=x\\n\\n' | GIT_ASKPASS=true git credential fill",
    ),
    Attack(
        "moved-away",
        "mv .git .g; printf '[core]\\nfsmonitor=RUN\\n' >> .g/config; mv .g .git",
        "git status",
    ),
    Attack(
        "copied-and-moved",
        "cp -a .git g2; printf '[core]\\nfsmonitor=RUN\\n' >> g2/config; mv .git old; mv g2 .git",
        "git status",
    ),
    Attack("removed-and-made", "rm -rf .git; evil .git", "git status"),
    Attack(
        "commondir",
        "evil ev; echo ../ev > .git/commondir",
        "git status",
    ),
    Attack(
        "commondir-with-links",
        "mkdir ev; ln -s ../.git/objects ev/objects; ln -s ../.git/refs ev/refs; printf '[core]\\nfsmonitor=RUN\\n' > ev/config; echo ../ev > .git/commondir",
        "git status",
    ),
    Attack(
        "commondir-late-links",
        "mkdir ev; printf '[core]\\nfsmonitor=RUN\\n' > ev/config; ln -s ../.git/objects ev/objects; ln -s ../.git/refs ev/refs; echo ../ev > .git/commondir",
        "git status",
    ),
    Attack(
        "worktree-commondir",
        "git worktree add -q wt; evil ev; echo ../../../ev > .git/worktrees/wt/commondir",
        "git -C wt status",
    ),
    Attack(
        "worktree-pointer",
        "git worktree add -q wt; evil ev; echo gitdir: ../ev > wt/.git",
        "git -C wt status",
    ),
    Attack(
        "nested-pointer",
        "evil ev; mkdir sub; echo gitdir: ../ev > sub/.git",
        "git -C sub status",
    ),
    Attack(
        "nested-pointer-to-odd-name",
        "mkdir -p ev/x; printf '[core]\\nfsmonitor=RUN\\n' > ev/x/config; mkdir ev/y; mkdir ev/y/objects ev/y/refs; echo 'ref: refs/heads/m' > ev/y/HEAD; mv ev/x/config ev/y/config; mkdir sub; echo gitdir: ../ev/y > sub/.git",
        "git -C sub status",
    ),
    Attack(
        "nested",
        "git init -q sub; git -C sub config core.fsmonitor RUN",
        "git -C sub status",
    ),
    Attack(
        "nested-by-hand",
        "mkdir sub; evil sub/.git",
        "git -C sub status",
    ),
    Attack(
        "nested-hook",
        "git init -q sub; hook sub/.git/hooks/pre-commit",
        "git -C sub commit -q --allow-empty -m x",
    ),
    Attack(
        "nested-link",
        "evil ev; mkdir sub; ln -s ../ev sub/.git",
        "git -C sub status",
    ),
    Attack(
        "nested-moved",
        "mkdir -p s2/g; evil s2/g; mv s2/g s2/.git",
        "git -C s2 status",
    ),
    Attack(
        "nested-parent-moved",
        "git init -q a; mv a b; git -C b config core.fsmonitor RUN",
        "git -C b status",
    ),
    Attack(
        "bare",
        "evil bare; printf '[core]\\nworktree=..\\n' >> bare/config",
        "cd bare && git status",
    ),
    Attack(
        "bare-by-git",
        "git init -q --bare b; git -C b config core.fsmonitor RUN; git -C b config core.bare false; git -C b config core.worktree ..",
        "cd b && git status",
    ),
    Attack(
        "submodule",
        "evil .git/modules/x; mkdir sub; echo gitdir: ../.git/modules/x > sub/.git",
        "git -C sub status",
    ),
    Attack(
        "other-case",
        "evil .GIT; mv .git x; mv .GIT .git",
        "git status",
    ),
];

/// The session's own folders lie on the host as well, and the box can read where.
pub(crate) const FROM_THE_SESSION: &[Attack] = &[
    Attack(
        "session-folder",
        "evil \"$OUT_INSIDE\"/ev-$NAME; mkdir sub; echo gitdir: OUT/ev-$NAME > sub/.git",
        "git -C sub status",
    ),
    Attack(
        "session-home",
        "evil ~/ev-$NAME; mkdir sub; echo gitdir: HOME_OUT/ev-$NAME > sub/.git",
        "git -C sub status",
    ),
];
