#!/usr/bin/env bash
# Fuzzes with libFuzzer, one target after the other.
#
#   tests/fuzz.sh                       every target for ten minutes of processor time
#   tests/fuzz.sh SECONDS [TARGET...]   these targets for so long
#
# The stable toolchain suffices: coverage comes from a pass of LLVM, and since the crates have next to
# no unsafe code there is no sanitizer; memory is counted by the targets themselves. What was found
# is kept below target/fuzz: `corpus/TARGET` (inputs that reach new code), `crash/TARGET` (inputs that
# fail: copy them to tests/fuzz/seeds/TARGET/regression-NAME, where every test run replays them).
# The last lines are a table; exit code 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

seconds=${1:-600}
[ $# -gt 0 ] && shift
targets=("$@")
[ $# -eq 0 ] && for f in tests/fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$f" .rs)"); done

triple=$(rustc -vV | sed -n 's/^host: //p')
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR
export CARGO_INCREMENTAL=0
work=$CARGO_TARGET_DIR/fuzz
mkdir -p "$work"
# With a target of its own, the flags are not for build scripts and macros.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --manifest-path tests/fuzz/Cargo.toml --target "$triple" || exit 1

# used: sets `cpu` to the seconds of processor time of all programs that this one waited for. `times`
# has to run in this shell itself: a subshell's programs are others.
used() {
    times >"$work/times"
    cpu=$(awk -F'[ms ]+' 'NR == 2 {print int($1 * 60 + $2 + $3 * 60 + $4)}' "$work/times")
}

rows=() status=0
for target in "${targets[@]}"; do
    mkdir -p "$work/corpus/$target" "$work/crash/$target" "$work/log"
    log=$work/log/$target.log
    : >"$log"
    used
    before=$cpu result=passed
    # libFuzzer counts time on the clock: on a busy machine it runs several times, and what takes long may
    # only have waited.
    while used; [ $((cpu - before)) -lt "$seconds" ]; do
        left=$((seconds - (cpu - before)))
        nice -n 19 "$CARGO_TARGET_DIR/$triple/debug/$target" -max_total_time=$((left < 60 ? left : 60)) \
            -max_len=8192 -timeout=60 -rss_limit_mb=1024 -artifact_prefix="$work/crash/$target/" \
            "$work/corpus/$target" "tests/fuzz/seeds/$target" >>"$log" 2>&1 || { result=FAILED status=1; break; }
    done
    used
    runs=$(awk '/^Done /{n += $2} END {print n + 0}' "$log")
    [ $result = FAILED ] && { grep -aE 'panicked|ERROR|SUMMARY|Test unit' "$log" | tail -n 8; tail -n 3 "$log"; }
    rows+=("$(printf '%-14s %8s s %12s runs  %s' "$target" "$((cpu - before))" "$runs" "$result")")
    echo "${rows[-1]}"
done
printf '%s\n' "" "${rows[@]}"
exit $status
