#!/usr/bin/env bash
# Builds libseccomp.a against musl and prints the directory it is in.
#
#   libseccomp.sh CACHE_DIR
#
# The distribution's own archive is made for glibc and does not link with musl, so the library is built
# from the distribution's source package. Fetching uses apt with private lists and a private cache: the
# system's apt set-up is read, never written, and no root is needed. apt checks the archive's signature
# down to the hash of the tarball and refuses what is not signed.
# On failure the last line on stderr is the reason.
set -euo pipefail

cache=$(mkdir -p "$1" && cd "$1" && pwd)
arch=$(uname -m)
out=$cache/$arch

if [ -f "$out/lib/libseccomp.a" ]; then
    echo "$out/lib"
    exit 0
fi

fail() {
    echo "$1" >&2
    exit 1
}

for tool in musl-gcc make tar; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
done

work=$(mktemp -d "$cache/work.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT

# Every source of the distribution itself, turned into a source of source packages.
source_entries() {
    mkdir "$work/parts"
    local file name
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -f "$file" ] || continue
        name=$(basename "$file" .list)
        sed -n '/^deb\(-src\)\? .*\/\(debian\|ubuntu\)/s/^deb\(-src\)\? /deb-src /p' "$file" \
            >"$work/parts/$name.list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -f "$file" ] || continue
        # Stanzas are separated by blank lines.
        awk 'BEGIN { RS = ""; ORS = "\n\n" }
             /\/(debian|ubuntu)/ && !/Enabled:[ \t]*no/ { sub(/Types:[^\n]*/, "Types: deb-src"); print }' \
            "$file" >"$work/parts/$(basename "$file")"
    done
    grep -rqs deb-src "$work/parts"
}

fetch() {
    command -v apt-get >/dev/null || fail "this system has no apt-get to fetch libseccomp's source with"
    source_entries || fail "apt knows no Debian or Ubuntu archive to fetch libseccomp's source from"
    mkdir -p "$work/lists/partial" "$work/apt/archives/partial" "$work/source"
    local apt=(
        apt-get -qq
        -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$work/parts"
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/apt"
        -o APT::Sandbox::User=root -o Acquire::AllowInsecureRepositories=false
        -o APT::Get::AllowUnauthenticated=false -o Acquire::Retries=2
    )
    "${apt[@]}" update >&2 || fail "the lists of source packages could not be fetched"
    (cd "$work/source" && "${apt[@]}" source --download-only libseccomp >&2) ||
        fail "libseccomp's source could not be fetched"
}

# The kernel's headers, without glibc's beside them.
kernel_headers() {
    local multiarch from name
    multiarch=/usr/include/$arch-linux-gnu
    mkdir "$work/include"
    for name in linux asm asm-generic; do
        from=/usr/include/$name
        [ -d "$from" ] || from=$multiarch/$name
        [ -d "$from" ] || fail "the kernel headers ($name) are not installed (package linux-libc-dev)"
        ln -s "$from" "$work/include/$name"
    done
}

compile() {
    local tarballs=("$work"/source/libseccomp_*.orig.tar.*)
    mkdir "$work/tree"
    tar -xf "${tarballs[0]}" -C "$work/tree" --strip-components=1 --no-same-owner
    cd "$work/tree"
    # The release archive carries gperf's output, so gperf itself is not needed.
    {
        GPERF=$(command -v gperf || echo true) CC=musl-gcc CFLAGS="-O2 -fPIC -I$work/include" \
            ./configure --quiet --enable-static --disable-shared --disable-python --prefix="$out" &&
            make -s -C include && make -s -j"$(nproc)" -C src libseccomp.la
    } >"$cache/build.log" 2>&1 || fail "libseccomp did not compile, see $cache/build.log"
}

fetch
kernel_headers
compile

# Complete or not there: the library appears by one rename.
mkdir -p "$out/lib/pkgconfig"
cp "$work/tree/LICENSE" "$out/LICENSE"
cp "$work/tree/libseccomp.pc" "$out/lib/pkgconfig/"
cp "$work/tree/src/.libs/libseccomp.a" "$out/lib/.libseccomp.a.new"
mv "$out/lib/.libseccomp.a.new" "$out/lib/libseccomp.a"
echo "$out/lib"
