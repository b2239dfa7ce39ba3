//! Message numbers, clock and table ids and the metrics layout of the system management unit, from
//! the firmware interface headers (`pm/swsmu/inc/pmfw_if`).

use std::collections::HashMap;
use std::fmt::Write;

/// What a driver sends: name after `PPSMC_MSG_` and what it does.
const MESSAGES: &[(&str, &str)] = &[
    ("TestMessage", "answers with the argument plus one"),
    ("GetSmuVersion", "reads the firmware's version"),
    ("GetDriverIfVersion", "reads the version of the interface between driver and firmware"),
    ("SetAllowedFeaturesMaskLow", "sets features 0 to 31 that may be enabled"),
    ("SetAllowedFeaturesMaskHigh", "sets features 32 to 63 that may be enabled"),
    ("EnableAllSmuFeatures", "enables all allowed features"),
    ("DisableAllSmuFeatures", "disables all features"),
    ("GetRunningSmuFeaturesLow", "reads features 0 to 31 that are enabled"),
    ("GetRunningSmuFeaturesHigh", "reads features 32 to 63 that are enabled"),
    ("SetDriverDramAddrHigh", "sets the upper half of the address that tables are exchanged at"),
    ("SetDriverDramAddrLow", "sets the lower half of that address"),
    ("SetToolsDramAddrHigh", "sets the upper half of the address of the tools' table"),
    ("SetToolsDramAddrLow", "sets the lower half of that address"),
    ("TransferTableSmu2Dram", "writes a table to memory"),
    ("TransferTableDram2Smu", "reads a table from memory"),
    ("UseDefaultPPTable", "uses the power play table of the firmware"),
    ("ArmD3", "prepares for D3"),
    ("SetSoftMinByFreq", "sets a clock's lower limit: clock id << 16 | MHz"),
    ("SetSoftMaxByFreq", "sets a clock's upper limit: clock id << 16 | MHz"),
    ("SetHardMinByFreq", "sets a clock's hard lower limit: clock id << 16 | MHz"),
    ("SetHardMaxByFreq", "sets a clock's hard upper limit: clock id << 16 | MHz"),
    ("GetMinDpmFreq", "reads a clock's lowest frequency in MHz: clock id << 16"),
    ("GetMaxDpmFreq", "reads a clock's highest frequency in MHz: clock id << 16"),
    (
        "GetDpmFreqByIndex",
        "reads a level in MHz: clock id << 16 | level, or the number of levels: level 0xff",
    ),
    ("OverridePcieParameters", "limits PCIe generation and lanes"),
    ("SetWorkloadMask", "chooses power profiles"),
    ("AllowGfxOff", "lets the graphics block be powered off when idle"),
    ("DisallowGfxOff", "keeps the graphics block powered"),
    ("AllowGfxDcs", "lets duty cycling of the graphics block happen"),
    ("DisallowGfxDcs", "forbids duty cycling of the graphics block"),
    ("PrepareMp1ForUnload", "ends everything that uses driver memory, before the driver goes"),
    ("Mode1Reset", "resets the whole device; see `Messages::mode1_reset`"),
    ("Mode2Reset", "resets the graphics block"),
    ("SetPptLimit", "sets the power limit in W"),
    ("GetPptLimit", "reads the power limit in W: source << 16"),
    ("RunDcBtc", "runs boot time calibration"),
    ("NotifyPowerSource", "tells AC (0) or DC (1)"),
    ("DALNotPresent", "tells that there is no display driver"),
    ("EnableUCLKShadow", "prepares memory clock switching"),
    ("GetAllRunningSmuFeatures", "reads the enabled features"),
    ("SetDriverDramAddr", "sets the address that tables are exchanged at in one message"),
];

/// Clocks: name in core, names after `PPCLK_`, description.
const CLOCKS: &[(&str, &[&str], &str)] = &[
    ("Gfx", &["GFXCLK"], "graphics and compute"),
    ("Soc", &["SOCCLK"], "system"),
    ("Memory", &["UCLK"], "memory (UCLK)"),
    ("Fabric", &["FCLK"], "data fabric (FCLK)"),
    ("Video0", &["VCLK_0"], "video, first engine"),
    ("Decode0", &["DCLK_0"], "decoder, first engine"),
    ("Video1", &["VCLK_1"], "video, second engine"),
    ("Decode1", &["DCLK_1"], "decoder, second engine"),
    ("DisplayFabric", &["DCFCLK"], "display controller to fabric"),
];

/// Tables: name in core, name after `TABLE_`, description.
const TABLES: &[(&str, &str, &str)] = &[
    ("PowerPlay", "PPTABLE", "power play table"),
    ("ComboPowerPlay", "COMBO_PPTABLE", "power play table with board data"),
    ("StatusLog", "PMSTATUSLOG", "status log for tools"),
    ("SmuMetrics", "SMU_METRICS", "clocks, power, temperatures, activity: `SmuMetricsExternal_t`"),
    ("ActivityMonitor", "ACTIVITY_MONITOR_COEFF", "coefficients of the power profiles"),
    ("Overdrive", "OVERDRIVE", "overdrive settings"),
    ("EccInfo", "ECCINFO", "memory errors"),
];

/// Members of `SmuMetrics_t`: name in core, names in the headers, unit and meaning.
const METRICS: &[(&str, &[&str], &str)] = &[
    ("CurrClock", &["CurrClock"], "current clocks in MHz, by clock id"),
    (
        "AverageGfxclkFrequencyTarget",
        &["AverageGfxclkFrequencyTarget"],
        "average target of the graphics clock in MHz",
    ),
    (
        "AverageGfxclkFrequencyPreDs",
        &["AverageGfxclkFrequencyPreDs"],
        "average graphics clock in MHz before deep sleep is counted",
    ),
    (
        "AverageGfxclkFrequencyPostDs",
        &["AverageGfxclkFrequencyPostDs"],
        "average graphics clock in MHz, deep sleep counted",
    ),
    (
        "AverageFclkFrequencyPreDs",
        &["AverageFclkFrequencyPreDs"],
        "average fabric clock in MHz before deep sleep is counted",
    ),
    (
        "AverageFclkFrequencyPostDs",
        &["AverageFclkFrequencyPostDs"],
        "average fabric clock in MHz, deep sleep counted",
    ),
    (
        "AverageMemclkFrequencyPreDs",
        &["AverageMemclkFrequencyPreDs"],
        "average memory clock in MHz before deep sleep is counted",
    ),
    (
        "AverageMemclkFrequencyPostDs",
        &["AverageMemclkFrequencyPostDs"],
        "average memory clock in MHz, deep sleep counted",
    ),
    ("PcieBusy", &["PCIeBusy", "AveragePCIeBusy"], "PCIe activity in %"),
    ("MetricsCounter", &["MetricsCounter"], "counts updates of the table"),
    ("AvgVoltage", &["AvgVoltage"], "average voltages in mV, by plane"),
    ("AvgCurrent", &["AvgCurrent"], "average currents in A, by plane"),
    ("AverageGfxActivity", &["AverageGfxActivity"], "graphics activity in %"),
    ("AverageUclkActivity", &["AverageUclkActivity"], "memory activity in %"),
    (
        "Vcn0Activity",
        &["Vcn0ActivityPercentage", "AverageVcn0ActivityPercentage"],
        "activity of the first video engine in %",
    ),
    ("Vcn1Activity", &["Vcn1ActivityPercentage"], "activity of the second video engine in %"),
    ("EnergyAccumulator", &["EnergyAccumulator"], "energy since start, in units of the firmware"),
    ("AverageSocketPower", &["AverageSocketPower"], "average power of the GPU in W"),
    ("AverageTotalBoardPower", &["AverageTotalBoardPower"], "average power of the board in W"),
    ("AvgTemperature", &["AvgTemperature"], "temperatures in degrees Celsius, by sensor"),
    (
        "AvgTemperatureFanIntake",
        &["AvgTemperatureFanIntake"],
        "temperature of the air taken in, degrees Celsius",
    ),
    ("PcieRate", &["PcieRate"], "PCIe generation"),
    ("PcieWidth", &["PcieWidth"], "PCIe lanes"),
    ("AvgFanPwm", &["AvgFanPwm"], "fan duty in %"),
    ("AvgFanRpm", &["AvgFanRpm"], "fan speed in revolutions per minute"),
    ("ThrottlingPercentage", &["ThrottlingPercentage"], "throttling in %, by cause"),
    ("PublicSerialNumberLower", &["PublicSerialNumberLower"], "lower half of the serial number"),
    ("PublicSerialNumberUpper", &["PublicSerialNumberUpper"], "upper half of the serial number"),
];

/// Temperature sensors: name in core, names after `TEMP_`, description.
const SENSORS: &[(&str, &[&str], &str)] = &[
    ("Edge", &["EDGE"], "edge of the die"),
    ("Hotspot", &["HOTSPOT"], "hottest point"),
    ("Memory", &["MEM"], "memory"),
    ("VrGfx", &["VR_GFX"], "voltage regulator of graphics"),
    ("VrSoc", &["VR_SOC"], "voltage regulator of the system part"),
];

/// Voltage planes: name in core, names after `SVI_PLANE_`, description.
const PLANES: &[(&str, &[&str], &str)] = &[
    ("Gfx", &["GFX", "VDD_GFX"], "graphics"),
    ("Soc", &["SOC", "VDD_SOC"], "system part"),
    ("Memory", &["VMEMP", "VDDCI_MEM"], "memory controller"),
    ("MemoryIo", &["VDDIO_MEM"], "memory interface"),
];

/// A version of the interface: MP1 versions it serves, message header, driver interface header,
/// name of the interface version's define and the header it stands in, and how Linux resets.
struct Interface {
    versions: &'static [(u8, u8, u8)],
    messages: &'static str,
    driver_if: &'static str,
    version_define: (&'static str, &'static str),
    why: &'static str,
}

const INTERFACES: &[Interface] = &[
    Interface {
        versions: &[(13, 0, 0), (13, 0, 10)],
        messages: "inc/pmfw_if/smu_v13_0_0_ppsmc.h",
        driver_if: "inc/pmfw_if/smu13_driver_if_v13_0_0.h",
        version_define: ("inc/pmfw_if/smu13_driver_if_v13_0_0.h", "SMU13_0_0_DRIVER_IF_VERSION"),
        why: "smu_v13_0_0_ppt.c serves both",
    },
    Interface {
        versions: &[(13, 0, 7)],
        messages: "inc/pmfw_if/smu_v13_0_7_ppsmc.h",
        driver_if: "inc/pmfw_if/smu13_driver_if_v13_0_7.h",
        version_define: ("inc/pmfw_if/smu13_driver_if_v13_0_7.h", "SMU13_0_7_DRIVER_IF_VERSION"),
        why: "smu_v13_0_7_ppt.c",
    },
    Interface {
        versions: &[(14, 0, 2), (14, 0, 3)],
        messages: "inc/pmfw_if/smu_v14_0_2_ppsmc.h",
        driver_if: "inc/pmfw_if/smu14_driver_if_v14_0.h",
        version_define: ("inc/smu_v14_0.h", "SMU14_DRIVER_IF_VERSION_SMU_V14_0_2"),
        why: "smu_v14_0_2_ppt.c serves both",
    },
];

/// A member of a C struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Bytes from the start.
    pub offset: usize,
    /// Bytes of one element.
    pub size: usize,
    /// Number of elements.
    pub count: usize,
}

/// Size, alignment and members of a struct.
pub type Layout = (usize, usize, Vec<(String, Member)>);

/// The declarations of a C header, as far as needed: numbers and plain structs.
#[derive(Debug, Default)]
pub struct CHeader {
    /// Defines and enumerators with a numeric value.
    pub numbers: HashMap<String, u64>,
    /// Structs by name: size, alignment, members.
    pub structs: HashMap<String, Layout>,
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(i) = rest.find("/*") {
        out.push_str(&rest[..i]);
        rest = rest[i..].find("*/").map_or("", |j| &rest[i + j + 2..]);
    }
    out.push_str(rest);
    out.lines().map(|l| l.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

impl CHeader {
    /// Reads a header. Structs with members of unknown types are left out.
    pub fn parse(text: &str) -> CHeader {
        let text = without_comments(text);
        let mut header = CHeader::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let ["#define", name, value] = *words.as_slice() {
                let value = header.value(value);
                if let Some(v) = value {
                    header.numbers.insert(name.to_owned(), v);
                }
            }
        }
        let mut rest = text.as_str();
        while let Some(i) = rest.find("typedef ") {
            rest = &rest[i + "typedef ".len()..];
            let (Some(open), Some(close)) = (rest.find('{'), rest.find('}')) else { break };
            let kind = rest[..open.min(rest.len())].split_whitespace().next().unwrap_or("");
            if open > close || !matches!(kind, "enum" | "struct") {
                continue;
            }
            let body = &rest[open + 1..close];
            let after = &rest[close + 1..];
            let name = after.split(';').next().unwrap_or("").trim().to_owned();
            if kind == "enum" {
                header.enumerators(body);
            } else if let Some(s) = header.members(body) {
                header.structs.insert(name, s);
            }
            rest = after;
        }
        header
    }

    fn value(&self, text: &str) -> Option<u64> {
        let text = text.trim().trim_start_matches('(').trim_end_matches(')').trim_end_matches(['U', 'L']);
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok().or_else(|| self.numbers.get(text).copied()),
        }
    }

    fn enumerators(&mut self, body: &str) {
        let mut next = 0;
        for item in body.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            let (name, value) = match item.split_once('=') {
                Some((n, v)) => (n.trim(), self.value(v)),
                None => (item, Some(next)),
            };
            let Some(value) = value else { return };
            self.numbers.insert(name.to_owned(), value);
            next = value + 1;
        }
    }

    fn members(&self, body: &str) -> Option<Layout> {
        let (mut at, mut align, mut out) = (0usize, 1usize, Vec::new());
        for item in body.split(';').map(str::trim).filter(|i| !i.is_empty()) {
            let (kind, rest) = item.split_once(char::is_whitespace)?;
            let (size, own) = match kind {
                "uint8_t" | "int8_t" => (1, 1),
                "uint16_t" | "int16_t" => (2, 2),
                "uint32_t" | "int32_t" => (4, 4),
                "uint64_t" | "int64_t" => (8, 8),
                other => self.structs.get(other).map(|s| (s.0, s.1))?,
            };
            let mut parts = rest.split('[');
            let name = parts.next()?.trim();
            let mut count = 1;
            for dim in parts {
                count *= self.value(dim.trim().trim_end_matches(']').trim())? as usize;
            }
            at = at.next_multiple_of(own);
            align = align.max(own);
            out.push((name.to_owned(), Member { offset: at, size, count }));
            at += size * count;
        }
        Some((at.next_multiple_of(align), align, out))
    }
}

fn enumeration<'a>(out: &mut String, doc: &str, name: &str, items: impl Iterator<Item = (&'a str, String)>) {
    let _ = writeln!(out, "/// {doc}\n#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]");
    let _ = writeln!(out, "#[repr(u8)]\npub enum {name} {{");
    for (item, text) in items {
        let _ = writeln!(out, "    /// {text}\n    {item},");
    }
    out.push_str("}\n\n");
}

/// An index of an enumerator in the headers, `0xff` if absent.
fn index(header: &CHeader, prefix: &str, names: &[&str]) -> u64 {
    names.iter().find_map(|n| header.numbers.get(&format!("{prefix}{n}")).copied()).unwrap_or(0xff)
}

fn list(values: impl Iterator<Item = u64>) -> String {
    let values: Vec<String> = values.map(|v| v.to_string()).collect();
    format!("[{}]", values.join(", "))
}

/// `core/src/reg/smu/generated.rs`; `read` gives a header below `pm/swsmu`.
pub fn emit(read: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::from("// @generated by `regs-gen` from the Linux headers; do not edit.\n");
    out.push_str(
        "//! Numbers of the interface to the SMU's firmware, by version.\n\nuse super::{Messages, Span};\n\n",
    );
    enumeration(
        &mut out,
        "A message to the SMU, named as in the headers (`PPSMC_MSG_…`).",
        "Message",
        MESSAGES.iter().map(|(n, d)| (*n, format!("`PPSMC_MSG_{n}`: {d}."))),
    );
    let named = |prefix: &'static str| {
        move |(n, c, d): &(&'static str, &[&str], &str)| (*n, format!("`{prefix}{}`: {d}.", c.join("` or `")))
    };
    enumeration(&mut out, "A clock.", "Clock", CLOCKS.iter().map(named("PPCLK_")));
    enumeration(
        &mut out,
        "A table that is exchanged through memory.",
        "Table",
        TABLES.iter().map(|(n, c, d)| (*n, format!("`TABLE_{c}`: {d}."))),
    );
    enumeration(&mut out, "A member of the metrics table.", "Metric", METRICS.iter().map(named("")));
    enumeration(&mut out, "A temperature sensor.", "Sensor", SENSORS.iter().map(named("TEMP_")));
    enumeration(&mut out, "A voltage plane.", "Plane", PLANES.iter().map(named("SVI_PLANE_")));
    for (name, n) in [
        ("MESSAGES", MESSAGES.len()),
        ("CLOCKS", CLOCKS.len()),
        ("TABLES", TABLES.len()),
        ("METRICS", METRICS.len()),
        ("SENSORS", SENSORS.len()),
        ("PLANES", PLANES.len()),
    ] {
        let _ = writeln!(out, "pub(super) const {name}: usize = {n};");
    }
    let rows: usize = INTERFACES.iter().map(|i| i.versions.len()).sum();
    let _ = writeln!(out, "\npub(super) static INTERFACES: [Messages; {rows}] = [");
    for i in INTERFACES {
        let messages = CHeader::parse(&read(i.messages)?);
        let driver_if = CHeader::parse(&read(i.driver_if)?);
        let (file, define) = i.version_define;
        let version = CHeader::parse(&read(file)?).numbers.get(define).copied();
        let version = version.ok_or_else(|| format!("{file}: no {define}"))?;
        let missing = |what: &str| format!("{}: {what}", i.driver_if);
        let metrics = driver_if.structs.get("SmuMetrics_t").ok_or_else(|| missing("no SmuMetrics_t"))?;
        let external = driver_if
            .structs
            .get("SmuMetricsExternal_t")
            .ok_or_else(|| missing("no SmuMetricsExternal_t"))?;
        for v in i.versions {
            let _ = writeln!(out, "    // {} and {}; {}", i.messages, i.driver_if, i.why);
            let _ = writeln!(
                out,
                "    Messages {{\n        version: {v:?},\n        driver_if_version: {version:#x},"
            );
            let numbers = MESSAGES
                .iter()
                .map(|(n, _)| messages.numbers.get(&format!("PPSMC_MSG_{n}")).copied().unwrap_or(0));
            let _ = writeln!(out, "        messages: {},", list(numbers));
            let _ = writeln!(
                out,
                "        clocks: {},",
                list(CLOCKS.iter().map(|(_, c, _)| index(&driver_if, "PPCLK_", c)))
            );
            let _ = writeln!(
                out,
                "        tables: {},",
                list(TABLES.iter().map(|(_, c, _)| index(&driver_if, "TABLE_", &[c])))
            );
            let _ = writeln!(
                out,
                "        sensors: {},",
                list(SENSORS.iter().map(|(_, c, _)| index(&driver_if, "TEMP_", c)))
            );
            let _ = writeln!(
                out,
                "        planes: {},",
                list(PLANES.iter().map(|(_, c, _)| index(&driver_if, "SVI_PLANE_", c)))
            );
            let _ = writeln!(out, "        metrics_size: {},\n        metrics: [", external.0);
            for (_, names, _) in METRICS {
                let member = metrics.2.iter().find(|(n, _)| names.contains(&n.as_str()));
                let m = member.map_or(Member { offset: 0, size: 0, count: 0 }, |m| m.1);
                let _ = writeln!(
                    out,
                    "            Span {{ offset: {}, size: {}, count: {} }},",
                    m.offset, m.size, m.count
                );
            }
            out.push_str("        ],\n    },\n");
        }
    }
    out.push_str("];\n");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn struct_layout_follows_c_alignment() {
        let header = CHeader::parse(
            "#define N 3 // three\ntypedef enum {\n A,\n B = 4, /* four */\n C,\n} E_e;\n\
             typedef struct { uint8_t a; uint16_t b[N]; uint32_t c [C]; } S_t;\n\
             typedef struct { S_t s; uint8_t t; } T_t;",
        );
        assert_eq!((header.numbers["A"], header.numbers["C"]), (0, 5));
        let (size, align, members) = &header.structs["S_t"];
        assert_eq!((*size, *align), (28, 4));
        assert_eq!(members[1], ("b".into(), Member { offset: 2, size: 2, count: 3 }));
        assert_eq!(members[2].1, Member { offset: 8, size: 4, count: 5 });
        assert_eq!(header.structs["T_t"].0, 32);
    }
}
