#!/usr/bin/env bash
# Runs the tests: as root both as an ordinary user and as root, else just as the caller.
#
# The ordinary user may be unable to read this checkout or to run cargo. So root builds the test programs
# once and copies them, with the files they read, to a directory of that user's, where each is run with
#
#   COWORK_BIN          the cowork-linux to test, instead of the one cargo built
#   CARGO_MANIFEST_DIR  the copy of the checkout, .build/npm included
#   COWORK_TEST_RUST    a Rust toolchain to put in a box
#
# COWORK_TEST_REQUIRE lists features whose absence is a failure and not a skip. In CI (CI=true) that is
# all of them but cgroups, which depend on what the host delegates.
set -euo pipefail
cd "$(dirname "$0")/.."

user=cowork-tester
minutes=14 # longer than this for one half is a hang
if [ "${CI:-}" = true ]; then
    : "${COWORK_TEST_REQUIRE:=userns,landlock,seccomp,overlay,bwrap,busybox,python,node,java,chromium,claude,sandbox-runtime,cargo,sudo,strace,gdb,rg,sqlite3,curl,wget,git,ssh,requests,go,zsh,fish}"
    export COWORK_TEST_REQUIRE
fi

all_tests() { timeout -k 10 "${minutes}m" cargo test --locked --no-fail-fast; }

if [ "$(id -u)" -ne 0 ]; then
    all_tests
    echo "Run as $(id -un) only. The half that needs root was not run: sudo make test"
    exit 0
fi

# One line per built program: "test PATH SOURCE" or "bin PATH SOURCE".
built_programs() {
    local json=--message-format=json-render-diagnostics
    { cargo build --locked --bin cowork-linux $json && cargo test --locked --no-run $json; } | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message.get("executable"):
        kind = "test" if message["profile"]["test"] else "bin"
        print(kind, message["executable"], message["target"]["src_path"], sep="\t")
'
}

# copy_checkout TO: all but what is built, plus the programs from npm (linked, not copied, when possible).
copy_checkout() {
    tar -c --exclude=./target --exclude=./.build --exclude=./.git --exclude=node_modules . |
        tar -x -C "$1" --no-same-owner
    chown -R "$user:" "$1"
    [ -d .build/npm ] || return 0
    mkdir "$1/.build"
    cp -al .build/npm "$1/.build/npm" 2>/dev/null || {
        rm -rf --one-file-system "$1/.build/npm"
        cp -a .build/npm "$1/.build/npm"
    }
}

# link_rust TO: root's own toolchain, which is usually in a home that others cannot enter.
link_rust() {
    local root
    root=$(rustc --print sysroot)
    cp -al "$root" "$1" 2>/dev/null || {
        rm -rf --one-file-system "$1"
        cp -a "$root" "$1"
    }
    chmod 755 "$1"
}

# as_user COMMAND...: a clean log-in of that user, without the caller's environment, in the copy.
as_user() {
    local keep=() name
    for name in CI COWORK_TEST_REQUIRE RUST_BACKTRACE RUST_TEST_THREADS TERM; do
        [ -z "${!name:-}" ] || keep+=("$name=${!name}")
    done
    (cd "$copy" && timeout -k 10 "${minutes}m" setpriv --reuid "$user" --regid "$user" --init-groups \
        --inh-caps=-all env -i "${keep[@]}" \
        USER="$user" LOGNAME="$user" HOME="$(getent passwd "$user" | cut -d: -f6)" SHELL=/bin/bash \
        PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 XDG_RUNTIME_DIR="$stage/runtime" \
        COWORK_BIN="$binary" CARGO_MANIFEST_DIR="$copy" CARGO_TARGET_TMPDIR="$stage/tmp" \
        COWORK_TEST_RUST="$stage/rust" INSTA_WORKSPACE_ROOT="$copy" INSTA_UPDATE=no "$@")
}

programs=$(built_programs)
stage=$(mktemp -d /var/tmp/cowork-tests.XXXXXX)
# Never across a mount: a test that left one behind must not cost what is under it.
trap 'rm -rf --one-file-system "$stage"' EXIT
chmod 755 "$stage"
copy=$stage/checkout
mkdir "$copy" "$stage/bin"
install -d -o "$user" -m 700 "$stage/runtime" "$stage/tmp"
copy_checkout "$copy"
link_rust "$stage/rust"

binary=${COWORK_BIN:-$(awk -F'\t' '$1 == "bin" { print $2; exit }' <<<"$programs")}
install -m 755 "$binary" "$stage/bin/cowork-linux"
binary=$stage/bin/cowork-linux

failed=()
echo "== as $user"
while IFS=$'\t' read -r kind program source; do
    [ "$kind" = test ] || continue
    name=${source#"$PWD"/}
    echo "     Running $name"
    install -m 755 "$program" "$stage/bin/test"
    as_user "$stage/bin/test" </dev/null || failed+=("$name (as $user)")
done <<<"$programs"

left=$(ps -o pid=,args= -u "$user" || true)
[ -z "$left" ] || printf 'Processes of %s that are still there:\n%s\n' "$user" "$left" >&2

echo "== as root"
all_tests || failed+=("cargo test (as root)")

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "All tests passed, as $user and as root."
