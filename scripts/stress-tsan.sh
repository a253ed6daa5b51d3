#!/bin/sh
# The stress run of `torture` under ThreadSanitizer: fails at the first report or finding.
#
#   scripts/stress-tsan.sh [SECONDS [SEED [THREADS]]]
#
# Needs a nightly compiler with rust-src: the standard library is built with the sanitizer, too,
# since its locks and counters order what the engine does. Reports of places that cannot be made
# known to the sanitizer are left out by scripts/tsan-suppressions.txt, which gives the reason of
# each.
set -eu
seconds=${1:-60}
seed=${2:-1}
threads=${3:-4}
here=$(cd "$(dirname "$0")/.." && pwd)
target=x86_64-unknown-linux-gnu
cd "$here"

RUSTFLAGS="-Zsanitizer=thread" cargo +nightly build -Zbuild-std --target "$target" \
    --profile simulation --package torture --bin stress --target-dir target-tsan

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT INT TERM
# A disk in files needs direct I/O or does without: where the directory is does not matter.
TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 history_size=4 \
suppressions=$here/scripts/tsan-suppressions.txt" \
    "target-tsan/$target/simulation/stress" --seconds "$seconds" --seed "$seed" \
    --threads "$threads" --directory "$place"
