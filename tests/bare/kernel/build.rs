//! How the image is linked: at 1 MiB, without the C runtime.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.ld");
    for arg in ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none"] {
        println!("cargo::rustc-link-arg-bins={arg}");
    }
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{script},--gc-sections,-z,max-page-size=4096");
    println!("cargo::rerun-if-changed=link.ld");
}
