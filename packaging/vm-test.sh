#!/usr/bin/env bash
# Runs the tests that need cgroup v2, delegated by systemd, in a virtual machine that has it: as an ordinary
# user, then as root. About a minute; the machine is made the first time, as root.
set -euo pipefail
cd "$(dirname "$0")/.."
packaging/need.sh libseccomp-dev pkg-config
packaging/vm/build.sh

job=$(mktemp -d)
trap 'rm -rf --one-file-system "$job"' EXIT
program=$(cargo test --locked --no-run --test limits --message-format=json-render-diagnostics | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
        print(message["executable"])
')
chmod 755 "$job"
install -m 755 "$program" "$job/limits"
cat >"$job/job.sh" <<'EOS'
# What runs in the machine, as root.
failed=0
export COWORK_TEST_REQUIRE=cgroup RUST_BACKTRACE=0 TMPDIR=/var/tmp PYTHON_COLORS=0
tests() { timeout 300 "$@" ./limits --test-threads=1 --color=never cgroup:: || failed=1; }

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
as_user='setpriv --reuid 1000 --regid 1000 --init-groups env XDG_RUNTIME_DIR=/run/user/1000'

echo "== as an ordinary user, by a scope of the user's systemd"
tests $as_user
nothing_left $as_user systemctl --user

echo "== as an ordinary user, in a cgroup that was delegated before"
export COWORK_TEST_REQUIRE=cgroup,own-cgroup
tests systemd-run --quiet --uid=1000 -p Delegate=yes --pipe --wait --same-dir -E COWORK_TEST_REQUIRE -E RUST_BACKTRACE \
    -E TMPDIR -E PYTHON_COLORS --
nothing_left systemctl

echo "== as root, at the top of a cgroup namespace and without systemd, as in a container"
tests systemd-run --quiet --scope -p Delegate=yes -- unshare -mC sh -c \
    'mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run/systemd && mount -t tmpfs none /run/dbus && exec "$@"' sh
nothing_left systemctl

echo "== as root, by a scope of the system's systemd"
export COWORK_TEST_REQUIRE=cgroup
tests env
nothing_left systemctl
exit $failed
EOS
packaging/vm/run.sh "$job"
