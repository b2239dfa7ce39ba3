#!/usr/bin/env bash
# Everything that is needed for trust in a change.
#
#   tests/run.sh          formatting, lints, docs, builds without std, all tests, command line runs
#   tests/run.sh full     the same, and what takes long
#
# Sets up what it needs and keeps it below target/. The last line is `N passed, M failed`, with
# `, K skipped` where something could not run; each skipped thing has a line `skipped: why`.
# Exit code 0 only if nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

tier=${1:-change}
case $tier in
    change | full) ;;
    *) echo "usage: tests/run.sh [full]" >&2; exit 2 ;;
esac

export CARGO_TERM_COLOR=never
# An incremental cache of a build that is thrown away only costs time and disk.
export CARGO_INCREMENTAL=0
unset AMDEV_DEVICE AMDEV_FIRMWARE
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
logs=$target/test-run
mkdir -p "$logs"
rm -f "$logs"/*.log

passed=0 failed=0 skipped=0
fuzzing=0
rows=()   # name|checked|matched|deviations|time
reasons=()

row() { rows+=("$1|$2|$3|$4|$5"); }
skip() { skipped=$((skipped + 1)); reasons+=("skipped: $1"); }

# run_logged NAME COMMAND...: runs with output to a log; shows the log's end on failure.
run_logged() {
    local name=$1 start=$SECONDS status
    shift
    printf '%-34s' "$name"
    "$@" >"$logs/${name// /-}.log" 2>&1
    status=$?
    took=$((SECONDS - start))
    if [ $status -eq 0 ]; then
        printf 'ok     %4s s\n' "$took"
    else
        printf 'FAILED %4s s\n' "$took"
        # Of tests the failures are said before the end, of builds the errors.
        { grep -nE '^(error|failures:|test .* FAILED|thread .* panicked)' "$logs/${name// /-}.log" | head -n 20
          tail -n 40 "$logs/${name// /-}.log"; } | sed 's/^/    /'
    fi
    return $status
}

# step NAME COMMAND...: one check.
step() {
    if run_logged "$@"; then
        passed=$((passed + 1))
        row "$1" 1 1 0 "$took"
    else
        failed=$((failed + 1))
        row "$1" 1 0 0 "$took"
    fi
}

# tests NAME CARGO-ARGUMENTS...: each test counts; `skipped:` and `summary:` lines are kept.
tests() {
    local name=$1 log="$logs/${1// /-}.log" ok bad status
    shift
    run_logged "$name" cargo test --locked --no-fail-fast "$@" -- --show-output
    status=$?
    read -r ok bad < <(awk '/^test result: /{ok += $4; bad += $6} END {print ok + 0, bad + 0}' "$log")
    # A test binary that did not build or that died has no result line.
    [ $status -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad))
    row "$name" $((ok + bad)) "$ok" 0 "$took"
    while IFS= read -r why; do skip "$why"; done < <(sed -n 's/^skipped: //p' "$log" | sort -u)
    # summary: NAME checked=N matched=M deviations=D
    while read -r _ sub c m d; do
        row "  $sub" "${c#checked=}" "${m#matched=}" "${d#deviations=}" ""
    done < <(grep '^summary: ' "$log" | sort -u)
}

# judge COMMAND FILES...: recorded facts against driver and simulator, by the tool that the tests
# built. What it cannot do yet (exit code 3) is skipped.
judge() {
    local name="golden $1" log="$logs/golden-$1.log" start=$SECONDS status c m d
    printf '%-34s' "$name"
    "$golden" --summary "$@" >"$log" 2>&1
    status=$?
    took=$((SECONDS - start))
    # summary: NAME checked=N matched=M deviations=D
    read -r _ _ c m d < <(grep '^summary: ' "$log")
    c=${c#checked=} m=${m#matched=} d=${d#deviations=}
    case $status in
        0) printf 'ok     %4s s\n' "$took"; passed=$((passed + 1)) ;;
        3) printf 'skipped\n'; skip "$name: not possible yet" ;;
        # The archive has moved on: nothing recorded is of this version.
        *) if grep -q 'are of no package that' "$log"; then
            printf 'skipped\n'; skip "$name: $(grep -o 'the files in .*' "$log" | head -n 1)"
            return
        fi ;;&
        *)
            printf 'FAILED %4s s\n' "$took"
            grep -E 'differs: |DIFFERENT|^error' "$log" | head -n 40 | sed 's/^/    /'
            failed=$((failed + 1))
            ;;
    esac
    row "$name" "${c:-0}" "${m:-0}" "${d:-0}" "$took"
}

# matrix COMMAND...: boots that fail at one place each; a row for each kind of failure.
matrix() {
    local name="fault matrix" log="$logs/fault-matrix.log"
    step "$name" "$@"
    while read -r _ sub c m d; do
        row "  $sub" "${c#checked=}" "${m#matched=}" "${d#deviations=}" ""
    done < <(grep '^summary: ' "$log")
    # How much of all cases this was.
    reached=$(grep -E '^[0-9]+ of [0-9]+ cases$' "$log") && echo "  $reached"
}

# Tools that come with the toolchain, but not with every installation of it.
have_component() {
    cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2" >/dev/null 2>&1
}

echo "$(rustc --version), $(nproc) processors, tier: $tier"

if [ -x tests/fetch.sh ]; then
    if ! run_logged "firmware packages" tests/fetch.sh firmware; then
        skip "tests with AMD's firmware: fetching it failed"
    fi
    while IFS= read -r why; do skip "$why"; done < <(sed -n 's/^skipped: //p' "$logs/firmware-packages.log")
fi

if have_component fmt rustfmt; then step "format" cargo fmt --all --check; else skip "format (no rustfmt)"; fi
if have_component clippy clippy; then
    step "lints" cargo clippy --locked --workspace --all-targets -- -D warnings
else
    skip "lints (no clippy)"
fi
# The fuzz targets are a workspace of their own. No --locked: their lock file follows the crates'.
if ! command -v c++ >/dev/null; then
    skip "lints of the fuzz targets, fuzzing: no C++ compiler for libFuzzer"
elif ! cargo fetch --manifest-path tests/fuzz/Cargo.toml >"$logs/fuzz-fetch.log" 2>&1; then
    skip "lints of the fuzz targets, fuzzing: their dependencies cannot be fetched"
else
    fuzzing=1
    step "fuzz targets: format" cargo fmt --manifest-path tests/fuzz/Cargo.toml --check
    step "fuzz targets: lints" cargo clippy --manifest-path tests/fuzz/Cargo.toml -- -D warnings
fi
step "docs" env RUSTDOCFLAGS=-Dwarnings cargo doc --locked --no-deps --workspace
step "core without std" cargo build --locked -p amdev-core --no-default-features
step "fw-loader without std" cargo build --locked -p amdev-fw --no-default-features
step "release build" cargo build --locked --release

# What README promises.
demo() {
    local start out=$logs/demo.out
    start=$(date +%s%N)
    "$target/release/amdev" demo | tee "$out" || return 1
    grep -q ' 0 wrong' "$out" || { echo "the demo does not say that all is right"; return 1; }
    local ms=$((($(date +%s%N) - start) / 1000000))
    echo "took $ms ms"
    [ $ms -lt 10000 ]
}
step "demo in under 10 s" demo

if [ "$tier" = full ]; then
    # Tests with a long form look at AMDEV_FULL, property tests at the number of cases.
    export AMDEV_FULL=1 PROPTEST_CASES=20000
    tests "tests" --workspace --release
    # What the change tier leaves out: see the reason beside each `#[ignore]`.
    step "killed at every access" cargo test --locked --release -p amdev-tests --test states -- --ignored
    if run_logged "kernel headers" tests/fetch.sh linux && [ -d target/fetch/linux/drivers ]; then
        step "register tables from headers" env AMDEV_LINUX_SOURCE="$PWD/target/fetch/linux" \
            cargo test --locked -p amdev-regs --test list -- --ignored
    else
        skip "register tables from headers: $(sed -n 's/^skipped: //p' "$logs/kernel-headers.log")"
    fi
    if run_logged "large code object" tests/fetch.sh rocblas && [ -d target/fetch/rocblas ]; then
        step "large code object, read" cargo test --locked --release -p amdev-tests --test large_object -- --ignored
    else
        skip "large code object: $(sed -n 's/^skipped: //p' "$logs/large-code-object.log")"
    fi
    # Two kinds of faults at every command of a boot, behind each firmware.
    step "usb: faults at every command" env AMDEV_USB_FAULTS=1 \
        cargo test --locked --release -p amdev-tests --test usb -- faults
    golden=$target/release/golden
    matrix "$target/release/fault-matrix" --full --jobs 16
    [ $fuzzing -eq 1 ] && step "fuzzing" tests/fuzz.sh
else
    tests "tests" --workspace
    golden=$target/debug/golden
    matrix "$target/debug/fault-matrix"
fi

# Every committed fact through the tool that also judges facts kept elsewhere.
for command in replay sim psp smu mqd faults scratch regs pt tlsf queues program usb; do
    judge $command tests/golden
done
for dir in target/fetch/firmware/*/; do
    [ -d "$dir" ] && judge fw tests/golden/fw.json.gz --firmware "$dir"
done
judge facts tests/corpus/facts --objects tests/corpus/co
judge cases tests/corpus/cases --objects tests/corpus/co
judge reject tests/corpus/malformed
# script NAME COMMAND...: a script whose last line is `N passed, M failed`.
script() {
    local name=$1 log="$logs/${1// /-}.log" ok bad status
    run_logged "$@"
    status=$?
    read -r ok bad < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed.*/\1 \2/p' "$log" | tail -n 1)
    ok=${ok:-0} bad=${bad:-0}
    [ $status -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    passed=$((passed + ok)) failed=$((failed + bad))
    row "$name" $((ok + bad)) "$ok" 0 "$took"
    while IFS= read -r why; do skip "$name: $why"; done < <(sed -n 's/^skipped: //p' "$log")
}
# tests/bare is a workspace of its own, for targets without an operating system.
step "bare metal: format" cargo fmt --manifest-path tests/bare/Cargo.toml --all --check
step "bare metal: lints" cargo clippy --locked --manifest-path tests/bare/Cargo.toml -p bare-kernel \
    --target x86_64-unknown-linux-gnu -- -D warnings
script "bare targets" tests/bare-targets.sh
script "bare metal in QEMU" tests/bare/run.sh
script "Linux guest in QEMU" tests/qemu/run.sh

printf '\n%-34s %8s %8s %10s %6s\n' name checked matched deviations s
for r in "${rows[@]}"; do
    IFS='|' read -r name c m d t <<<"$r"
    printf '%-34s %8s %8s %10s %6s\n' "$name" "$c" "$m" "$d" "$t"
done
echo
[ ${#reasons[@]} -gt 0 ] && printf '%s\n' "${reasons[@]}"
line="$passed passed, $failed failed"
[ $skipped -gt 0 ] && line="$line, $skipped skipped"
echo "$line"
[ $failed -eq 0 ]
