//! The commands.

use std::path::{Path, PathBuf};

use amdev_tests::golden_cases::Devices;
use amdev_tests::golden_messages::{self, folder};
use amdev_tests::replay::{Deviations, Place, base_flow, replay_at};
use amdev_tests::verdict::Verdict;
use amdev_tests::{
    golden_cases, golden_device, golden_facts, golden_fw, golden_program, golden_pt, golden_queues,
    golden_regs, golden_sim, golden_tlsf, golden_usb,
};
use anyhow::{Result, anyhow};

use crate::files::{expand, stem};
use crate::line::{Line, Printer};

/// Expands paths and judges each file.
fn each(
    out: &mut Printer,
    command: &str,
    (ext, fits): (&str, &dyn Fn(&str) -> bool),
    paths: &[PathBuf],
    judge: &mut dyn FnMut(&Path) -> Result<Line>,
) {
    let (files, errors) = expand(paths, ext, fits);
    for e in errors {
        out.unreadable(&e);
    }
    for file in files {
        match judge(&file) {
            Ok(line) => out.line(command, &file, &line),
            Err(e) if is_unreadable(&e) => out.unreadable(&format!("{}: {e:#}", file.display())),
            Err(e) => out.line(command, &file, &Line::failed(format!("{e:#}"))),
        }
    }
}

/// Whether an error is of reading, not of what was read.
fn is_unreadable(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some()
            || c.downcast_ref::<serde_json::Error>().is_some_and(|e| e.is_syntax() || e.is_eof())
    })
}

/// Reads a file that must be JSON.
fn read_json(path: &Path) -> Result<Vec<u8>> {
    let bytes = amdev_tests::read(path)?;
    serde_json::from_slice::<serde::de::IgnoredAny>(&bytes)?;
    Ok(bytes)
}

/// Files that need nothing but themselves.
pub(crate) fn plain(out: &mut Printer, command: &str, paths: &[PathBuf], objects: &[PathBuf]) {
    let fits = |stem: &str| command == "facts" || stem == command;
    each(out, command, ("json", &fits), paths, &mut |file| {
        let bytes = read_json(file)?;
        let text = |e: String| anyhow!("{e}");
        let verdict = match command {
            "scratch" => golden_program::judge_scratch(&bytes).map_err(text)?,
            "pt" => golden_pt::judge(&bytes)?,
            "tlsf" => golden_tlsf::judge(&bytes)?,
            "queues" => golden_queues::judge(&bytes).map_err(text)?,
            "program" => golden_program::judge(&bytes).map_err(text)?,
            _ => {
                let (verdict, missing) = golden_facts::judge(&bytes, objects).map_err(text)?;
                let mut line = Line::from(verdict);
                line.notes.extend(missing.iter().map(|file| format!("{file} is in none of the folders")));
                return Ok(line);
            }
        };
        Ok(verdict.into())
    });
}

/// Files that are read with the device's description beside them.
pub(crate) fn device_file(out: &mut Printer, command: &str, paths: &[PathBuf]) {
    let fits = |stem: &str| match command {
        "psp" => matches!(stem, "psp" | "psp_fw2025" | "reset_psp"),
        other => stem == other,
    };
    let shown = if command == "regs_used" { "regs" } else { command };
    each(out, shown, ("json", &fits), paths, &mut |file| {
        let bytes = read_json(file)?;
        let place = Place::new(folder(file));
        Ok(match command {
            "psp" => golden_messages::psp(&stem(file), &bytes, &place)?.into(),
            "smu" => golden_messages::smu(&bytes, &place)?.into(),
            "mqd" => golden_device::mqd(&bytes, &place)?.into(),
            "faults" => golden_device::faults(&bytes, &place)?.into(),
            _ => registers(&bytes, &amdev_tests::read(folder(file).join("device.json"))?)?,
        })
    });
}

fn registers(used: &[u8], device: &[u8]) -> Result<Line> {
    let report = golden_regs::compare(used, device)?;
    let count = |t: golden_regs::Tally| t.registers + t.fields;
    Ok(Line {
        // Core's tables and the complete ones are both compared.
        matched: count(report.core) + count(report.database),
        total: 2 * count(report.total),
        deviations: vec![],
        differences: report.differences,
        notes: vec![],
    })
}

/// Folders with firmware: as given, or those known to the tests.
fn firmware_dirs(given: &[PathBuf]) -> Vec<PathBuf> {
    if given.is_empty() {
        return golden_fw::firmware_dirs();
    }
    let inner = |d: &PathBuf| if d.join("amdgpu").is_dir() { d.join("amdgpu") } else { d.clone() };
    given.iter().map(inner).collect()
}

/// Traces, made by this driver again.
pub(crate) fn replay(out: &mut Printer, paths: &[PathBuf], firmware: &[PathBuf]) {
    let deviations = match Deviations::load() {
        Ok(d) => d,
        Err(e) => return out.unreadable(&format!("{e:#}")),
    };
    let dirs = firmware_dirs(firmware);
    let fits = |stem: &str| base_flow(stem).is_some();
    each(out, "replay", ("jsonl", &fits), paths, &mut |file| {
        let report = replay_at(&Place::new(folder(file)), &stem(file), &dirs, &deviations)?;
        let mut notes = vec![format!(
            "{} reads ({} recorded), {} PSP commands, {} images{}, {} MQDs",
            report.reads,
            report.recorded_reads,
            report.psp_commands,
            report.images,
            if report.real_firmware { " of the real firmware" } else { "" },
            report.mqds
        )];
        if !firmware.is_empty() && !report.real_firmware && report.images > 0 {
            notes.push("the firmware in the given folder is not the pinned package: lengths only".into());
        }
        Ok(Line {
            matched: report.matched,
            total: report.total,
            deviations: report.used.into_iter().collect(),
            differences: report.differences,
            notes,
        })
    });
}

/// Firmware slices.
pub(crate) fn firmware(out: &mut Printer, paths: &[PathBuf], dirs: &[PathBuf]) {
    let dirs = firmware_dirs(dirs);
    if dirs.is_empty() {
        return out.unreadable("no folder with firmware: name one with --firmware");
    }
    each(out, "fw", ("json", &|stem| stem == "fw"), paths, &mut |file| {
        let bytes = read_json(file)?;
        let mut line = Line::from(Verdict { total: 1, matched: 1, ..Verdict::default() });
        (line.matched, line.total) = (0, 0);
        for dir in &dirs {
            for found in golden_fw::judge_with(&bytes, dir)? {
                line.total += found.compared;
                line.matched += found.compared.saturating_sub(found.differences.len());
                line.notes.push(format!("{}: {found}", dir.display()));
                line.differences.extend(found.differences.iter().map(|d| format!("{}: {d}", found.gpu)));
            }
        }
        Ok(line)
    });
}

/// Traces, driven into the simulator.
pub(crate) fn sim(out: &mut Printer, paths: &[PathBuf], firmware: &[PathBuf]) {
    let dirs = firmware_dirs(firmware);
    let fits = |stem: &str| golden_sim::sim_flow(stem).is_some();
    each(out, "sim", ("jsonl", &fits), paths, &mut |file| {
        let report = golden_sim::judge(&folder(file), &stem(file), &dirs)?;
        let faults: Vec<String> = report.faults.keys().map(u32::to_string).collect();
        let images = report.real_images;
        let mut notes = vec![format!(
            "known faults that show: {}; {} polled reads repeated, {images} images of the real firmware",
            if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
            report.repeated
        )];
        notes.extend(report.explained.iter().map(|d| format!("explained: {d}")));
        let unexplained = report.differing - report.explained.len();
        let named = report.faults.iter().map(|(n, places)| (format!("fault {n}"), places.len()));
        Ok(Line {
            matched: report.rows.saturating_sub(unexplained),
            total: report.rows,
            deviations: named.collect(),
            differences: report.differences,
            notes,
        })
    });
}

/// The USB bridge.
pub(crate) fn usb(out: &mut Printer, paths: &[PathBuf]) {
    each(out, "usb", ("json", &|stem| stem == "usb"), paths, &mut |file| {
        read_json(file)?;
        let (verdict, notes) = golden_usb::judge(file)?;
        Ok(Line { notes, ..Line::from(verdict) })
    });
}

/// Runs of kernels.
pub(crate) fn cases(out: &mut Printer, paths: &[PathBuf], objects: &[PathBuf], device: Option<&str>) {
    let mut devices = match device.map(Devices::only).transpose() {
        Ok(devices) => devices.unwrap_or_default(),
        Err(e) => return out.unreadable(&format!("{e:#}")),
    };
    each(out, "cases", ("json", &|_| true), paths, &mut |file| {
        let (verdict, left) = golden_cases::judge(&read_json(file)?, objects, &mut devices)?;
        let mut line = Line::from(verdict);
        line.notes = left;
        Ok(line)
    });
    let misuse = devices.finish();
    if !misuse.is_empty() {
        let line = Line { matched: 0, total: 1, deviations: vec![], differences: misuse, notes: vec![] };
        out.line("cases", Path::new("devices"), &line);
    }
}

/// Broken code objects.
pub(crate) fn reject(out: &mut Printer, paths: &[PathBuf]) {
    // What broken objects were made from, where a file may be equal to it.
    let corpus = [amdev_tests::root().join("corpus/co")];
    for path in paths {
        let packed = PathBuf::from(format!("{}.gz", path.display()));
        let path = if !path.exists() && packed.exists() { &packed } else { path };
        let mut objects = vec![folder(path).join("co"), folder(path).join("../co"), path.join("../co")];
        objects.extend(corpus.iter().cloned());
        match golden_facts::judge_reject_path(path, &objects) {
            Ok(verdict) => out.line("reject", path, &verdict.into()),
            Err(e) => out.unreadable(&format!("{}: {e}", path.display())),
        }
    }
}
