#!/usr/bin/env bash
# Runs bubblewrap's own tests against a binary that claims to be bwrap. As root.
#
#   bubblewrap-suite.sh SOURCE BINARY [--as user|root] [--link hard|sym] [--split]
#
# SOURCE is a checkout of bubblewrap 0.11.1, BINARY what is tested. The binary is called through a hard link
# named bwrap and through a symbolic one, by the ordinary user cowork-tester and by root: four runs, unless
# --as or --link ask for one half. The tests are run as they are; a script stops at its first failure, and
# whatever it did not reach counts as failed. --split keeps going after a failure, to see all of them.
#
# Exit 0 only if all checks pass. Root can read every file, so there it has to skip the four about an
# unreadable one.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
user=cowork-tester
umask 022

usage() {
    sed -n '4s/^# *//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

callers=(user root)
links=(hard sym)
mode=strict
words=()
while [ $# -gt 0 ]; do
    case $1 in
        --as) case ${2:-} in user | root) callers=("$2") ;; *) usage ;; esac && shift ;;
        --link) case ${2:-} in hard | sym) links=("$2") ;; *) usage ;; esac && shift ;;
        --split) mode='split' ;;
        -*) usage ;;
        *) words+=("$1") ;;
    esac
    shift
done
[ ${#words[@]} -eq 2 ] || usage
source=${words[0]} binary=${words[1]}

[ -f "$source/tests/test-run.sh" ] || {
    echo "please name a checkout of bubblewrap 0.11.1 (make: BUBBLEWRAP=dir): '$source' has no tests/test-run.sh" >&2
    exit 2
}
[ -x "$binary" ] || {
    echo "there is no program '$binary' to test" >&2
    exit 2
}
[ "$(id -u)" -eq 0 ] || {
    echo "the tests run as $user and as root, beside a FUSE mount and a /dev of their own: please run this as root" >&2
    exit 2
}

"$here/need.sh" gcc=gcc libc6-dev python3=python3 python3-seccomp libcap2-bin strace=strace \
    unshare=util-linux mount=mount pgrep=procps bindfs=bindfs fusermount3=fuse3
id "$user" >/dev/null 2>&1 ||
    useradd --create-home --shell /bin/bash --comment "runs cowork-linux's tests" "$user"

# Where the ordinary user can read, whoever owns the checkouts.
stage=$(mktemp -d /var/tmp/bubblewrap-suite.XXXXXX)
trap 'rm -rf --one-file-system "$stage"' EXIT
chmod 755 "$stage"
mkdir "$stage/hard" "$stage/sym" "$stage/dev" "$stage/logs"
cp -r "$source/tests" "$stage/tests"
cp -r "$here/bubblewrap-suite" "$stage/runner"
chmod -R a+rX "$stage/tests" "$stage/runner"
gcc -o "$stage/tests/try-syscall" "$source/tests/try-syscall.c"
install -m 755 "$binary" "$stage/cowork-linux"
ln "$stage/cowork-linux" "$stage/hard/bwrap"
ln -s ../cowork-linux "$stage/sym/bwrap"

row() { printf '%-5s %-4s  %-27s %6s %6s %7s  %s\n' "$@"; }

# count CALLER LINK SCRIPT CHECKS: sets passed, failed and skipped.
count() {
    local log=$stage/logs/$1-$2-$3 status refused
    passed=$(grep '^ok' "$log.tap" | grep -vc '# SKIP') || true
    skipped=$(grep -c '^ok.*# SKIP' "$log.tap") || true
    refused=$(grep -c '^not ok' "$log.tap") || true
    status=$(cat "$log.status" 2>/dev/null || echo none)
    failed=$(($4 - passed - skipped))
    [ "$failed" -ge "$refused" ] || failed=$refused
    [ "$status" = 0 ] || [ "$failed" -gt 0 ] || failed=1
}

# why CALLER LINK SCRIPT: what a script said where it failed.
why() {
    local log=$stage/logs/$1-$2-$3
    echo "--- $3 as $1, $2 link: exit status $(cat "$log.status" 2>/dev/null || echo unknown)"
    if grep -q '^not ok' "$log.tap"; then
        # A check's lines end with its verdict, which the log repeats. What counts is how it came to the
        # first failure.
        awk -v most=15 '
            /^(not )?ok / {
                if ($1 == "not") {
                    print "--- " $0
                    if (!end) end = n
                    for (i = end > most ? end - most : 0; i < end; i++) print "    " line[i]
                }
                n = end = 0
                next
            }
            { line[n++] = $0 }
            /^failed: / && !end { end = n }' "$log.log"
    else
        # A loop that waited to the end would fill all the lines.
        awk '!seen[$0]++' "$log.log" | tail -n 25 | sed 's/^/    /'
    fi
}

scripts='test-run.sh 69
test-seccomp.py 6
test-specifying-userns.sh 1
test-specifying-pidns.sh 1'
declare -A wanted=([user]='77 0 0' [root]='73 0 4')
verdict=0
reasons=$stage/reasons
: >"$reasons"

row as link script passed failed skipped ''
for caller in "${callers[@]}"; do
    for link in "${links[@]}"; do
        unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
            bash "$stage/runner/inside.sh" "$stage" "$caller" "$link" "$mode" </dev/null || {
            echo "the tests could not be set up" >&2
            exit 1
        }
        sum=(0 0 0)
        while read -r script checks; do
            count "$caller" "$link" "$script" "$checks"
            row "$caller" "$link" "$script" "$passed" "$failed" "$skipped" ''
            [ "$failed" -eq 0 ] || why "$caller" "$link" "$script" >>"$reasons"
            sum=($((sum[0] + passed)) $((sum[1] + failed)) $((sum[2] + skipped)))
        done <<<"$scripts"
        note=
        [ "${sum[*]}" = "${wanted[$caller]}" ] || {
            read -r passed failed skipped <<<"${wanted[$caller]}"
            note="should be $passed passed, $failed failed, $skipped skipped"
            verdict=1
        }
        row "$caller" "$link" total "${sum[@]}" "$note"
    done
done
cat "$reasons"
exit "$verdict"
