//! Ids of sessions where a shell completes them, with the shells themselves.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::ground::Ground;
use crate::support::{Ran, binary};

/// Calls the function that the script registered, as bash does when TAB is pressed.
const BASH: &str = r#"
source "$1"; shift
function=$(complete -p cowork-linux); function=${function##*-F }; function=${function%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
compopt() { options="$*"; }
"$function" cowork-linux "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}" "options:$options"
"#;

/// With stand-ins for what talks to the line editor, which is not there.
const ZSH: &str = r#"
compdef() { }
source "$1"; shift
compadd() { [[ $1 == -a ]] && print -l -- "${(@P)2}" }
_arguments() { print static; return 1 }
words=("$@"); CURRENT=$#
_cowork-linux
"#;

const FISH: &str = r#"source $argv[1]; complete -C (string join -- ' ' $argv[2..-1])"#;

struct Shell {
    name: &'static str,
    before: &'static [&'static str],
    driver: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        before: &["--norc", "--noprofile", "-c"],
        driver: BASH,
    },
    Shell {
        name: "zsh",
        before: &["-f", "-c"],
        driver: ZSH,
    },
    Shell {
        name: "fish",
        before: &["--no-config", "-c"],
        driver: FISH,
    },
];

/// What only some hosts have; without bash there are no tests at all.
fn is_there(shell: &str) -> bool {
    let there = Ran::of(Command::new("sh").args(["-c", &format!("command -v {shell}")])).code == 0;
    let required = std::env::var("COWORK_TEST_REQUIRE").unwrap_or_default();
    let is_required = shell == "bash" || required.split(',').any(|name| name == shell);
    assert!(there || !is_required, "{shell} is not installed");
    there
}

/// A shell, the script for it, and a PATH on which the program is found.
struct Typist<'a> {
    ground: &'a Ground,
    shell: &'a Shell,
    script: PathBuf,
}

impl<'a> Typist<'a> {
    fn new(ground: &'a Ground, shell: &'a Shell) -> Self {
        let script = ground.say(&["completions", shell.name]).ok().out;
        let script = ground
            .world
            .write(&format!("script.{}", shell.name), &script);
        let path = ground.world.path("bin/cowork-linux");
        if !path.exists() {
            std::fs::create_dir(ground.world.path("bin")).unwrap();
            symlink(binary(), path).unwrap();
        }
        Self {
            ground,
            shell,
            script,
        }
    }

    /// What is offered at the end of a line.
    fn offered(&self, line: &str) -> Vec<String> {
        let mut command = Command::new(self.shell.name);
        self.ground.surround(&mut command);
        let path = format!("{}:/usr/bin:/bin", self.ground.world.path("bin").display());
        command.env("PATH", path);
        command.args(self.shell.before).arg(self.shell.driver);
        if self.shell.name != "fish" {
            command.arg("driver"); // $0
        }
        command.arg(&self.script).args(line.split(' '));
        let ran = Ran::of(&mut command);
        assert_eq!(ran.err, "", "{}: {line}", self.shell.name);
        let lines = ran.out.lines().filter(|line| !line.is_empty());
        let lines = lines.map(|line| line.split('\t').next().unwrap().to_owned());
        lines.collect()
    }

    fn ids(&self, line: &str) -> Vec<String> {
        let mut offered = self.offered(line);
        offered.retain(|word| !word.starts_with("options:"));
        offered
    }
}

fn grounds() -> Ground {
    let ground = Ground::new();
    ground.sleeper("alpha");
    ground.sleeper("alpine");
    ground.start(&["--name", "over"], &["true"]);
    ground.becomes("over", "ended");
    ground.start(&["--name", "gone"], &["true"]);
    ground.becomes("gone", "ended");
    ground.say(&["rm", "gone"]).ok();
    ground
}

#[test]
fn shells_offer_the_sessions_that_a_command_is_for() {
    let ground = grounds();
    for shell in SHELLS.iter().filter(|shell| is_there(shell.name)) {
        let typist = Typist::new(&ground, shell);
        for (line, expected) in [
            ("exec ", &["alpha", "alpine"][..]),
            ("exec al", &["alpha", "alpine"]),
            ("exec alph", &["alpha"]),
            ("exec -e A=b -it alph", &["alpha"]),
            ("attach ", &["alpha", "alpine"]),
            ("stop ", &["alpha", "alpine"]),
            ("stop -t 5 alpha ", &["alpine"]),
            ("pause alpi", &["alpine"]),
            ("mount a", &["alpha", "alpine"]),
            ("limit alpha --memory 1G", &[]),
            ("rm ", &["over"]),
            ("rm -f ", &["alpha", "alpine", "over"]),
            ("logs ", &["alpha", "alpine", "over"]),
            ("inspect o", &["over"]),
            ("history ", &["alpha", "alpine", "gone", "over"]),
            ("why --session g", &["gone"]),
            ("exec over", &[]),
            ("exec zzz", &[]),
        ] {
            let line = format!("cowork-linux {line}");
            let offered = typist.ids(&line);
            let offered: Vec<_> = offered.iter().filter(|word| *word != "static").collect();
            assert_eq!(offered, expected, "{}: {line}", shell.name);
        }
    }
}

/// What is no id is left to what clap made.
#[test]
fn shells_still_offer_everything_else() {
    let ground = grounds();
    for shell in SHELLS.iter().filter(|shell| is_there(shell.name)) {
        let typist = Typist::new(&ground, shell);
        for (line, expected) in [
            ("cowork-linux ex", "exec"),
            ("cowork-linux stop --ti", "--time"),
            ("cowork-linux run --dry", "--dry-run"),
        ] {
            let offered = typist.ids(line);
            let expected = if shell.name == "zsh" {
                "static"
            } else {
                expected
            };
            let is_there = offered.iter().any(|word| word.starts_with(expected));
            assert!(is_there, "{}: {line}: {offered:?}", shell.name);
            assert!(!offered.contains(&"alpha".to_owned()), "{offered:?}");
        }
    }
}

/// bash would offer files where it is offered nothing.
#[test]
fn bash_offers_no_files_for_ids() {
    let ground = grounds();
    let typist = Typist::new(&ground, &SHELLS[0]);
    let nothing = typist.offered("cowork-linux exec zzz");
    assert_eq!(nothing, ["options:+o default +o bashdefault"]);
    let command = typist.offered("cowork-linux exec alpha ./fi");
    assert!(command.contains(&"options:".to_owned()), "{command:?}");
}

/// A program in the folder one happens to be in is not run because its name was typed.
#[test]
fn only_the_program_on_the_path_is_asked() {
    let ground = grounds();
    let trap = ground
        .world
        .write("cowork-linux", "#!/bin/sh\ntouch sprung\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&trap, mode).unwrap();
    Ran::of(Command::new(&trap).current_dir(ground.world.path(""))).ok();
    let sprung = ground.world.path("sprung");
    assert!(sprung.exists(), "the control");
    std::fs::remove_file(&sprung).unwrap();
    for shell in SHELLS.iter().filter(|shell| is_there(shell.name)) {
        let typist = Typist::new(&ground, shell);
        typist.offered("./cowork-linux exec a");
        assert!(!sprung.exists(), "{}", shell.name);
    }
}

/// A session whose supervisor does not answer is offered at once.
#[test]
fn nobody_is_waited_for() {
    let ground = grounds();
    let stopped = nix::unistd::Pid::from_raw(ground.supervisor("alpha"));
    nix::sys::signal::kill(stopped, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let offered = Ran::of(ground.bare().args(["__ids", "exec", "al"]));
    let listed = nix::sys::signal::kill(stopped, nix::sys::signal::Signal::SIGCONT);
    listed.unwrap();
    assert_eq!(offered.ok().out, "alpha\nalpine\n");
}
