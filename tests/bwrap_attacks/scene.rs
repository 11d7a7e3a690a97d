//! A project with a link in it, what lies beside it, and every option that could be led astray.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::launchers::{Launcher, tree};
use crate::support::{Ran, World, exists};

/// Options with a destination. `@` stands for it; data comes from standard input.
pub(crate) const OPTIONS: [&str; 20] = [
    "--dir @",
    "--perms 0700 --dir @",
    "--file 0 @",
    "--bind-data 0 @",
    "--ro-bind-data 0 @",
    "--perms 0666 --ro-bind-data 0 @",
    "--ro-bind /dev/null @",
    "--ro-bind-try /dev/null @",
    "--bind /usr @",
    "--ro-bind /usr @",
    "--dev-bind /dev @",
    "--tmpfs @",
    "--perms 0700 --size 4096 --tmpfs @",
    "--symlink target @",
    "--chmod 0777 @",
    "--remount-ro @",
    "--proc @",
    "--dev @",
    "--mqueue @",
    "--bind-fd 0 @",
];

/// What the distribution's bubblewrap does not know yet.
pub(crate) const NEWER_OPTIONS: [&str; 3] = [
    "--overlay-src /usr --tmp-overlay @",
    "--overlay-src /usr --overlay-src /etc --ro-overlay @",
    "--overlay-src /usr --overlay UPPER WORK @",
];

/// Where a link points and what is named below it.
pub(crate) const ENDINGS: [(&str, &str); 6] = [
    ("", "/made/leaf"),
    ("", "/leaf"),
    ("", "/precious"),
    ("/precious", ""),
    ("/missing", ""),
    ("/folder", ""),
];

/// The project and, beside it, what nobody has given away.
pub(crate) struct Scene {
    pub(crate) world: World,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let world = World::new();
        world.write("victim/precious", "precious\n");
        world.write("victim/folder/kept", "kept\n");
        world.write("w/inner/own", "own\n");
        std::fs::create_dir(world.path("upper")).unwrap();
        std::fs::create_dir(world.path("work")).unwrap();
        Self { world }
    }

    pub(crate) fn victim(&self) -> PathBuf {
        self.world.path("victim")
    }

    pub(crate) fn link(&self, to: &str) {
        let link = self.world.work().join("x");
        if exists(&link) {
            std::fs::remove_file(&link).unwrap();
        }
        symlink(to, &link).unwrap();
    }

    /// Runs `true` after this option, with the folder shared and everything else read-only.
    pub(crate) fn run(&self, launcher: Launcher, base: &[&str], option: &str, at: &str) -> Ran {
        let place = |name: &str| self.world.path(name).display().to_string();
        let work = place("w");
        let mut command = launcher.command(&self.world);
        // Without the ipc namespace a user cannot have message queues.
        command.arg("--unshare-ipc");
        command.args(base).args(["--bind", &work, &work]);
        for word in option.split(' ') {
            match word {
                "@" => command.arg(at),
                "UPPER" => command.arg(place("upper")),
                "WORK" => command.arg(place("work")),
                other => command.arg(other),
            };
        }
        if option.contains("-fd 0") {
            command.stdin(std::fs::File::open("/usr").unwrap());
        }
        Ran::of(command.arg("true"))
    }

    /// Whether this left a trace where nothing was shared; if it did, the scene is made anew.
    pub(crate) fn struck(&mut self, launcher: Launcher, base: &[&str], attack: &Attack) -> bool {
        let victim = self.victim();
        let at = attack.at.replace("VICTIM", victim.to_str().unwrap());
        let at = at.replace("PROJECT", self.world.work().to_str().unwrap());
        if let Some(link) = &attack.link {
            self.link(&link.replace("VICTIM", victim.to_str().unwrap()));
        }
        let before = tree(&victim);
        self.run(launcher, base, attack.option, &at);
        let struck = tree(&victim) != before;
        if struck {
            *self = Self::new();
        }
        struck
    }
}

/// One line of arguments over one link.
#[derive(Debug, Clone)]
pub(crate) struct Attack {
    pub(crate) option: &'static str,
    /// The target of the link `x` in the project.
    pub(crate) link: Option<String>,
    pub(crate) at: String,
}

/// All options over all links, the last component and those before.
pub(crate) fn attacks(options: &[&'static str], prefixes: &[String]) -> Vec<Attack> {
    let mut list = Vec::new();
    for prefix in prefixes {
        for option in options {
            for (end_of_link, end_of_place) in ENDINGS {
                // A file is no place for a folder, but to change its mode it is.
                let needs_no_file = !option.contains("chmod") && end_of_place == "/precious";
                if needs_no_file {
                    continue;
                }
                list.push(Attack {
                    option,
                    link: Some(format!("{prefix}{end_of_link}")),
                    at: format!("PROJECT/x{end_of_place}"),
                });
            }
        }
    }
    list
}
