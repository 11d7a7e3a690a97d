#!/usr/bin/env bash
# Makes sure that Debian packages are there, and installs the missing ones.
#
#   need.sh WHAT...
#
# WHAT is a package (`musl-tools`) or a command with the package that brings it (`node=nodejs`):
# the second form is content with the command wherever it came from.
# Silent and without network when nothing is missing. Exit 1, with one line, when it cannot help.
set -euo pipefail

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=()
for what in "$@"; do
    case $what in
        *=*) command -v "${what%%=*}" >/dev/null || missing+=("${what#*=}") ;;
        *) installed "$what" || missing+=("$what") ;;
    esac
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]} (Debian's names). Please install them with this system's package tool." >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    # sudo may ask for a password, but only where somebody can answer.
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        as_root=(sudo)
    else
        echo "missing: ${missing[*]}. Please ask an administrator for: apt-get install ${missing[*]}" >&2
        exit 1
    fi
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 -qq "$@" </dev/null >&2
}

echo "installing: ${missing[*]}" >&2
packages=(install -y --no-install-recommends "${missing[@]}")
# The package lists may be absent or old; only then are they fetched.
apt "${packages[@]}" 2>/dev/null || { apt update && apt "${packages[@]}"; } || {
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 1
}
