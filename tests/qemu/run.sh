#!/usr/bin/env bash
# A Linux guest in QEMU drives simulated GPUs through its own VFIO and IOMMU, with the `amdev` that
# users run.
#
#   tests/qemu/run.sh
#
# The GPU is served by `amdev-sim serve` and attached by QEMU's vfio-user-pci: Navi31 behind Intel's
# IOMMU and with a second function, as cards have one for audio, Navi48 behind AMD's and alone on its
# bus, and a Navi31 that is reset with its bus. Firmware is AMD's where tests/fetch.sh has it, else
# synthetic. Programs are of the release profile, or of AMDEV_PROFILE. The last line is `N passed, M
# failed`; `skipped: why` where QEMU or the kernel cannot be had.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
fetch=$PWD/target/fetch
profile=${AMDEV_PROFILE:-release}
programs=$CARGO_TARGET_DIR/$profile
[ "$profile" = debug ] && profile=dev
# shellcheck source=tests/bare/qemu.sh
. tests/bare/qemu.sh
work=$(mktemp -d)
sim=
trap '[ -z "$sim" ] || kill "$sim" 2>/dev/null; rm -rf "$work"' EXIT

for what in qemu guest; do
    tests/fetch.sh $what || exit 1
done
# fetch.sh has said why.
[ -x "$fetch/qemu/usr/bin/qemu-system-x86_64" ] && [ -f "$fetch/guest/vmlinuz" ] || exit 0
busybox=$fetch/qemu/usr/bin/busybox

cargo build --locked --profile "$profile" -p amdev-linux -p amdev-sim || exit 1

# What all guests have: busybox, the modules, and amdev with the libraries it is linked to.
root=$work/root
mkdir -p "$root/bin" "$root/modules"
cp "$busybox" "$root/bin/"
cp tests/qemu/init "$root/init"
cp "$programs/amdev" "$root/bin/"
for module in irqbypass vfio vfio_iommu_type1 vfio-pci-core vfio-pci; do
    file=$(find "$fetch/guest/modules" -name "$module.ko.xz" | head -n 1)
    "$busybox" unxz -c "$file" >"$root/modules/$module.ko" || exit 1
done
for library in $(ldd "$programs/amdev" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
# Of tests/corpus/cases/vecadd.json, the first case's result.
echo e909e783e6cb4df8e3f6032ca4fe566bd05d963a20553d1bca3fdfa1863d367d >"$root/expected"

# Firmware of a GPU into a folder, as far as `amdev info` names it. Arguments: GPU, folder.
firmware() {
    local gpu=$1 to=$2 dir name names origin=
    names=$("$programs/amdev" --device "sim:$gpu" --json info | grep -o '[a-z0-9_]*\.bin' | sort -u) || return 1
    mkdir -p "$to"
    for dir in "$fetch"/firmware/*/amdgpu/; do
        origin=$dir
        for name in $names; do [ -e "$dir$name" ] || origin=; done
        [ -z "$origin" ] || break
    done
    if [ -z "$origin" ]; then
        echo "firmware: synthetic"
        cargo run --locked --profile "$profile" -q -p amdev-fw --example synthetic -- "$gpu" "$to"
        return
    fi
    echo "firmware: ${origin#"$PWD/"}"
    for name in $names; do cp "$origin$name" "$to/" || return 1; done
}

passed=0 failed=0

# guest NAME GPU CODE-OBJECT QEMU-ARGUMENTS...: a GPU, and a machine with it, whose name is for the guest.
guest() {
    local name=$1 gpu=$2 object=$3 files=$work/$1 log=$work/$1.log start=$SECONDS
    shift 3
    cp -r "$root" "$files"
    cp "tests/corpus/co/$object" "$files/kernel.co"
    firmware "${gpu%%,*}" "$files/firmware" || { failed=$((failed + 1)); return; }
    (cd "$files" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$work/$name.cpio"
    # no_timer_check avoids a panic of guests on loaded machines.
    machine 240 "$gpu" "$name" "$@" -kernel "$fetch/guest/vmlinuz" -initrd "$work/$name.cpio" \
        -append "console=ttyS0 panic=-1 quiet intel_iommu=on iommu=nopt no_timer_check amdev=$name"
    tr -d '\r' <"$log" | sed 's/^/    /'
    sed 's/^/    /' "$work/$name.sim"
    # QEMU ends with 0 also when the guest's kernel panics: its own account decides.
    if [ $status -eq 0 ] && tr -d '\r' <"$log" | grep -qE '^[1-9][0-9]* checks, 0 failures$' &&
        grep -q '"violations":\[\]' "$work/$name.sim"; then
        passed=$((passed + 1))
        echo "ok: $name, $((SECONDS - start)) s"
    else
        failed=$((failed + 1))
        echo "FAILED: $name: QEMU ended with $status"
    fi
}

export fetch
second=pci-testdev guest navi31 navi31 vecadd.gfx1100.v5.O2.co -device intel-iommu,caching-mode=on
guest navi48 navi48 vecadd.gfx1201.v5.O2.co -device amd-iommu,dma-remap=on
second=pci-testdev guest bus-reset navi31,state=amdgpu,fault=smu-dead vecadd.gfx1100.v5.O2.co \
    -device intel-iommu,caching-mode=on
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
