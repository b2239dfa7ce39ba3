#!/bin/sh
# Fetches what some tests use and the repository does not hold, into target/fetch.
#
#   tests/fetch.sh firmware   AMD's firmware, two Debian packages: target/fetch/firmware/VERSION/amdgpu
#   tests/fetch.sh rust-src   the standard library's source of rustc's version: target/fetch/rust-src/VERSION/library
#   tests/fetch.sh linux      the headers of Linux 6.12's amdgpu: target/fetch/linux
#   tests/fetch.sh rocblas    a very large code object, of Debian's librocblas0: target/fetch/rocblas
#   tests/fetch.sh qemu       QEMU with all its libraries, to be run where it lies: target/fetch/qemu
#   tests/fetch.sh guest      a Linux kernel and its modules for QEMU's guest: target/fetch/guest
#
# What is there already is not fetched again. Where something cannot be had, it says
# "skipped: why" and succeeds: the tests that want it then say that they were skipped.
set -eu
cd "$(dirname "$0")/.."
fetch=$PWD/target/fetch

skip() {
    echo "skipped: $*"
    exit 0
}

# apt with sources, lists and cache of its own: nothing of the system's is touched.
private_apt() {
    command=$1
    shift
    "$command" -q -q \
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o Debug::NoLocking=1 \
        -o APT::Sandbox::User="$(id -un)" -o APT::Get::List-Cleanup=0 -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Acquire::Retries=1 \
        "$@"
}

# Lists of these suites, from the mirror that the system's apt uses. Arguments: component, suites.
private_lists() {
    component=$1
    shift
    apt=$fetch/apt-$component
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    for tool in apt-get apt-cache dpkg-deb; do
        command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        grep -v security | head -n 1)
    [ -n "$mirror" ] || mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -v security | head -n 1)
    [ -n "$mirror" ] || skip "apt has no source of packages to derive a mirror from"
    for key in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp ''; do
        [ -z "$key" ] || [ ! -r "$key" ] || break
    done
    [ -n "$key" ] || skip "/usr/share/keyrings has no debian-archive-keyring"
    : >"$apt/sources.list"
    for suite in "$@"; do
        echo "deb [signed-by=$key] $mirror $suite $component" >>"$apt/sources.list"
    done
    # A suite that the mirror lacks is no reason to do without the others.
    timeout 300 "$PWD/tests/fetch.sh" apt-update "$apt" >"$apt/log" 2>&1 || true
}

# Downloads a package (NAME or NAME=VERSION) into an empty folder $work. Argument: package.
download() {
    rm -rf "$work"
    mkdir -p "$work"
    (cd "$work" && private_apt apt-get download "$1") >"$apt/log" 2>&1 ||
        skip "downloading $1 failed: $(tail -n 1 "$apt/log")"
}

# Fetches one version into a folder of its own. Arguments: version.
fetch_firmware() {
    [ ! -d "$fetch/firmware/$1/amdgpu" ] || return 0
    work=$fetch/firmware.part
    download "firmware-amd-graphics=$1"
    mkdir -p "$work/unpacked" "$fetch/firmware"
    dpkg-deb -x "$work"/firmware-amd-graphics_*.deb "$work/unpacked"
    found=$(find "$work/unpacked" -type d -path '*/firmware/amdgpu' | head -n 1)
    [ -n "$found" ] || skip "firmware-amd-graphics $1 has no folder amdgpu"
    mkdir -p "$work/done"
    mv "$found" "$work/done/amdgpu"
    mv "$work/done" "$fetch/firmware/$1"
    rm -rf "$work"
    echo "fetched: firmware-amd-graphics $1"
}

have() {
    for dir in "$fetch"/firmware/"$1"-*/amdgpu; do
        [ ! -d "$dir" ] || return 0
    done
    return 1
}

firmware() {
    # The packages with which the golden record was made; the record's checksums pin the contents.
    pinned='20250410 20260916'
    missing=
    for date in $pinned; do
        have "$date" || missing="$missing $date"
    done
    [ -n "$missing" ] || return 0
    # A version that has left the archive is looked for once a day, not at each run.
    stamp=$fetch/firmware/newest-taken
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$missing $(date +%F)" ]; then
        return 0
    fi
    private_lists non-free-firmware trixie trixie-backports bookworm-backports sid
    versions=$(private_apt apt-cache madison firmware-amd-graphics 2>/dev/null | cut -d '|' -f 2 | tr -d ' ' | sort -Vu)
    [ -n "$versions" ] || skip "no list of packages could be fetched: $(tail -n 1 "$apt/log")"
    gone=
    for date in $missing; do
        version=$(echo "$versions" | grep "^$date-" | head -n 1 || true)
        if [ -n "$version" ]; then
            fetch_firmware "$version"
        else
            gone="$gone $date"
        fi
    done
    if [ -n "$gone" ]; then
        newest=$(echo "$versions" | tail -n 1)
        echo "firmware-amd-graphics$gone is no longer in the archive: taking $newest, the newest"
        have "${newest%%-*}" || fetch_firmware "$newest"
        echo "$gone $(date +%F)" >"$stamp"
    fi
}

# The source of core, to build it for targets whose library is not installed. Debian packages it.
rust_src() {
    version=$(rustc -vV | sed -n 's/^release: //p')
    [ ! -d "$fetch/rust-src/$version/library" ] || return 0
    private_lists main trixie-backports sid
    package=$(private_apt apt-cache madison rust-src 2>/dev/null | cut -d '|' -f 2 | tr -d ' ' |
        grep "^$version[+-]" | head -n 1 || true)
    [ -n "$package" ] || skip "no matching rust-src: Debian has none of Rust $version"
    work=$fetch/rust-src.part
    download "rust-src=$package"
    mkdir -p "$work/$version" "$fetch/rust-src"
    dpkg-deb --fsys-tarfile "$work"/rust-src_*.deb |
        tar -x -C "$work/$version" --strip-components=4 "./usr/src/rustc-$version/library"
    mv "$work/$version" "$fetch/rust-src/$version"
    rm -rf "$work"
    echo "fetched: rust-src $package"
}

# Of the kernel's source, what the register tables are generated from.
linux() {
    [ ! -d "$fetch/linux/drivers" ] || return 0
    private_lists main trixie
    work=$fetch/linux.part
    download linux-source-6.12
    dpkg-deb --fsys-tarfile "$work"/linux-source-6.12_*.deb |
        tar -x -O ./usr/src/linux-source-6.12.tar.xz |
        tar -x -J -C "$work" --strip-components=1 linux-source-6.12/drivers/gpu/drm/amd
    rm "$work"/*.deb
    mv "$work" "$fetch/linux"
    echo "fetched: linux-source-6.12"
}

# A library of matrix kernels with a code object of 22 MB: the largest real one there is.
rocblas() {
    [ ! -e "$fetch/rocblas/Kernels.so-000-gfx1100.hsaco" ] || return 0
    private_lists main trixie
    work=$fetch/rocblas.part
    download librocblas0
    dpkg-deb --fsys-tarfile "$work"/librocblas0_*.deb |
        tar -x -C "$work" --transform 's,.*/,,' --wildcards '*/Kernels.so-000-gfx1100.hsaco' || true
    rm "$work"/*.deb
    [ -e "$work/Kernels.so-000-gfx1100.hsaco" ] || skip "librocblas0 has no Kernels.so-000-gfx1100.hsaco"
    mv "$work" "$fetch/rocblas"
    echo "fetched: librocblas0"
}

# QEMU of 10.1 or later (vfio-user-pci) and everything it needs, down to libc: its own loader runs it.
qemu() {
    [ ! -x "$fetch/qemu/usr/bin/qemu-system-x86_64" ] || return 0
    private_lists main trixie trixie-backports
    work=$fetch/qemu.part
    rm -rf "$work"
    mkdir -p "$work/root"
    : >"$work/status"
    # With an empty list of installed packages, all that QEMU depends on is fetched.
    private_apt apt-get -y --download-only --no-install-recommends -o Dir::State::status="$work/status" \
        -t trixie-backports install qemu-system-x86 busybox-static >"$apt/log" 2>&1 ||
        skip "downloading QEMU failed: $(tail -n 1 "$apt/log")"
    for package in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$work/root"
    done
    mv "$work/root" "$fetch/qemu"
    rm -rf "$work" "$apt"/cache/archives/*.deb
    echo "fetched: $(find "$fetch/qemu/usr/share/doc" -name 'qemu-system-x86' | head -n 1 | xargs -r basename)"
}

# The kernel for a guest: the full one, as the one for clouds knows no AMD IOMMU and no USB.
guest() {
    [ ! -f "$fetch/guest/vmlinuz" ] || return 0
    private_lists main trixie
    package=$(private_apt apt-cache search --names-only '^linux-image-6\.12\..*+deb13-amd64$' 2>/dev/null |
        cut -d ' ' -f 1 | sort -V | tail -n 1)
    [ -n "$package" ] || skip "the archive has no kernel 6.12 for a guest"
    work=$fetch/guest.part
    download "$package"
    mkdir -p "$work/root"
    dpkg-deb -x "$work"/linux-image-*.deb "$work/root"
    mkdir "$work/done"
    mv "$work"/root/boot/vmlinuz-* "$work/done/vmlinuz"
    # Of the modules those that some test may want.
    for dir in drivers/vfio drivers/iommu virt lib drivers/usb kernel; do
        from=$(find "$work"/root -type d -path "*/modules/*/kernel/$dir" | head -n 1)
        [ -z "$from" ] || { mkdir -p "$work/done/modules/$dir" && cp -r "$from/." "$work/done/modules/$dir/"; }
    done
    mv "$work/done" "$fetch/guest"
    rm -rf "$work"
    echo "fetched: $package"
}

case "${1:-}" in
firmware)
    firmware
    ;;
rust-src)
    rust_src
    ;;
linux)
    linux
    ;;
rocblas)
    rocblas
    ;;
qemu)
    qemu
    ;;
guest)
    guest
    ;;
apt-update)
    # For private_lists, which gives it a time limit.
    apt=$2
    private_apt apt-get update
    ;;
*)
    echo "usage: tests/fetch.sh firmware|rust-src|linux|rocblas|qemu|guest" >&2
    exit 2
    ;;
esac
