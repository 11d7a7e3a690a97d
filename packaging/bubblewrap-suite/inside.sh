#!/usr/bin/env bash
# The part of bubblewrap-suite.sh that runs in mount and pid namespaces of its own, as their first process.
#
#   inside.sh STAGE user|root hard|sym strict|split
#
# Sets up what the tests otherwise skip for (a FUSE mount of the caller's, a socket at /dev/log) and runs the
# scripts. STAGE/logs gets three files per script: .tap (standard output), .log (standard error), .status.
set -euo pipefail
stage=$1 caller=$2 link=$3 mode=$4

# On the host these mounts would hide the real /dev and /tmp.
[ $$ -eq 1 ] || {
    echo "inside.sh mounts over /dev and /tmp: it has to be the first process of a pid namespace" >&2
    exit 1
}

seconds=120 # for one script; the whole suite takes about ten
[ "$mode" = strict ] || seconds=600

case $caller in
    user)
        id=cowork-tester
        become=(setpriv --reuid "$id" --regid "$id" --init-groups --inh-caps=-all)
        path=/usr/local/bin:/usr/bin:/bin
        ;;
    root)
        id=root
        become=()
        path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
        ;;
esac

as_caller() {
    "${become[@]}" env -i USER="$id" LOGNAME="$id" HOME="$(getent passwd "$id" | cut -d: -f6)" \
        SHELL=/bin/bash PATH="$path" LANG=C.UTF-8 "$@"
}

# A /dev that is ours: the host's has no /dev/log everywhere, and its /dev/fuse may be for root only.
own_dev() {
    local dev=$stage/dev name
    mount -t tmpfs -o mode=755,nosuid dev "$dev"
    for name in null zero full random urandom tty ptmx fuse; do
        cp -a "/dev/$name" "$dev/$name"
    done
    chmod 666 "$dev/fuse"
    ln -s /proc/self/fd "$dev/fd"
    for name in stdin:0 stdout:1 stderr:2; do
        ln -s "/proc/self/fd/${name#*:}" "$dev/${name%:*}"
    done
    mkdir -m 1777 "$dev/shm"
    mkdir "$dev/pts"
    mount --bind /dev/pts "$dev/pts"
    /usr/bin/python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(sys.argv[1])' "$dev/log"
    chmod 666 "$dev/log"
    mount --move "$dev" /dev
}

cd /
# The tests leave files in /tmp.
mount -t tmpfs -o mode=1777 tmp /tmp
own_dev
install -d -o "$id" /tmp/fuse-source /tmp/fuse
as_caller bindfs --no-allow-other /tmp/fuse-source /tmp/fuse

# The same script, with what keeps it going read in after its own definitions.
if [ "$mode" = split ]; then
    awk -v split_by="$stage/runner/split.sh" '
        { print }
        /^done_testing \(\)/ { last = 1 }
        last && /^}/ { print ". " split_by; last = 0; done = 1 }
        END { exit !done }' "$stage/tests/test-run.sh" >"$stage/tests/test-run-split.sh" || {
        echo "test-run.sh does not define done_testing where it used to: it cannot be split" >&2
        exit 1
    }
fi

# run SCRIPT COMMAND...
run() {
    local log=$stage/logs/$caller-$link-$1 status=0
    shift
    as_caller BWRAP="$stage/$link/bwrap" BWRAP_MUST_WORK=1 \
        G_TEST_SRCDIR="$stage" G_TEST_BUILDDIR="$stage" \
        timeout -k 5 "$seconds" "$@" >"$log.tap" 2>"$log.log" || status=$?
    echo "$status" >"$log.status"
}

if [ "$mode" = split ]; then
    run test-run.sh bash "$stage/tests/test-run-split.sh"
else
    run test-run.sh bash "$stage/tests/test-run.sh"
fi
# Debian's Python: the one with Debian's python3-seccomp.
run test-seccomp.py /usr/bin/python3 "$stage/runner/unittest_as_tap.py" "$stage/tests/test-seccomp.py"
# Each holds one check, and waits without end for a sandbox that did not start.
seconds=30
run test-specifying-userns.sh bash "$stage/tests/test-specifying-userns.sh"
run test-specifying-pidns.sh bash "$stage/tests/test-specifying-pidns.sh"
