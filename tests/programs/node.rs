//! node and npm, without a registry.

use crate::shop::has;
use crate::support::World;

#[test]
fn node_runs_workers_timers_and_servers() {
    if !has("node", &["node"]) {
        return;
    }
    let world = World::new();
    world.write(
        "w/all.js",
        "const { Worker } = require('worker_threads');
         const http = require('http');
         new Worker('require(\"worker_threads\").parentPort.postMessage(40 + 2)', { eval: true })
           .on('message', (sum) => console.log('worker ' + sum));
         const server = http.createServer((_, answer) => answer.end('served')).listen(0, '127.0.0.1', () =>
           http.get(server.address(), (got) => got.on('data', (text) => console.log('' + text)).on('end', () => server.close())));
         require('fs').watch('.').close();
         console.log(require('child_process').execSync('echo child').toString());",
    );
    let ran = world.run(&[], &["node", "all.js"]).ok();
    ran.says("worker 42").says("served").says("child");
}

#[test]
fn npm_ci_installs_a_local_tarball() {
    if !has("node", &["node", "npm"]) {
        return;
    }
    let world = World::new();
    world.write(
        "w/greeting/package.json",
        r#"{"name": "greeting", "version": "1.0.0", "bin": {"greet": "greet.js"}}"#,
    );
    world.write(
        "w/greeting/greet.js",
        "#!/usr/bin/env node\nconsole.log('hello from a tarball')\n",
    );
    world.write(
        "w/package.json",
        r#"{"name": "app", "version": "1.0.0", "dependencies": {"greeting": "file:greeting-1.0.0.tgz"},
            "scripts": {"test": "greet"}}"#,
    );
    world.write(
        "w/package-lock.json",
        r#"{"name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true, "packages": {
            "": {"name": "app", "version": "1.0.0", "dependencies": {"greeting": "file:greeting-1.0.0.tgz"}},
            "node_modules/greeting": {"version": "1.0.0", "resolved": "file:greeting-1.0.0.tgz",
                "bin": {"greet": "greet.js"}}}}"#,
    );
    world
        .script(
            &[],
            "export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
             npm pack --silent ./greeting
             npm ci --offline --silent
             npm test --silent
             npx --offline greet",
        )
        .ok()
        .says("hello from a tarball\nhello from a tarball\n");
}
