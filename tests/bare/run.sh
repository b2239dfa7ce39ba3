#!/usr/bin/env bash
# Boots the bare-metal image in QEMU, with a simulated GPU on its PCI bus, and has it run a kernel.
#
#   tests/bare/run.sh
#
# Twice: with SeaBIOS, which places the GPU's windows, and with qboot, which leaves that to the image.
# Firmware is AMD's where tests/fetch.sh has it, else synthetic. The last line is
# `N passed, M failed`; `skipped: why` where QEMU cannot be had.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
fetch=$PWD/target/fetch
# shellcheck source=tests/bare/qemu.sh
. tests/bare/qemu.sh
work=$(mktemp -d)
programs=$CARGO_TARGET_DIR/release
sim=
trap '[ -z "$sim" ] || kill "$sim" 2>/dev/null; rm -rf "$work"' EXIT

tests/fetch.sh qemu || exit 1
# fetch.sh has said why.
[ -x "$fetch/qemu/usr/bin/qemu-system-x86_64" ] || exit 0

# An ordinary target with a linker script: no library has to be built for it.
host=x86_64-unknown-linux-gnu
RUSTFLAGS="-C relocation-model=static -C no-redzone=yes" cargo build --locked --release --target $host \
    --manifest-path tests/bare/Cargo.toml -p bare-kernel || exit 1
cargo build --locked --release -p amdev-sim || exit 1
image=$CARGO_TARGET_DIR/$host/release/bare-kernel

# What lies beside the image: firmware and the kernel, in one archive.
files=$work/files
mkdir "$files"
cp tests/corpus/co/vecadd.gfx1100.v5.O2.co "$files/vecadd.co"
names=(psp_13_0_0_sos smu_13_0_0 sdma_6_0_0 gc_11_0_0_mec gc_11_0_0_imu gc_11_0_0_rlc)
origin=synthetic
for dir in "$fetch"/firmware/*/amdgpu; do
    [ -e "$dir/${names[0]}.bin" ] && origin=$dir
done
if [ "$origin" = synthetic ]; then
    cargo run --locked --release -q -p amdev-fw --example synthetic -- navi31 "$files" || exit 1
else
    for name in "${names[@]}"; do cp "$origin/$name.bin" "$files/"; done
fi
(cd "$files" && tar --format=ustar -cf "$work/files.tar" ./*.bin vecadd.co --transform 's,^\./,,')
echo "firmware: ${origin#"$PWD/"}"

passed=0 failed=0

# run NAME QEMU-ARGUMENTS...: a GPU, and a machine with it.
run() {
    local name=$1 log=$work/$1.log start=$SECONDS
    shift
    machine 60 navi31,map=on "$name" -device isa-debug-exit,iobase=0xf4,iosize=0x04 \
        -kernel "$image" -initrd "$work/files.tar" "$@"
    sed 's/^/    /' "$log" "$work/$name.sim"
    # A triple fault ends QEMU with 0: only the code and the line together tell that it went well.
    if [ $status -eq 33 ] && grep -qE '^[1-9][0-9]* passed, 0 failed' "$log" && grep -q "$expect" "$log" &&
        grep -q '"violations":\[\]' "$work/$name.sim"; then
        passed=$((passed + 1))
        echo "ok: $name, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "FAILED: $name: QEMU ended with $status"
    fi
}

export fetch
expect='placed by firmware' run seabios
expect='placed by this image' run qboot -bios "$fetch/qemu/usr/share/qemu/qboot.rom"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
