#!/usr/bin/env bash
# Runs the tests that need cgroup v2, delegated by systemd, in a virtual machine that has it: as an ordinary
# user, then as root. Ten minutes, because it is emulated; the machine is made the first time, as root.
set -euo pipefail
cd "$(dirname "$0")/.."
packaging/need.sh libseccomp-dev pkg-config
packaging/vm/build.sh

job=$(mktemp -d)
trap 'rm -rf --one-file-system "$job"' EXIT
chmod 755 "$job"
install -m 755 "${COWORK_BIN:-.build/cowork-linux}" "$job/cowork-linux"
json=--message-format=json-render-diagnostics
cargo test --locked --no-run --test limits --test session_limits $json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
        print(message["target"]["name"], message["executable"])
' | while read -r name program; do
    install -m 755 "$program" "$job/$name"
done
cat >"$job/job.sh" <<'EOS'
# What runs in the machine, as root.
failed=0
export COWORK_TEST_REQUIRE=cgroup RUST_BACKTRACE=0 TMPDIR=/var/tmp PYTHON_COLORS=0
export COWORK_BIN=$PWD/cowork-linux CARGO_MANIFEST_DIR=$PWD
# Everything takes longer here.
export COWORK_TEST_PATIENCE=300
# tests WHICH WORDS...: by these words, the limits by themselves and then WHICH of whole sessions.
tests() {
    which=$1
    shift
    timeout 300 "$@" ./limits --test-threads=1 --color=never cgroup:: || failed=1
    timeout 2400 "$@" ./session_limits --test-threads=1 --color=never $which || failed=1
}
all='bombs:: open_files:: view::'

# nothing_left WORDS...: systemd has taken back what it gave, asked by these words.
nothing_left() {
    n=0
    while units=$("$@" list-units --all --plain --no-legend 'cowork-*.scope') && [ -n "$units" ]; do
        n=$((n + 1))
        [ "$n" -lt 50 ] || { echo "left: $units"; failed=1; return; }
        sleep 0.1
    done
    left=$(find /sys/fs/cgroup -name 'cowork-*' ! -name cowork-job.service)
    [ -z "$left" ] || { echo "left: $left"; failed=1; }
}
as_user='setpriv --reuid 1000 --regid 1000 --init-groups env XDG_RUNTIME_DIR=/run/user/1000
    DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus'

echo "== as an ordinary user, by a scope of the user's systemd"
tests "$all" $as_user
nothing_left $as_user systemctl --user

echo "== as an ordinary user, in a cgroup that was delegated before"
export COWORK_TEST_REQUIRE=cgroup,own-cgroup
tests view:: systemd-run --quiet --uid=1000 -p Delegate=yes --pipe --wait --same-dir -E COWORK_TEST_REQUIRE -E RUST_BACKTRACE \
    -E TMPDIR -E PYTHON_COLORS -E COWORK_BIN -E CARGO_MANIFEST_DIR \
    -E COWORK_TEST_PATIENCE --
nothing_left systemctl

echo "== as root, at the top of a cgroup namespace and without systemd, as in a container"
tests view:: systemd-run --quiet --scope -p Delegate=yes -- unshare -mC sh -c \
    'mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run/systemd && mount -t tmpfs none /run/dbus && exec "$@"' sh
nothing_left systemctl

echo "== as root, by a scope of the system's systemd"
export COWORK_TEST_REQUIRE=cgroup
tests "$all" env
nothing_left systemctl
exit $failed
EOS
packaging/vm/run.sh "$job"
