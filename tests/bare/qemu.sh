# Sourced: `qemu ARGUMENTS...` runs QEMU out of target/fetch with its own loader and libraries.
qemu() {
    local root=$fetch/qemu
    local lib=$root/usr/lib/x86_64-linux-gnu
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/qemu-system-x86_64" \
        -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
}
