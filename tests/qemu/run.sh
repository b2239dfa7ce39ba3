#!/usr/bin/env bash
# A Linux guest in QEMU drives simulated GPUs through its own VFIO and IOMMU, with the `amdev` that
# users run.
#
#   tests/qemu/run.sh
#
# The GPU is served by `amdev-sim serve` and attached by QEMU's vfio-user-pci: Navi31 behind Intel's
# IOMMU and with a second function, as cards have one for audio, Navi48 behind AMD's and alone on its
# bus, and a Navi31 that is reset with its bus. Two more guests have a bridge with a Navi48 on a USB port,
# served by `amdev-sim usb` and plugged in by QEMU's usb-redir, with each of its firmwares: there
# `amdev-usb` drives it through the kernel's usbfs. Firmware is AMD's where tests/fetch.sh has it, else
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

cargo build --locked --profile "$profile" -p amdev-linux -p amdev-usb -p amdev-sim || exit 1

# What all guests have: busybox, the modules, and amdev with the libraries it is linked to.
root=$work/root
mkdir -p "$root/bin" "$root/modules"
cp "$busybox" "$root/bin/"
cp tests/qemu/checks "$root/checks"
cp "$programs/amdev" "$programs/amdev-usb" "$root/bin/"
for module in irqbypass vfio vfio_iommu_type1 vfio-pci-core vfio-pci \
    usb-common usbcore xhci-hcd xhci-pci; do
    file=$(find "$fetch/guest/modules" -name "$module.ko.xz" | head -n 1)
    "$busybox" unxz -c "$file" >"$root/modules/$module.ko" || exit 1
done
for library in $(ldd "$programs/amdev" "$programs/amdev-usb" | grep -o "/[^ ]*" | grep -v ":$" | sort -u); do
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

# files NAME GPU CODE-OBJECT INIT: what a guest has, as $work/NAME.cpio.
files() {
    local name=$1 gpu=$2 object=$3 files=$work/$1
    cp -r "$root" "$files"
    cp "tests/qemu/$4" "$files/init"
    cp "tests/corpus/co/$object" "$files/kernel.co"
    firmware "${gpu%%,*}" "$files/firmware" || return 1
    (cd "$files" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$work/$name.cpio"
}

# guest NAME GPU CODE-OBJECT QEMU-ARGUMENTS...: a GPU, and a machine with it, whose name is for the guest.
guest() {
    local name=$1 gpu=$2 start=$SECONDS
    files "$1" "$2" "$3" init || { failed=$((failed + 1)); return; }
    shift 3
    # no_timer_check avoids a panic of guests on loaded machines.
    machine 240 "$gpu" "$name" "$@" -kernel "$fetch/guest/vmlinuz" -initrd "$work/$name.cpio" \
        -append "console=ttyS0 panic=-1 quiet intel_iommu=on iommu=nopt no_timer_check amdev=$name"
    judge "$name" "$start"
}

# usb_guest NAME GPU CODE-OBJECT BRIDGE: a bridge with a GPU, and a machine that it is plugged into.
usb_guest() {
    local name=$1 gpu=$2 bridge=$4 socket=$work/$1.sock start=$SECONDS log=$work/$1.log
    files "$1" "$2" "$3" init-usb || { failed=$((failed + 1)); return; }
    "$programs/amdev-sim" usb --gpu "$gpu" --bridge "$bridge" --socket "$socket" >"$work/$name.sim" 2>&1 &
    sim=$!
    for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.05; done
    # Where the guest asks for it, the cable is pulled for two seconds.
    (
        until grep -q 'pull the cable' "$log" 2>/dev/null; do sleep 0.2; done
        kill -USR1 "$sim"
        sleep 2
        kill -USR1 "$sim"
    ) 2>/dev/null &
    local hand=$!
    QEMU_MODULE_DIR=$fetch/qemu/usr/lib/x86_64-linux-gnu/qemu timeout 240 bash -c '. tests/bare/qemu.sh; qemu "$@"' qemu \
        -nodefaults -no-user-config -display none -vga none -monitor none -serial stdio -no-reboot \
        -m 1024 -smp 1 -machine q35 -accel tcg -cpu max \
        -device qemu-xhci,id=xhci -chardev "socket,id=ur,path=$socket" -device usb-redir,chardev=ur,bus=xhci.0 \
        -kernel "$fetch/guest/vmlinuz" -initrd "$work/$name.cpio" \
        -append "console=ttyS0 panic=-1 quiet loglevel=2 no_timer_check amdev=$name bridge=$bridge" \
        </dev/null >"$log" 2>&1
    status=$?
    kill "$hand" "$sim" 2>/dev/null
    wait "$sim" 2>/dev/null
    sim=
    judge "$name" "$start"
}

# judge NAME START: what came of a guest.
judge() {
    local name=$1 start=$2 log=$work/$1.log
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
usb_guest usb-patched navi48 vecadd.gfx1201.v5.O2.co patched
usb_guest usb-custom navi48 vecadd.gfx1201.v5.O2.co custom
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
