//! Folders whose files programs may not delete, which come while the session runs or whose mode
//! changes.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};

use crate::support::exists;
use crate::{Stay, text};

/// A shell that stands in the folder all the time, and says how each line went.
struct Shell {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    child: std::process::Child,
}

impl Shell {
    fn in_folder(stay: &Stay, folder: &str) -> Self {
        let mut command = stay.command(&["exec", "-i", "-w", folder, stay.id, "--", "sh", "-c"]);
        command.arg("while read -r line; do sh -c \"$line\" >/dev/null 2>&1; echo $?; done");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { to, from, child }
    }

    /// Whether it went well.
    fn does(&mut self, line: &str) -> bool {
        writeln!(self.to, "{line}").unwrap();
        let mut said = String::new();
        self.from.read_line(&mut said).unwrap();
        said == "0\n"
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_folder_that_comes_later_is_kept_and_its_mode_changes_at_once() {
    let stay = Stay::new(&[]);
    let folder = stay.folder("more");
    for name in ["one", "two", "three"] {
        stay.world.write(&format!("more/{name}"), "host");
    }
    let mount = |mode: &str| {
        let spec = format!("{}:{mode}", text(&folder));
        stay.does(&["mount", "--replace", stay.id, &spec]).ok();
    };
    let mode = || {
        let said = stay.does(&["inspect", stay.id]).ok().out;
        let seen: serde_json::Value = serde_json::from_str(&said).unwrap();
        let list = seen["seen"]["mounted"].as_array().unwrap();
        list.iter()
            .map(|mount| mount["mode"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    mount("keep");
    assert_eq!(mode(), ["keep"]);
    let mut shell = Shell::in_folder(&stay, "/sessions/stay/mnt/more");
    assert!(!shell.does("rm one"));
    assert!(shell.does("echo more >> one && mv one first && mv first one"));
    assert!(shell.does("touch own other && rm own"));
    assert!(exists(&folder.join("one")));
    // The same program, which never left the folder, may from one moment to the next.
    mount("rw");
    assert_eq!(mode(), ["rw"]);
    assert!(shell.does("rm one"));
    assert!(shell.does("touch made"));
    assert!(!exists(&folder.join("one")));
    mount("keep");
    assert!(!shell.does("rm two"));
    assert!(
        shell.does("rm other made"),
        "they were made in this session"
    );
    mount("ro");
    assert!(!shell.does("touch new") && !shell.does("rm two"));
    mount("keep");
    assert!(shell.does("touch new && rm new") && !shell.does("rm two"));
    assert!(exists(&folder.join("two")) && exists(&folder.join("three")));
    let why = "/sessions/stay/mnt/more/two";
    drop(shell);
    let allow = format!("--mount {}:rw", text(&folder));
    crate::eventually("it is in the journal", || {
        stay.does(&["why", why]).out.contains(&allow)
    });
}

#[test]
fn without_a_guard_it_is_refused() {
    let world = crate::World::new();
    let policy = world.write("open.toml", "name = \"open\"\n[guard]\nenabled = false\n");
    let policy = text(&policy);
    let stay = Stay::new(&["--profile", &policy]);
    let folder = stay.folder("more");
    stay.mount(&format!("{}:keep", text(&folder)))
        .failed_with(1)
        .complains("cannot be kept from deleting");
    stay.mount(&text(&folder)).ok();
    stay.sh("rm /sessions/stay/mnt/more/file").ok();
    assert!(!exists(&folder.join("file")));
}
