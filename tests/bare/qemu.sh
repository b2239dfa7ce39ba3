# Sourced; `fetch`, `work` and `programs` are set.
# `qemu ARGUMENTS...` runs QEMU out of target/fetch with its own loader and libraries.
qemu() {
    local root=$fetch/qemu
    local lib=$root/usr/lib/x86_64-linux-gnu
    "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/qemu-system-x86_64" \
        -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
}

# machine SECONDS GPU NAME QEMU-ARGUMENTS...: serves a GPU, and runs a machine with it. What the two
# print goes to $work/NAME.log and $work/NAME.sim; sets `status` to what QEMU ended with. With `second`
# that device of QEMU's is another function of the GPU's slot.
machine() {
    local seconds=$1 gpu=$2 name=$3 socket=$work/$3.sock
    shift 3
    "$programs/amdev-sim" serve --gpu "$gpu" --socket "$socket" >"$work/$name.sim" 2>&1 &
    sim=$!
    for _ in $(seq 100); do [ -S "$socket" ] && break; sleep 0.05; done
    # A root port, so that the GPU has PCIe's whole configuration space, and its resets: at this speed
    # Linux does not ask the link after a reset, which QEMU does not tell of. Memory that the server can map.
    timeout "$seconds" bash -c '. tests/bare/qemu.sh; qemu "$@"' qemu \
        -nodefaults -no-user-config -display none -vga none -monitor none -serial stdio -no-reboot \
        -m 1024 -smp 1 -object memory-backend-memfd,id=ram,size=1024M,share=on \
        -machine q35,memory-backend=ram -accel tcg -cpu max \
        "$@" -device pcie-root-port,id=rp1,bus=pcie.0,chassis=1,x-speed=5 \
        -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"'"$socket"'"},"bus":"rp1"'"${second:+,\"multifunction\":true}"'}' \
        ${second:+-device "$second,bus=rp1,addr=0.1"} \
        </dev/null >"$work/$name.log" 2>&1
    status=$?
    kill "$sim" 2>/dev/null
    wait "$sim" 2>/dev/null
    sim=
}
