//! What a program in the box must not manage.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::ground::Ground;

pub(crate) fn run(ground: &mut Ground) {
    by_name(ground);
    by_way_of_git(ground);
    by_detour(ground);
    by_race(ground);
    let refusals = ground.refusals();
    let told = refusals.contains("w/.envrc (.envrc)") && refusals.contains("core.fsmonitor");
    ground.check("refusals are told with their rules", told, &refusals);
}

fn by_name(g: &mut Ground) {
    let vscode = g.host.join(".vscode");
    fs::create_dir(&vscode).unwrap();
    fs::write(vscode.join("tasks.json"), "host").unwrap();
    fs::write(g.host.join(".mcp.json"), "host").unwrap();
    for (what, script) in [
        ("a guarded file cannot be made", "echo x > .envrc"),
        ("nor deep down", "mkdir -p n/e/s; echo x > n/e/s/.envrc"),
        ("nor in another spelling", "echo x > .ENVRC"),
        ("nor with a slash more", "echo x > .//.envrc"),
        ("nor by moving", "echo x > e; mv e .envrc"),
        ("nor by hard link", "echo x > e; ln e .envrc"),
        ("nor by symbolic link", "ln -s e .envrc"),
        ("nor as a folder", "mkdir .envrc"),
        ("nor as a pipe", "mkfifo .envrc"),
        ("nor by a symbolic link to where it would be", "ln -s .envrc harmless; echo x > harmless"),
        ("nor below a link to a folder", "mkdir -p k/.claude; ln -s k/.claude kc; echo x > kc/settings.json"),
        ("a guarded file cannot be changed", "echo x >> .mcp.json"),
        ("nor truncated", "truncate -s 0 .mcp.json"),
        ("nor truncated by opening for reading", "python3 -c 'import os; os.open(\".mcp.json\", os.O_RDONLY|os.O_TRUNC)'"),
        ("nor removed", "rm -f .mcp.json"),
        ("nor moved away", "mv .mcp.json m"),
        ("nor replaced", "echo x > m; mv m .mcp.json"),
        ("nor linked under another name", "ln .mcp.json m2"),
        ("nor made executable", "chmod +x .mcp.json"),
        ("nor touched", "touch -d 2001-01-01 .mcp.json"),
        ("nor through a descriptor", "python3 -c 'import os; os.fchmod(os.open(\".mcp.json\", os.O_RDONLY), 0o777)'"),
        ("nor reopened through /proc", "exec 3<.mcp.json; echo x > /proc/self/fd/3"),
        ("nor reopened through another process's /proc", "exec 3<.mcp.json; echo x > /proc/$$/fd/3"),
        ("nor through /proc/self/cwd", "echo x > /proc/self/cwd/.mcp.json"),
        ("nor by exchange", "python3 -c 'import ctypes,os
l=ctypes.CDLL(None,use_errno=True); open(\"ex\",\"w\")
r=l.renameat2(-100,b\"ex\",-100,b\".mcp.json\",2); e=ctypes.get_errno(); print(os.strerror(e)); exit(1 if r else 0)'"),
        ("the folder of a guarded file stays", "mv .vscode v"),
        ("and cannot be replaced by a link", "rmdir .config 2>/dev/null; mkdir -p evil; ln -s evil .config"),
        ("a folder with guarded content cannot arrive", "mkdir t1; echo x > t1/settings.json; mv t1 .claude"),
        ("not even two deep", "mkdir -p t2/fish; echo x > t2/fish/config.fish; mv t2 .config"),
        ("a link cannot arrive in its place", "ln -s /tmp lk; mv lk .claude"),
        ("a nested folder cannot arrive", "mkdir .claude t3; echo x > t3/a; mv t3 .claude/commands"),
        ("a nameless file cannot arrive", "python3 -c 'import os,ctypes
fd=os.open(\".\",os.O_TMPFILE|os.O_RDWR,0o600); l=ctypes.CDLL(None,use_errno=True)
r=l.linkat(-100,b\"/proc/self/fd/%d\"%fd,-100,b\".envrc\",0x400); print(os.strerror(ctypes.get_errno())); exit(1 if r else 0)'"),
        ("access says no", "python3 -c 'import os,ctypes; l=ctypes.CDLL(None,use_errno=True); r=l.access(b\".mcp.json\",2); print(os.strerror(ctypes.get_errno())); exit(1 if r else 0)'"),
    ] {
        g.refused(what, script);
    }
    g.works("what is not guarded in the same folders is free", "echo x > .vscode/settings.json; mkdir -p z/.vscode; echo x > z/.vscode/other; rmdir .claude; rm -r z");
    let text = |name: &str| fs::read_to_string(g.host.join(name)).unwrap_or_default();
    let same = text(".vscode/tasks.json") == "host" && text(".mcp.json") == "host";
    g.check("the host's files are as they were", same, "");
    let absent = [".envrc", "n/e/s/.envrc", ".ENVRC", ".claude", ".config"];
    let made: Vec<_> = absent
        .iter()
        .filter(|n| g.host.join(n).symlink_metadata().is_ok())
        .collect();
    g.check(
        "and no stub was left",
        made.is_empty(),
        &format!("{made:?}"),
    );
    g.works(
        "set-user-id files are not planted",
        "cp /bin/true su; ! chmod 4755 su; [ ! -u su ]",
    );
    g.works(
        "what is mounted over a part stays there",
        "[ ! -s masked ]; echo x > masked; [ \"$(cat masked)\" = x ]; chmod 640 masked",
    );
    let masked = fs::read_to_string(g.host.join("masked")).unwrap();
    let covered = fs::read_dir(g.host.join("cover")).unwrap().count();
    g.check(
        "and what is under it too",
        masked == "secret" && covered == 0,
        &masked,
    );
}

fn by_way_of_git(g: &mut Ground) {
    let git = |dir: &Path, args: &[&str]| {
        assert!(
            Command::new("git")
                .current_dir(dir)
                .args(args)
                .status()
                .unwrap()
                .success()
        );
    };
    git(&g.host, &["init", "-q", "mine"]);
    let mine = g.host.join("mine");
    git(&mine, &["config", "core.editor", "vim"]);
    fs::write(mine.join(".git/hooks/pre-commit"), "#!/bin/sh\n").unwrap();
    let before = fs::read(mine.join(".git/config")).unwrap();
    for (what, script) in [
        ("a hook cannot be made", "cd mine; echo x > .git/hooks/post-checkout"),
        ("nor by moving a sample", "cd mine; touch .git/hooks/a.sample; mv .git/hooks/a.sample .git/hooks/a"),
        ("nor removed", "cd mine; rm -f .git/hooks/pre-commit"),
        ("nor changed", "cd mine; echo x >> .git/hooks/pre-commit"),
        ("hooks cannot be moved away", "cd mine; mv .git/hooks .git/h"),
        ("nor linked", "cd repo; rm -rf .git/hooks; ln -s ../evil .git/hooks"),
        ("nor brought in", "cd repo; mkdir hk; echo x > hk/post-checkout; mv hk .git/hooks"),
        ("the configuration cannot be written", "cd mine; echo x >> .git/config"),
        ("nor be told to run programs", "cd mine; git config core.fsmonitor ./evil"),
        ("nor ssh", "cd mine; git config core.sshCommand ./evil"),
        ("nor include others", "cd mine; git config include.path ../evil"),
        ("nor lose what the user set", "cd mine; git config --unset core.editor"),
        ("nor change it", "cd mine; git config core.editor evil"),
        ("nor per worktree", "cd mine; echo '[core]' > .git/config.worktree"),
        ("nor be removed when it matters", "cd mine; rm -f .git/config"),
        ("nor moved away", "cd mine; mv .git/config c"),
        ("nor be a link", "cd mine; ln -s x .git/c.lock; mv .git/c.lock .git/config"),
        ("nor exchanged", "cd mine; cp .git/config ../cx; python3 -c 'import ctypes,os
l=ctypes.CDLL(None,use_errno=True)
r=l.renameat2(-100,b\"../cx\",-100,b\".git/config\",2); print(os.strerror(ctypes.get_errno())); exit(1 if r else 0)'"),
        ("the repository cannot be moved", "mv mine/.git mine/g"),
        ("a new one with programs cannot arrive", "mkdir -p nw/g; printf '[core]\\nfsmonitor=x\\n' > nw/g/config; mv nw/g nw/.git"),
        ("nor one with hooks", "mkdir -p nx/g/hooks; echo x > nx/g/hooks/post-checkout; mv nx/g nx/.git"),
        ("nor a link to one", "mkdir ny; ln -s ../nw/g ny/.git"),
        ("a bare one cannot be completed", "mkdir -p nz/objects; printf '[core]\\nfsmonitor=x\\n' > nz/config; mkdir nz/refs"),
        ("nor with HEAD", "mkdir na; printf '[core]\\nfsmonitor=x\\n' > na/config; echo 'ref: refs/heads/m' > na/HEAD"),
        ("nor by moving HEAD in", "mkdir nb; printf '[core]\\nfsmonitor=x\\n' > nb/config; echo 'ref: refs/heads/m' > hd; mv hd nb/HEAD"),
        ("nor by linking HEAD in", "echo 'ref: refs/heads/m' > hd; ln hd nb/HEAD"),
        ("nor with hooks", "mkdir -p nc/hooks; echo x > nc/hooks/post-checkout; echo 'ref: refs/heads/m' > nc/HEAD"),
        ("a bare one is guarded like others", "cd bare.git; echo x > hooks/post-receive"),
        ("its configuration too", "cd bare.git; git config core.fsmonitor x"),
        ("a submodule's too", "git -C super/sub config core.fsmonitor x"),
        ("a submodule's hooks too", "echo x > super/.git/modules/sub/hooks/post-checkout"),
    ] {
        g.refused(what, script);
    }
    let after = fs::read(mine.join(".git/config")).unwrap();
    g.check("the user's configuration is as it was", before == after, "");
    g.works("a prepared file held open is not what arrives", "python3 -c '
import os
evil = b\"[core]\\nfsmonitor=x\\n\"
os.chdir(\"repo/.git\"); good = open(\"config\",\"rb\").read()
f = open(\"config.lock\", \"wb\", buffering=0); f.write(good); os.rename(\"config.lock\", \"config\"); f.write(evil)
assert open(\"config\",\"rb\").read() == good
os.chdir(\"../..\"); os.makedirs(\"nd\"); f = open(\"nd/config\",\"wb\",buffering=0); open(\"nd/HEAD\",\"w\").write(\"ref: refs/heads/m\"); f.write(evil)
assert open(\"nd/config\",\"rb\").read() == b\"\"
os.makedirs(\"ne/g\"); f = open(\"ne/g/config\",\"wb\",buffering=0); os.rename(\"ne/g\",\"ne/.git\"); f.write(evil)
assert open(\"ne/.git/config\",\"rb\").read() == b\"\"
'");
}

fn by_detour(g: &mut Ground) {
    g.works(
        "nothing is written through the read-only view",
        "python3 -c '
import ctypes, os
l = ctypes.CDLL(None, use_errno=True)
fd = os.open(\".mcp.json\", os.O_RDONLY)
assert l.ftruncate(fd, 0) != 0
d = os.open(\".\", os.O_RDONLY|os.O_DIRECTORY)
assert l.syscall(442, -100, os.environ[\"W\"].encode(), 0, (ctypes.c_uint64*4)(0,1,0,0), 32) != 0
'",
    );
    g.works(
        "a process that cannot be read gets the read-only view",
        "python3 -c '
import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
try: open(\".envrc\", \"w\"); assert False
except OSError as e: assert e.errno == 30
'",
    );
    g.works(
        "a descriptor that came through the door leads nowhere else",
        "python3 -c '
import os
f = os.open(\"ff\", os.O_CREAT|os.O_RDWR, 0o600)
for p in (\"/proc/self/fd/%d/../.envrc\" % f, \"/proc/self/fd/%d/.envrc\" % f):
    try: os.open(p, os.O_CREAT|os.O_WRONLY); assert False
    except OSError as e: pass
try: os.open(\"../.envrc\", os.O_CREAT|os.O_WRONLY, dir_fd=f); assert False
except OSError as e: pass
os.close(os.open(\"/proc/self/fd/%d\" % f, os.O_RDWR))
'",
    );
    g.works(
        "the door's own descriptors are out of reach",
        "! ls /proc/$PPID/fd 2>/dev/null; ! cat /proc/$PPID/maps 2>/dev/null",
    );
}

const RACER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int stop;
static char path[64] = "r/aaaaaa";
static void *swap_text(void *x) { while (!stop) { memcpy(path + 2, ".envrc", 6); memcpy(path + 2, "aaaaaa", 6); } return x; }
static void *swap_link(void *x) { while (!stop) { unlink("r/l"); symlink("ok", "r/l"); unlink("r/l"); symlink("../.mcp.json", "r/l"); } return x; }
static void *swap_dirs(void *x) { while (!stop) syscall(SYS_renameat2, AT_FDCWD, "r/d1", AT_FDCWD, "r/d2", 2); return x; }
static void *put(void *x) { while (!stop) { int f = open("r/d1/tasks.json", O_CREAT|O_WRONLY, 0600); if (f >= 0) close(f); rename("r/d1", "r/.vscode"); rename("r/.vscode", "r/d1"); unlink("r/d1/tasks.json"); } return x; }
int main(void) {
    pthread_t t[4]; long n = 0; time_t end = time(0) + 3;
    mkdir("r", 0755); mkdir("r/d1", 0755); mkdir("r/d2", 0755);
    pthread_create(&t[0], 0, swap_text, 0); pthread_create(&t[1], 0, swap_link, 0);
    pthread_create(&t[2], 0, swap_dirs, 0); pthread_create(&t[3], 0, put, 0);
    while (time(0) < end) {
        int f = open(path, O_CREAT|O_WRONLY, 0600); if (f >= 0) { write(f, "evil", 4); close(f); }
        f = open("r/l", O_WRONLY); if (f >= 0) { write(f, "evil", 4); close(f); }
        rename("r/aaaaaa", path); n++;
    }
    stop = 1; for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    printf("%ld rounds\n", n); return 0;
}
"#;

fn by_race(g: &mut Ground) {
    let (source, binary) = (g.path("racer.c"), g.path("racer"));
    fs::write(&source, RACER).unwrap();
    let mut compile = Command::new("cc");
    compile
        .args(["-O1", "-w", "-pthread"])
        .arg(&source)
        .arg("-o")
        .arg(&binary);
    if !compile.status().is_ok_and(|status| status.success()) {
        println!("skipped the race: no C compiler");
        return;
    }
    let mut command = Command::new(&binary);
    command.current_dir(&g.inside);
    let out = g.run_command(command);
    g.check("the racer ran", out.code == Some(0), &out.text);
    let won = g.host.join("r/.envrc").exists()
        || g.host.join("r/.vscode/tasks.json").exists()
        || fs::read_to_string(g.host.join(".mcp.json")).unwrap() != "host";
    g.check(&format!("no race is won ({})", out.text.trim()), !won, "");
}
