#!/usr/bin/env bash
# Builds the release binary and puts it at .build/cowork-linux.
#
# Wanted: one static-pie file against musl, which starts in a third of the time of a dynamic one and runs
# on every distribution. Where the Rust target or libseccomp's source cannot be had, one sentence says so
# and the ordinary dynamic build is made instead.
#
#   COWORK_LINK=static   fail instead of falling back
#   COWORK_LINK=dynamic  do not try the static build
set -euo pipefail
cd "$(dirname "$0")/../.."

wanted=${COWORK_LINK:-any}
target=$(uname -m)-unknown-linux-musl
artifacts=${CARGO_TARGET_DIR:-target}
cache=.build/libseccomp-musl
result=.build/cowork-linux
why=$cache/why-not
need=packaging/need.sh

die() {
    printf 'error: cannot build cowork-linux\nbecause: %s\nhelp: %s\n' "$1" "$2" >&2
    exit 1
}

# A failure that had to do with the network is remembered for an hour, so that a machine without one does not
# wait for it at every build.
failed_lately() { [ -n "$(find "$1" -mmin -60 2>/dev/null)" ]; }

# Rust's own standard library for the target: there already, or added by rustup.
have_target() {
    [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] && return
    command -v rustup >/dev/null && ! failed_lately "$cache/no-target" || return
    rustup target add "$target" >&2 || {
        touch "$cache/no-target"
        return 1
    }
}

# Prints the directory of a libseccomp.a for musl.
have_libseccomp() {
    ! failed_lately "$why" || return
    packaging/static/libseccomp.sh "$cache" 2>"$cache/log" && return
    tail -n 1 "$cache/log" >"$why"
    return 1
}

# Everything the static build needs, or the reason why it cannot be made.
static_parts() {
    if ! have_target; then
        reason="the Rust target $target is not installed"
    elif ! command -v musl-gcc >/dev/null && ! "$need" musl-tools linux-libc-dev make; then
        reason="musl-gcc is missing"
    elif ! lib=$(have_libseccomp); then
        reason=$(cat "$why")
    else
        return 0
    fi
    return 1
}

build_static() {
    LIBSECCOMP_LINK_TYPE=static LIBSECCOMP_LIB_PATH=$lib \
        cargo build --release --locked --bin cowork-linux --target "$target"
    built=$artifacts/$target/release/cowork-linux
}

build_dynamic() {
    # The compiler answers with a path when it knows the library, and with the bare name when not.
    [[ $(cc -print-file-name=libseccomp.so) == */* ]] || "$need" libseccomp-dev ||
        die "libseccomp's development files are missing" "apt-get install libseccomp-dev"
    cargo build --release --locked --bin cowork-linux
    built=$artifacts/release/cowork-linux
}

command -v cargo >/dev/null ||
    die "cargo is not on PATH" "install Rust 1.88 or newer (rustup, or the distribution's cargo package)"
command -v cc >/dev/null || "$need" gcc libc6-dev ||
    die "there is no C compiler to link with" "apt-get install gcc libc6-dev"
mkdir -p "$cache"

if [ "$wanted" != dynamic ] && static_parts; then
    build_static
elif [ "$wanted" = static ]; then
    die "$reason" "make clean, then try again with network"
else
    [ "$wanted" = dynamic ] || echo "Building a dynamic binary, because $reason (make clean, to try again)." >&2
    build_dynamic
fi

# Complete or not there, also while an older one is running.
if ! cmp -s "$built" "$result"; then
    temporary=$(mktemp .build/.cowork-linux.XXXXXX)
    cp "$built" "$temporary"
    chmod 755 "$temporary"
    mv "$temporary" "$result"
fi
