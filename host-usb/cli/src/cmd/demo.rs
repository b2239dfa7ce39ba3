//! `demo`: the main job, from nothing to a verified result.

use super::violations;
use crate::args::DemoArgs;
use crate::dtype::DType;
use crate::error::CliError;
use crate::generate::Generator;
use crate::kernels::{VECADD_BLOCK, vecadd};
use crate::output::{Outcome, bytes, micros, sha256, table};
use crate::session::{BootOptions, BootReport, DeviceBuffer, Info, KernelArg, Session};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Instant;

mod many;

/// One line of the summary.
struct Step {
    name: &'static str,
    us: u64,
    what: String,
    /// Values checked and wrong ones; `None` where there is nothing to check.
    checked: Option<(u64, u64)>,
}

struct Demo {
    steps: Vec<Step>,
}

impl Demo {
    fn step(&mut self, name: &'static str, ns: u64, what: String, checked: Option<(u64, u64)>) {
        self.steps.push(Step { name, us: ns / 1000, what, checked });
    }

    fn checked(&self) -> u64 {
        self.steps.iter().filter_map(|s| s.checked).map(|(n, _)| n).sum()
    }

    fn wrong(&self) -> u64 {
        self.steps.iter().filter_map(|s| s.checked).map(|(_, wrong)| wrong).sum()
    }
}

pub(crate) fn run(context: &mut crate::Context<'_>, args: &DemoArgs) -> anyhow::Result<Outcome> {
    if context.device_count()? > 1 {
        return many::run(context, args);
    }
    let started = Instant::now();
    let mut demo = Demo { steps: Vec::new() };
    let (device, info, boot, (bad_text, bad_json, clean)) =
        context.with_session("demo", true, |session, progress| {
            let info = session.info()?;
            let image = kernel_for(session, &info)?;
            let boot = session.boot(&BootOptions::default(), progress)?;
            work(session, image, args.elements, &mut demo)?;
            Ok((session.device(), info, boot, violations(session)))
        })?;

    let ok = demo.wrong() == 0 && clean;
    let mut text = summary(&device, &info, &boot, &demo);
    text += &bad_text;
    // Two clocks: a simulated device has its own.
    let whose =
        if bad_json.is_null() { "" } else { " by this machine's clock; the steps' times are by the GPU's" };
    let _ = writeln!(
        text,
        "{}: {} values checked, {} wrong, in {}{whose}",
        if ok { "all right" } else { "FAILED" },
        demo.checked(),
        demo.wrong(),
        micros(started.elapsed().as_micros() as u64)
    );
    Ok(Outcome::new(text, to_json(&device, &info, &boot, &demo, bad_json)).with_ok(ok))
}

/// The demo's kernel for a device.
fn kernel_for(session: &dyn Session, info: &Info) -> anyhow::Result<&'static [u8]> {
    let missing = || CliError::Unsupported {
        device: session.device(),
        command: "demo",
        why: format!("there is no demo kernel for {}", info.target),
    };
    Ok(vecadd(&info.target).ok_or_else(missing)?)
}

/// Everything after the boot.
fn work(session: &mut dyn Session, image: &[u8], elements: u32, demo: &mut Demo) -> anyhow::Result<()> {
    let groups = elements.div_ceil(VECADD_BLOCK);
    let n = groups as usize * VECADD_BLOCK as usize;
    let len = 4 * n as u64;
    let floats = |seed| Generator::LcgUnit { seed }.bytes(DType::F32, n).map_err(anyhow::Error::msg);
    let (a, b) = (floats(1)?, floats(2)?);
    let expected: Vec<u8> = a
        .chunks_exact(4)
        .zip(b.chunks_exact(4))
        .flat_map(|(x, y)| (float(x) + float(y)).to_le_bytes())
        .collect();

    let started = Instant::now();
    let buffers: Vec<DeviceBuffer> = (0..4).map(|_| session.alloc(len)).collect::<anyhow::Result<_>>()?;
    let &[da, db, dc, dout] = buffers.as_slice() else { anyhow::bail!("allocation lost a buffer") };
    let ns = started.elapsed().as_nanos() as u64;
    demo.step("allocate", ns, format!("4 x {} VRAM", bytes(len)), None);

    let ns = session.upload(da, &a)? + session.upload(db, &b)?;
    demo.step("copy in", ns, format!("2 x {} by SDMA", bytes(len)), None);

    // The kernel reads the copy, so that a copy that never happened shows in its result too.
    let ns = session.copy(dc, da, len)?;
    let mut back = vec![0; a.len()];
    session.download(dc, &mut back)?;
    demo.step("SDMA copy", ns, format!("{} in VRAM", bytes(len)), Some(compare(&a, &back)));

    let kernel = session.load(image, None)?;
    let kernel_args = [dout, dc, db].map(KernelArg::Buffer);
    let ns = session.run([groups, 1, 1], [VECADD_BLOCK, 1, 1], &kernel_args)?;
    demo.step("run kernel", ns, format!("{}, {groups} x {VECADD_BLOCK} work-items", kernel.name), None);

    let mut out = vec![0; expected.len()];
    let ns = session.download(dout, &mut out)?;
    let what = format!("{}, sha256 {}...", bytes(len), &sha256(&out)[..16]);
    demo.step("copy out", ns, what, Some(compare(&expected, &out)));
    for buffer in buffers.into_iter().rev() {
        session.free(buffer)?;
    }
    Ok(())
}

fn float(bytes: &[u8]) -> f32 {
    bytes.try_into().map_or(f32::NAN, f32::from_le_bytes)
}

/// Elements compared and how many of them differ.
fn compare(expected: &[u8], got: &[u8]) -> (u64, u64) {
    let pairs = expected.chunks_exact(4).zip(got.chunks_exact(4));
    let (n, wrong) = pairs.fold((0, 0), |(n, w), (a, b)| (n + 1, w + u64::from(a != b)));
    let missing = (expected.len() / 4) as u64 - n;
    (n + missing, wrong + missing)
}

fn summary(device: &str, info: &Info, boot: &BootReport, demo: &Demo) -> String {
    let mut text = format!("{device}: {} ({})", info.name, info.target);
    if info.vram_bytes > 0 {
        let _ = write!(text, ", {} VRAM, {} compute units", bytes(info.vram_bytes), info.compute_units);
    }
    text.push('\n');
    if let Some(firmware) = &boot.firmware {
        let _ = writeln!(text, "firmware: {firmware}");
    }
    let mut rows: Vec<Vec<String>> = boot
        .stages
        .iter()
        .map(|s| vec![format!("boot: {}", s.name), micros(s.us), String::new(), "done".into()])
        .collect();
    rows.extend(demo.steps.iter().map(|s| {
        let result = match s.checked {
            None => "done".to_owned(),
            Some((n, 0)) => format!("{n} right"),
            Some((n, wrong)) => format!("{wrong} of {n} WRONG"),
        };
        vec![s.name.to_owned(), micros(s.us), s.what.clone(), result]
    }));
    text + &table(&["step", "time>", "what", "result"], &rows)
}

fn to_json(device: &str, info: &Info, boot: &BootReport, demo: &Demo, violations: Value) -> Value {
    let steps = steps_json(demo);
    json!({
        "device": device, "name": info.name, "target": info.target, "boot": super::report_json(boot),
        "steps": steps, "checked": demo.checked(), "wrong": demo.wrong(), "violations": violations,
    })
}

fn steps_json(demo: &Demo) -> Vec<Value> {
    let step = |s: &Step| {
        json!({
            "name": s.name, "us": s.us, "what": s.what,
            "checked": s.checked.map(|(n, _)| n), "wrong": s.checked.map(|(_, w)| w),
        })
    };
    demo.steps.iter().map(step).collect()
}
