#!/usr/bin/env bash
# Gets what the tests run: Debian packages, Claude Code and sandbox-runtime from npm, and (for root) an
# ordinary user.
# Quick and without network when all is there.
#
# What the tests cannot do without must be there. What only some tests put in a box is wanted: without it
# those tests skip, except in CI (see test-as-user.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
need=packaging/need.sh

"$need" libseccomp-dev pkg-config gcc=gcc make=make git=git python3=python3 bwrap=bubblewrap \
    busybox=busybox-static unshare=util-linux ip=iproute2 ps=procps curl=curl openssl=openssl ca-certificates

wanted() {
    "$need" "$@" || {
        [ "${CI:-}" != true ] || exit 1
        echo "Tests that need $* will be skipped." >&2
    }
}

wanted musl-gcc=musl-tools strace=strace gdb=gdb rg=ripgrep sqlite3=sqlite3 keyctl=keyutils nc=netcat-openbsd sudo=sudo
wanted socat=socat dbus-daemon=dbus-daemon
wanted zsh=zsh fish=fish
wanted python3-venv python3-pip python3-pytest
# Clients of the network, and an SSH server that is a program and no service.
wanted wget=wget ssh=openssh-client dropbear-bin python3-requests
wanted java=default-jre-headless javac=default-jdk-headless
wanted go=golang-go
wanted chromium=chromium
wanted node=nodejs npm=npm

# Claude Code and sandbox-runtime, exactly as tests/npm/package-lock.json pins them, hashes included.
from_npm() {
    local home=.build/npm
    cmp -s tests/npm/package-lock.json "$home/installed.json" && return
    echo "installing Claude Code and sandbox-runtime for the tests (a quarter of a gigabyte, once)" >&2
    mkdir -p "$home"
    cp tests/npm/package.json tests/npm/package-lock.json "$home/"
    npm ci --prefix "$home" --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error >&2 &&
        # Its own install script puts the native program in place; npm may be set up not to run scripts.
        { "$home/node_modules/.bin/claude" --version >/dev/null 2>&1 ||
            node "$home/node_modules/@anthropic-ai/claude-code/install.cjs" >&2; } &&
        "$home/node_modules/.bin/claude" --version >/dev/null &&
        "$home/node_modules/.bin/srt" --version >/dev/null &&
        cp "$home/package-lock.json" "$home/installed.json"
}

if command -v npm >/dev/null && ! from_npm; then
    echo "Claude Code and sandbox-runtime could not be installed from npm." >&2
    [ "${CI:-}" != true ] || exit 1
fi

if [ "$(id -u)" -eq 0 ] && ! id cowork-tester >/dev/null 2>&1; then
    useradd --create-home --shell /bin/bash --comment "runs cowork-linux's tests" cowork-tester
fi
