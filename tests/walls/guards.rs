//! The workspace as a way out: files that agents, editors and shells of the host run by themselves.

use std::os::unix::fs::symlink;

use crate::outside::tree;
use crate::support::{World, exists};

const GUARDED: [&str; 24] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks/run.sh",
    ".claude/commands/x.md",
    ".claude/agents/x.md",
    ".mcp.json",
    ".cursor/mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".cowork.toml",
    ".vscode/tasks.json",
    ".vscode/settings.json",
    ".vscode/launch.json",
    ".idea/workspace.xml",
    ".devcontainer/devcontainer.json",
    ".envrc",
    ".mise.toml",
    ".exrc",
    ".gdbinit",
    ".bashrc",
    ".profile",
    ".zshenv",
    ".config/autostart/x.desktop",
    ".ssh/authorized_keys",
];

/// Every way to bring `evil` to a place; each leaves the line PWNED there if it works.
fn ways(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let other_case = path.to_uppercase();
    [
        format!("mkdir -p {folder}"),
        format!("echo PWNED > {path}"),
        format!("echo PWNED >> ./{folder}//{name}"),
        format!("echo PWNED > {folder}/../{folder}/./{name}"),
        format!("mkdir -p side; echo PWNED > side/{name}; mv -f side/{name} {path}"),
        format!("cp evil {path}; ln evil {path}; ln -sf $PWD/evil {path}"),
        format!("cp evil t; mv -f t {path}/; install -m 755 evil {path}"),
        format!("ln -s {folder} link; echo PWNED > link/{name}; rm -f link"),
        format!("mkdir -p new/{folder}; echo PWNED > new/{path}; mv new/{folder} {folder}"),
        format!("mv {folder} moved; echo PWNED > moved/{name}; mv moved {folder}"),
        format!("(cd {folder}; echo PWNED > {name}; tee {name} < /workspace/evil)"),
        format!("echo PWNED > '{other_case}'"),
        format!("python3 -c \"import os; os.makedirs('{folder}', exist_ok=True); f=os.open('{folder}', os.O_PATH); os.close(os.open('{name}', os.O_CREAT|os.O_WRONLY, dir_fd=f))\""),
        format!("dd if=evil of={path}; truncate -s 6 {path}; rsync evil {path}"),
    ]
    .map(|way| format!("({way}) >/dev/null 2>&1\n"))
    .concat()
}

fn script(at: &str) -> String {
    let each: String = GUARDED.iter().map(|path| ways(path)).collect();
    format!("cd {at}; echo PWNED > evil\n{each}rm -rf evil side new t moved link; :")
}

/// What lies at guarded places, of whatever spelling.
fn content(top: &std::path::Path) -> Vec<String> {
    let lower = |path: &std::path::Path| path.to_string_lossy().to_lowercase();
    let guarded = |path: &std::path::Path| {
        GUARDED
            .iter()
            .any(|name| lower(path).ends_with(&format!("/{name}")))
    };
    let all = tree(top)
        .into_keys()
        .filter(|path| guarded(path) && !path.is_dir());
    all.map(|path| {
        format!(
            "{}: {}",
            path.display(),
            std::fs::read_to_string(&path).unwrap_or_default()
        )
    })
    .collect()
}

/// PE-05, PE-06, PE-07, FS-57, FS-58, FS-59, FS-60, EN-53
#[test]
fn files_that_tools_of_the_host_run_cannot_be_made() {
    let world = World::new();
    std::fs::create_dir(world.work().join("deep")).unwrap();
    let both = format!("{}\ncd /workspace; {}", script("."), script("deep"));
    world.sh(&both).ok();
    assert_eq!(content(&world.work()), Vec::<String>::new());
    // The control, last because it leaves them all behind.
    world.control(&script("."));
    assert!(content(&world.work()).len() >= GUARDED.len());
}

/// PE-05, PE-06, FS-59, FS-31
#[test]
fn files_that_tools_of_the_host_run_cannot_be_changed() {
    let world = World::new();
    for name in GUARDED {
        world.write(&format!("w/{name}"), "# mine\n");
    }
    let before = tree(&world.work());
    let more: String = GUARDED
        .iter()
        .map(|path| {
            let top = path.split('/').next().unwrap_or(path);
            format!("(rm -f {path}; rm -rf {top}; mv {path} gone; mv {top} gone; chmod 777 {path}; touch -d @0 {path}; \
                setfattr -n user.x -v y {path}; ln {path} hard; echo PWNED > hard; ln -s {path} soft; echo PWNED > soft; rm -f soft hard) >/dev/null 2>&1\n")
        })
        .collect();
    world.sh(&format!("{more}{}", script("."))).ok();
    for name in GUARDED {
        let path = world.work().join(name);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "# mine\n",
            "{name}"
        );
        assert_eq!(tree(&world.work()).get(&path), before.get(&path), "{name}");
    }
    world.control(&more);
    assert!(!exists(&world.work().join(GUARDED[0])));
}

/// PE-05: a link that leads from an ordinary name to a guarded one, made on the host before.
#[test]
fn links_made_before_the_start_do_not_lead_around_the_guard() {
    let world = World::new();
    world.write("w/.claude/settings.json", "mine\n");
    world.write("home/outside", "mine\n");
    let w = world.work();
    symlink(".claude/settings.json", w.join("short")).unwrap();
    symlink(w.join(".claude"), w.join("absolute")).unwrap();
    symlink("../home/outside", w.join("out")).unwrap();
    symlink(".envrc", w.join("dangling")).unwrap();
    std::fs::hard_link(w.join(".claude/settings.json"), w.join("hard")).unwrap();
    let attempts = "echo PWNED > short; echo PWNED > absolute/settings.json; echo PWNED > out; echo PWNED > dangling; \
        cp -f --remove-destination short short2; :";
    world.sh(attempts).ok();
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(
        (
            read("w/.claude/settings.json").as_str(),
            read("home/outside").as_str()
        ),
        ("mine\n", "mine\n")
    );
    assert!(!exists(&w.join(".envrc")));
    world.control(attempts);
    assert_eq!(
        (
            read("w/.claude/settings.json").as_str(),
            read("home/outside").as_str()
        ),
        ("PWNED\n", "PWNED\n")
    );
}

/// PE-50, PE-52: the daily work of an agent is not in the way of the guard.
#[test]
fn ordinary_files_are_the_agents_to_write() {
    let world = World::new();
    let names = [
        "Makefile",
        "package.json",
        "build.rs",
        "conftest.py",
        ".gitignore",
        ".gitattributes",
        ".gitmodules",
        "CLAUDE.md",
        ".github/workflows/ci.yml",
        ".eslintrc",
        ".claude/notes.md",
        ".vscode/words.txt",
        "src/main.rs",
        ".config/app.toml",
        "a b/c\td",
        "envrc",
        "x.envrc",
        ".envrc.example",
        "bashrc",
    ];
    let script: String = names
        .iter()
        .map(|name| format!("mkdir -p \"$(dirname '{name}')\" && echo made > '{name}' && mv '{name}' t && cp t '{name}' && chmod 700 '{name}' && rm t || exit 1\n"))
        .collect();
    world.sh(&script).ok();
    for name in names {
        assert_eq!(
            std::fs::read_to_string(world.work().join(name)).unwrap(),
            "made\n",
            "{name}"
        );
    }
}

/// PE-56: what the launcher itself will read the next time is not in the box.
#[test]
fn the_launchers_own_records_cannot_be_reached() {
    let world = World::new();
    world.run(&["--name", "first"], &["true"]).ok();
    let state = world.path("state");
    let before = tree(&state.join("cowork-linux/sessions/first"));
    let look = format!(
        "ls {0} /sessions; ls -a ~; cat {0}/cowork-linux/*; touch {0}/x; ls ../../lock ~/../lock /sessions/*/lock",
        state.display()
    );
    world.control(&look).says("cowork-linux");
    std::fs::remove_file(state.join("x")).unwrap();
    world
        .run(&["--name", "second"], &["sh", "-c", &look])
        .says_not("first")
        .says_not("lock\n");
    assert_eq!(tree(&state.join("cowork-linux/sessions/first")), before);
    assert!(!exists(&state.join("x")));
}
