//! The corpus' cases as work for a session of the command line.

use amdev_cli::argspec::ArgSpec;
use amdev_cli::output::sha256;
use amdev_cli::session::{KernelArg, Session};
use serde_json::Value;

/// A case and an object that it runs on.
#[derive(Clone, Debug)]
pub struct Job {
    /// File below `corpus/co`.
    pub file: String,
    /// The case of the corpus.
    pub case: Value,
}

/// Every case with every object of `target` (`gfx1100`), variants of code object version,
/// optimisation and wave size included, by file name.
pub fn jobs(target: &str) -> Vec<Job> {
    let folder = crate::root().join("corpus");
    let mut files: Vec<String> = std::fs::read_dir(folder.join("co"))
        .expect("corpus/co")
        .map(|e| e.expect("entry").file_name().to_string_lossy().trim_end_matches(".gz").to_owned())
        .collect();
    files.sort();
    let mut out = Vec::new();
    for file in files {
        // OBJECT.TARGET[_FEATURES].vCOV.OPT.co
        let parts: Vec<&str> = file.split('.').collect();
        let [object, features, version, ..] = parts[..] else { panic!("name of {file}") };
        if features.split('_').next() != Some(target) {
            continue;
        }
        let version: u64 = version[1..].parse().unwrap_or_else(|e| panic!("version of {file}: {e}"));
        for case in cases(object) {
            let fits = case["code_object_version"].as_array().is_none_or(|l| l.contains(&version.into()));
            if fits {
                out.push(Job { file: file.clone(), case });
            }
        }
    }
    out
}

/// The cases of an object.
pub fn cases(object: &str) -> Vec<Value> {
    let bytes = crate::corpus(&format!("cases/{object}.json")).expect("case file");
    serde_json::from_slice::<Vec<Value>>(&bytes).expect("case file")
}

fn argument(arg: &Value) -> ArgSpec {
    let dtype = arg["dtype"].as_str().expect("dtype");
    let text = if arg["kind"] == "value" {
        format!("{dtype}={}", arg["value"])
    } else {
        let init = arg["init"].as_object().expect("init");
        let params: Vec<String> =
            init.iter().filter(|(k, _)| *k != "gen").map(|(k, v)| format!("{k}={v}")).collect();
        let generator = format!("{}({})", init["gen"].as_str().expect("gen"), params.join(","));
        format!("inout:{dtype}:{generator}:{}", arg["count"])
    };
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn three(list: &Value) -> [u32; 3] {
    [0, 1, 2].map(|i| list[i].as_u64().expect("three numbers") as u32)
}

/// Runs a case on a booted session and compares every buffer with its checksum.
pub fn run(session: &mut dyn Session, job: &Job) -> Result<(), String> {
    let name = format!("{} on {}", job.case["id"], job.file);
    run_named(session, job).map_err(|e| format!("{name}: {e:#}"))
}

fn run_named(session: &mut dyn Session, job: &Job) -> anyhow::Result<()> {
    let image = crate::corpus(&format!("co/{}", job.file))?;
    session.load(&image, job.case["kernel"].as_str())?;
    let (mut args, mut buffers) = (Vec::new(), Vec::new());
    for arg in job.case["args"].as_array().expect("args") {
        let spec = argument(arg);
        let bytes = spec.initial().map_err(anyhow::Error::msg)?;
        if matches!(spec, ArgSpec::Value { .. }) {
            args.push(KernelArg::Value(bytes));
            continue;
        }
        anyhow::ensure!(sha256(&bytes) == arg["init_sha256"], "{} starts wrong", arg["name"]);
        let buffer = session.alloc(bytes.len() as u64)?;
        session.upload(buffer, &bytes)?;
        args.push(KernelArg::Buffer(buffer));
        buffers.push((buffer, bytes.len(), arg));
    }
    session.run(three(&job.case["grid"]), three(&job.case["block"]), &args)?;
    for (buffer, len, arg) in buffers {
        let mut after = vec![0; len];
        session.download(buffer, &mut after)?;
        session.free(buffer)?;
        let (got, want) = (sha256(&after), &arg["expect"]["sha256"]);
        anyhow::ensure!(got == *want, "{} is {got}, not {want}", arg["name"]);
    }
    Ok(())
}
