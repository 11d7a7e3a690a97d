#!/usr/bin/env bash
# `make run`: starts a command in a box, or the tour when there is none.
#
#   run.sh [MOUNT [COMMAND...]]
#
# An empty MOUNT stands for a new scratch folder. A command's scratch folder is kept, since its work is in it;
# the tour cleans up after itself.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
box=$here/../.build/cowork-linux
mount=${1:-}
shift || true

if [ $# -gt 0 ]; then
    if [ -z "$mount" ]; then
        mount=$(mktemp -d "${TMPDIR:-/tmp}/cowork-scratch.XXXXXX")
        echo "No MOUNT given; the command works in $mount" >&2
    fi
    exec "$box" run --mount "$mount" -- "$@"
fi

# The tour writes a file, so it never goes over a folder of the caller's.
if [ -n "$mount" ]; then
    echo "MOUNT needs a command to go with it: make run CMD=\"claude\" MOUNT=$mount" >&2
    exit 2
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/cowork-tour.XXXXXX")
trap 'rm -f "$scratch/tour.txt"; rmdir "$scratch" 2>/dev/null || echo "Left behind: $scratch" >&2' EXIT
"$box" run -q --mount "$scratch" -- sh -c "$(cat "$here/tour.sh")" tour "$HOME" "$(id -u)"
