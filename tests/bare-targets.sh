#!/usr/bin/env bash
# Builds amdev-core and amdev-fw for machines without an operating system, and says what they cost.
#
#   tests/bare-targets.sh
#
# For each target: both crates build with warnings as errors; an image that boots a GPU, copies and
# launches a kernel (tests/bare/footprint) is linked with all optimisation, its sections and the
# state of a device are measured, and it must hold no panic.
#
# The library `core` of these targets is built from Debian's rust-src, which must be of exactly the
# installed compiler's version; kept below target/fetch under a key of both. The last line is
# `N passed, M failed`; `skipped: why` when there is no such source.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

targets=(${AMDEV_BARE_TARGETS:-x86_64-unknown-none aarch64-unknown-none riscv64gc-unknown-none-elf thumbv7em-none-eabihf})
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
fetch=$PWD/target/fetch
log=$CARGO_TARGET_DIR/bare-targets.log
mkdir -p "$fetch" "$CARGO_TARGET_DIR"

tests/fetch.sh rust-src || exit 1
version=$(rustc -vV | sed -n 's/^release: //p')
library=$fetch/rust-src/$version/library
# fetch.sh has said why.
[ -d "$library" ] || exit 0
command -v readelf >/dev/null || { echo "skipped: readelf (binutils) is not installed"; exit 0; }

# A sysroot of our own: the toolchain's, the source, and the libraries built here.
host=$(rustc -vV | sed -n 's/^host: //p')
key=$(rustc -vV | sed -n 's/^commit-hash: //p')
sysroot=$fetch/bare-sysroot/$version-${key:0:12}
rustlib=$sysroot/lib/rustlib
if [ ! -e "$rustlib/$host" ]; then
    mkdir -p "$rustlib/src/rust"
    ln -s "$library" "$rustlib/src/rust/library"
    ln -s "$(rustc --print sysroot)/lib/rustlib/$host" "$rustlib/$host"
fi

# Builds `core` of a target by building an empty crate with it.
build_core() {
    local target=$1 work=$CARGO_TARGET_DIR/build-core
    [ ! -e "$rustlib/$target/lib/.done" ] || return 0
    mkdir -p "$work/src" "$rustlib/$target/lib"
    printf '[package]\nname = "empty"\nedition = "2024"\n[workspace]\n' >"$work/Cargo.toml"
    echo '#![no_std]' >"$work/src/lib.rs"
    printf '#!/bin/sh\nexec rustc --sysroot "%s" "$@"\n' "$sysroot" >"$work/rustc"
    chmod +x "$work/rustc"
    # The only step that needs unstable options of the compiler. Bitcode is for the image, which is
    # optimised as a whole.
    (cd "$work" && RUSTFLAGS=-Cembed-bitcode=yes RUSTC=$work/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$work/target cargo build --release \
        -Zbuild-std=core -Zbuild-std-features=compiler-builtins-mem --target "$target") || return 1
    local deps=$work/target/$target/release/deps
    cp "$deps"/libcore-*.r* "$deps"/libcompiler_builtins-*.r* "$rustlib/$target/lib/" || return 1
    touch "$rustlib/$target/lib/.done"
    # What was built with another core does not fit any more, and cargo would not see it.
    rm -rf "$work/target/$target" "${CARGO_TARGET_DIR:?}/$target"
}

section() {
    local size
    size=$(readelf -SW "$1" | sed -n 's/^ *\[ *[0-9]*\] //p' | awk -v n="$2" '$1 == n {print $5}')
    echo $((16#${size:-0}))
}

passed=0 failed=0
check() {
    local what=$1
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        tail -n 40 "$log" | sed 's/^/    /'
        return 1
    fi
}

# Symbols that only code which may panic refers to, by their mangled path. One remains, in every
# `async fn`: polling it again after its end panics. Nothing does: `.await` takes the future, and the
# driver's loop drops it when it is ready. This panic has no bounds, no arithmetic and no unwrap.
panics() {
    readelf -sW "$1" | grep -oE '[0-9]+core[0-9]+(panicking|slice5index|result13unwrap_failed|option1[0-9](unwrap|expect)_failed)[A-Za-z0-9_$.]*' |
        sed 's/17h[0-9a-f]*E$//' | sort -u | grep -vE '^4core9panicking(5panic|9panic_fmt)$'
}

no_panic() {
    local found
    found=$(panics "$1")
    [ -z "$found" ] || { printf 'may panic:\n%s\n' "$found"; return 1; }
    # Of one architecture also who calls it: only the bodies of async functions may, or what they
    # are compiled into.
    [ "$2" = x86_64-unknown-none ] && command -v objdump >/dev/null || return 0
    found=$(objdump -dC --no-show-raw-insn "$1" |
        awk '/^[0-9a-f]+ </ {f = $0} /<core::panicking::/ && !/^[0-9a-f]+ </ {print f}' |
        grep -vE '\{\{closure\}\}|<core::panicking::|<amdev_core::runtime::(Made::(queue|give_back)|Runtime<I>::(new|make|release))>|<amdev_core::device::gpu::Gpu<B>|<amdev_core::(runtime::hang|device::recover)::<impl ' | sort -u)
    [ -z "$found" ] || { printf 'may panic:\n%s\n' "$found"; return 1; }
}

printf '%-28s %8s %8s   %s\n' target .text .rodata 'state of a device, bytes'
for target in "${targets[@]}"; do
    check "core library for $target" build_core "$target" || continue
    export RUSTFLAGS="--sysroot $sysroot -Dwarnings"
    check "amdev-core and amdev-fw for $target" \
        cargo build --locked -p amdev-core -p amdev-fw --no-default-features --target "$target"
    check "image for $target" cargo build --locked --manifest-path tests/bare/footprint/Cargo.toml \
        --release --target "$target" || continue
    image=$CARGO_TARGET_DIR/$target/release/footprint
    check "no panic in the image for $target" no_panic "$image" "$target"
    state=$(readelf -sW "$image" | awk '$8 ~ /^STATE_/ {sub("STATE_", "", $8); print $8, $3}' | sort |
        awk '{printf "%s%s %s", sep, $1, $2; sep = ", "}')
    printf '%-28s %8s %8s   %s\n' "$target" "$(section "$image" .text)" "$(section "$image" .rodata)" "$state"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
