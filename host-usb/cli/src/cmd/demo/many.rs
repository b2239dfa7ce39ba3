//! `demo` on several GPUs: booted at once on this thread, the work of one on each, and copies between
//! them.

use super::{Demo, compare, kernel_for, steps_json, work};
use crate::args::DemoArgs;
use crate::cmd::{report_json, violations};
use crate::dtype::DType;
use crate::generate::Generator;
use crate::group::{Group, GroupBoot, Shared};
use crate::output::{Outcome, bytes, micros, table};
use crate::session::Info;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Instant;

/// What is known of one of the GPUs in the end.
struct Member {
    name: String,
    info: Info,
    demo: Demo,
    bad_text: String,
    bad_json: Value,
    clean: bool,
}

pub(super) fn run(context: &mut crate::Context<'_>, args: &DemoArgs) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let device = context.global.device.to_string();
    let (members, boot) = context.with_group("demo", true, |group, progress| {
        let mut infos = Vec::new();
        for index in 0..group.count() {
            let session = group.member(index)?;
            let info = session.info()?;
            let image = kernel_for(session, &info)?;
            infos.push((session.device(), info, image));
        }
        let boot = group.boot(&Default::default(), progress)?;
        let mut members = Vec::new();
        for (index, (name, info, image)) in infos.into_iter().enumerate() {
            let mut demo = Demo { steps: Vec::new() };
            work(group.member(index)?, image, args.elements, &mut demo)?;
            let (bad_text, bad_json, clean) = (String::new(), Value::Null, true);
            members.push(Member { name, info, demo, bad_text, bad_json, clean });
        }
        between(group, args.elements, &mut members)?;
        for (index, member) in members.iter_mut().enumerate() {
            (member.bad_text, member.bad_json, member.clean) = violations(group.member(index)?);
        }
        Ok((members, boot))
    })?;

    let checked: u64 = members.iter().map(|m| m.demo.checked()).sum();
    let wrong: u64 = members.iter().map(|m| m.demo.wrong()).sum();
    let ok = wrong == 0 && members.iter().all(|m| m.clean);
    let mut text = summary(&device, &boot, &members);
    for member in &members {
        for line in member.bad_text.lines() {
            let _ = writeln!(text, "{}: {line}", member.name);
        }
    }
    let _ = writeln!(
        text,
        "{}: {checked} values checked, {wrong} wrong, in {}",
        if ok { "all right" } else { "FAILED" },
        micros(started.elapsed().as_micros() as u64)
    );
    Ok(Outcome::new(text, to_json(&device, &boot, &members, (checked, wrong))).with_ok(ok))
}

/// Each GPU writes into the memory of the next one and reads it back from there; the owner looks too.
fn between(group: &mut dyn Group, elements: u32, members: &mut [Member]) -> anyhow::Result<()> {
    let n = elements as usize;
    let len = 4 * n as u64;
    let count = group.count();
    let shared: Vec<Shared> =
        (0..count).map(|owner| group.alloc_shared(owner, len)).collect::<anyhow::Result<_>>()?;
    for (index, member) in members.iter_mut().enumerate() {
        let next = (index + 1) % count;
        let (Some(&own), Some(&peer)) = (shared.get(index), shared.get(next)) else { continue };
        let seed = 100 + index as u32;
        let data = Generator::LcgUnit { seed }.bytes(DType::F32, n).map_err(anyhow::Error::msg)?;
        let mut back = vec![0; data.len()];

        group.member(index)?.upload(own.buffer, &data)?;
        let ns = group.peer_copy(index, peer, own, len)?;
        group.member(next)?.download(peer.buffer, &mut back)?;
        member.demo.step("to the next", ns, format!("{} by SDMA", bytes(len)), Some(compare(&data, &back)));

        // What was there before must not pass for what is read.
        let zeros = vec![0; data.len()];
        group.member(index)?.upload(own.buffer, &zeros)?;
        let ns = group.peer_copy(index, own, peer, len)?;
        group.member(index)?.download(own.buffer, &mut back)?;
        let result = Some(compare(&data, &back));
        member.demo.step("from the next", ns, format!("{} by SDMA", bytes(len)), result);
    }
    for s in shared {
        group.member(s.owner)?.free(s.buffer)?;
    }
    Ok(())
}

fn summary(device: &str, boot: &GroupBoot, members: &[Member]) -> String {
    let mut text = device.to_owned();
    if let Some(Member { info, .. }) = members.first() {
        let _ = write!(text, ": {} x {} ({})", members.len(), info.name, info.target);
    }
    text.push('\n');
    if let Some(firmware) = boot.reports.first().and_then(|r| r.firmware.as_ref()) {
        let _ = writeln!(text, "firmware: {firmware}");
    }
    let _ = writeln!(text, "booted at once in {}", micros(boot.us));
    let mut header = vec!["GPU>", "boot", "time>"];
    // All have the same steps.
    let steps = members.first().map_or(&[][..], |m| &m.demo.steps);
    let names: Vec<String> = steps.iter().map(|s| format!("{}>", s.name)).collect();
    header.extend(names.iter().map(String::as_str));
    header.extend(["right>", "wrong>"]);
    let row = |(index, member): (usize, &Member)| {
        let boot = boot.reports.get(index);
        let took = boot.map_or(0, |r| r.stages.iter().map(|s| s.us).sum());
        let mut row = vec![index.to_string(), boot.map_or(String::new(), |r| r.path.clone()), micros(took)];
        row.extend(member.demo.steps.iter().map(|s| micros(s.us)));
        let (checked, wrong) = (member.demo.checked(), member.demo.wrong());
        row.extend([(checked - wrong).to_string(), wrong.to_string()]);
        row
    };
    let rows: Vec<Vec<String>> = members.iter().enumerate().map(row).collect();
    text + &table(&header, &rows)
}

fn to_json(device: &str, boot: &GroupBoot, members: &[Member], (checked, wrong): (u64, u64)) -> Value {
    let gpu = |(index, m): (usize, &Member)| {
        json!({
            "device": m.name, "name": m.info.name, "target": m.info.target,
            "boot": boot.reports.get(index).map(report_json),
            "steps": steps_json(&m.demo), "checked": m.demo.checked(), "wrong": m.demo.wrong(),
            "violations": m.bad_json,
        })
    };
    let gpus: Vec<Value> = members.iter().enumerate().map(gpu).collect();
    json!({
        "device": device, "count": members.len(), "boot_us": boot.us, "gpus": gpus,
        "checked": checked, "wrong": wrong,
    })
}
