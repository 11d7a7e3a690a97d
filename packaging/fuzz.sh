#!/usr/bin/env bash
# Throws bytes at every reader of the gateway and of the app's socket for so many seconds each, led by libFuzzer from the seeds in
# tests/fuzz/seeds. What it finds worth keeping stays in tests/fuzz/corpus; what breaks a reader, in
# tests/fuzz/artifacts.
#
#   fuzz.sh [SECONDS] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo 'fuzzing needs cargo-fuzz: cargo install cargo-fuzz' >&2
    exit 1
fi
packaging/need.sh libseccomp-dev pkg-config

# Without a sanitizer: the readers are safe Rust, and so any compiler will do.
fuzz=(cargo fuzz run --sanitizer none --fuzz-dir tests/fuzz)
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo fuzz list --fuzz-dir tests/fuzz)
fi
for target in "${targets[@]}"; do
    echo "== $target, $seconds seconds"
    mkdir -p "tests/fuzz/corpus/$target"
    "${fuzz[@]}" "$target" "tests/fuzz/corpus/$target" "tests/fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=20000 -timeout=10 -rss_limit_mb=2048
done
