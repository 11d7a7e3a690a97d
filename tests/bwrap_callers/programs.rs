//! Real programs in sandbox-runtime.

use std::os::unix::fs::MetadataExt;

use crate::runtime::Runtime;
use crate::shop::has;

#[test]
fn git_commits_and_the_host_sees_it() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    let world = &runtime.caller.world;
    let identity = "[user]\n\tname = A Person\n\temail = person@example.invalid\n";
    world.write("home/.gitconfig", identity);
    runtime
        .caller
        .control("set -e; git init -q -b main .; echo one > one; git add one; git commit -qm one")
        .ok();
    runtime
        .sh("set -e
             git checkout -q -b topic; echo two > two; git add two; git commit -qm two
             git checkout -q main; echo three > three; git add three; git commit -qm three
             git rebase -q topic; git tag -a v1 -m v1; git gc -q; git fsck --strict
             git stash list")
        .ok();
    let log = runtime.caller.control("git log --format='%s %an'").ok();
    assert_eq!(log.out, "three A Person\ntwo A Person\none A Person\n");
    let status = runtime.caller.control("git status --porcelain").ok();
    assert_eq!(status.out, "");
    let made = std::fs::metadata(world.work().join("three")).unwrap();
    assert_eq!(made.uid(), nix::unistd::getuid().as_raw());
}

#[test]
fn node_runs_workers_children_and_servers() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    runtime.caller.world.write(
        "w/all.js",
        "const { Worker } = require('worker_threads');
         const http = require('http');
         new Worker('require(\"worker_threads\").parentPort.postMessage(40 + 2)', { eval: true })
           .on('message', (sum) => console.log('worker ' + sum));
         const server = http.createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', () =>
           http.get(server.address(), (got) => got.on('data', (text) => console.log('' + text)).on('end', () => server.close())));
         require('fs').watch('.').close();
         require('fs').writeFileSync('made', 'by node');
         console.log(require('child_process').execSync('echo child').toString());",
    );
    let ran = runtime.sh("node all.js").ok();
    ran.says("worker 42").says("served").says("child");
    let made = runtime.caller.world.work().join("made");
    assert_eq!(std::fs::read_to_string(made).unwrap(), "by node");
}

#[test]
fn pytest_passes_and_fails_as_it_should() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    if !has("python", &["python3", "pytest-3"]) {
        return;
    }
    let world = &runtime.caller.world;
    world.write(
        "w/suite/test_sum.py",
        "import os, pathlib, subprocess, threading\n\
         def test_files(tmp_path):\n    (tmp_path / 'x').write_text('y')\n    pathlib.Path('made').write_text('z')\n\
         def test_thread():\n\
         \x20   seen = []\n    thread = threading.Thread(target=seen.append, args=[1])\n\
         \x20   thread.start()\n    thread.join()\n    assert seen == [1]\n\
         def test_child():\n    assert subprocess.check_output(['id', '-u'], text=True).strip() == str(os.getuid())\n",
    );
    // Of the folder itself pytest would want to collect what covers the files that stay closed.
    let pytest = "python3 -m pytest -q suite";
    runtime.sh(pytest).ok().says("3 passed");
    assert!(world.work().join("made").is_file());
    world.write(
        "w/suite/test_wrong.py",
        "def test_wrong():\n    assert False\n",
    );
    let ran = runtime.sh(pytest).failed_with(1);
    ran.says("1 failed").says("3 passed");
}

#[test]
fn a_virtual_environment_and_a_compiler_work() {
    let Some(runtime) = Runtime::new() else {
        return;
    };
    runtime
        .sh("set -e
             echo 'int main(void) { return 7; }' > seven.c; gcc -o seven seven.c
             code=0; ./seven || code=$?; echo seven gave $code
             python3 -m venv --without-pip env; . env/bin/activate
             python -c 'import sys; print(sys.prefix)'")
        .ok()
        .says("seven gave 7\n")
        .says("/w/env\n");
}
