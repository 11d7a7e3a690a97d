// What Claude Desktop's helper is beside ours in the bench: one bubblewrap for each command, started by Node.
// Speaks just enough of the app's language for that, with the walls that such helpers use.
'use strict';

const { spawn } = require('child_process');
const fs = require('fs');
const net = require('net');
const path = require('path');

const socketPath = process.argv[process.argv.indexOf('-socket') + 1];
const bwrap = process.env.COWORK_BENCH_BWRAP || '/usr/bin/bwrap';
const subscribers = new Set();
const processes = new Map();
let started = false;

function frame(message) {
  const body = Buffer.from(JSON.stringify(message), 'utf8');
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  return Buffer.concat([head, body]);
}

function tell(event) {
  const bytes = frame(event);
  for (const connection of subscribers) connection.write(bytes);
}

// A system of the host's files, read-only, and the session's folders; the network and the environment are the host's.
function walls(session, mounts) {
  const words = ['--tmpfs', '/', '--ro-bind', '/usr', '/usr', '--ro-bind', '/etc', '/etc'];
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) {
    const where = `/${name}`;
    if (!fs.existsSync(where)) continue;
    if (fs.lstatSync(where).isSymbolicLink()) words.push('--symlink', `usr/${name}`, where);
    else words.push('--ro-bind', where, where);
  }
  words.push('--dev', '/dev', '--proc', '/proc', '--tmpfs', '/tmp', '--tmpfs', '/run');
  if (fs.lstatSync('/etc/resolv.conf', { throwIfNoEntry: false })?.isSymbolicLink()) {
    const folder = path.dirname(fs.realpathSync('/etc/resolv.conf'));
    words.push('--ro-bind', folder, folder);
  }
  words.push('--dir', process.env.HOME || '/root', '--dir', `/sessions/${session}/mnt`);
  for (const [name, { path: source, mode }] of Object.entries(mounts)) {
    words.push(mode === 'ro' ? '--ro-bind' : '--bind', `/${source}`, `/sessions/${session}/mnt/${name}`);
  }
  return [...words, '--unshare-pid', '--die-with-parent', '--new-session'];
}

function start({ id, name, command, args = [], cwd, env, additionalMounts = {} }) {
  const words = [...walls(name, additionalMounts), '--chdir', cwd || `/sessions/${name}`, '--', command, ...args];
  const child = spawn(bwrap, words, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  processes.set(id, child);
  for (const stream of ['stdout', 'stderr']) {
    child[stream].on('data', (data) => tell({ type: stream, id, data: data.toString('utf8') }));
  }
  child.on('close', (exitCode, signal) => {
    processes.delete(id);
    tell({ type: 'exit', id, exitCode, signal });
  });
  return {};
}

const methods = {
  configure: () => ({}),
  startVM: () => ((started = true), {}),
  stopVM() {
    started = false;
    for (const child of processes.values()) child.kill('SIGKILL');
    return {};
  },
  isRunning: () => ({ running: started }),
  isGuestConnected: () => ({ connected: started }),
  spawn: start,
};

function answer(connection, { method, params, id }) {
  if (method === 'subscribeEvents') {
    connection.write(frame({ success: true, id }));
    subscribers.add(connection);
    return;
  }
  const known = methods[method];
  const reply = known ? { success: true, result: known(params || {}) } : { success: false, error: `unknown method: ${method}` };
  connection.write(frame({ ...reply, id }));
}

const server = net.createServer((connection) => {
  let unread = Buffer.alloc(0);
  connection.on('data', (data) => {
    unread = Buffer.concat([unread, data]);
    while (unread.length >= 4 && unread.length >= 4 + unread.readUInt32BE()) {
      const end = 4 + unread.readUInt32BE();
      const body = unread.subarray(4, end).toString('utf8');
      unread = unread.subarray(end);
      answer(connection, JSON.parse(body));
    }
  });
  connection.on('error', () => {});
  connection.on('close', () => subscribers.delete(connection));
});
server.listen(socketPath);
// It ends with whoever started it.
process.stdin.on('end', () => process.exit(0));
process.stdin.resume();
