//! Writes synthetic firmware files: for simulated GPUs where AMD's firmware is not at hand.
//!
//! ```text
//! cargo run -p amdev-fw --example synthetic -- navi31 DIR
//! ```

use amdev_fw::{Versions, synthetic};
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [gpu, dir] = args.as_slice() else { return Err("arguments: GPU DIR".into()) };
    let versions = Versions::by_name(gpu).ok_or("no GPU of this name; try navi31")?;
    for kind in versions.files() {
        let path = Path::new(dir).join(versions.file_name(kind).as_str());
        let bytes = synthetic::file(versions, kind).emit().map_err(|e| e.to_string())?;
        std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
