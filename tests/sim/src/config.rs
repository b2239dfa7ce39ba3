//! What is simulated: model, state, faults, as written after `sim:` on the command line.

use crate::chip::{self, Chip};
use std::fmt;
use thiserror::Error;

/// State in which the GPU is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// Powered on, VBIOS has posted it, nobody has driven it: no SOS, no SMU features.
    #[default]
    Cold,
    /// The kernel driver ran before: SOS and SMU alive, its rings and page tables still set.
    Amdgpu,
    /// A finished driver of this project ran before, with this SCRATCH_REG7 value.
    Amdev,
    /// As `Amdev`, but it ended without `fini`: hub and queues still on.
    Malformed,
}

/// Who keeps time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClockKind {
    /// Time passes with accesses and with [`crate::SimGpu::advance_us`].
    #[default]
    Virtual,
    /// Time is the host's.
    Real,
}

/// Where the GPU can be made to hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// PSP bootloader never gets ready.
    Bootloader,
    /// SOS never comes alive.
    Sos,
    /// PSP ring is never created.
    PspRing,
    /// PSP never writes a fence.
    PspCommand,
    /// The SMU never answers.
    Smu,
    /// RLC autoload never completes.
    Autoload,
    /// MMHUB never acknowledges an invalidation.
    TlbMm,
    /// GFXHUB never acknowledges an invalidation.
    TlbGc,
    /// RLC never answers a safe mode request.
    SafeMode,
    /// The command processor executes nothing.
    Compute,
    /// SDMA executes nothing.
    Sdma,
    /// A dequeue request is never served.
    Dequeue,
}

impl Stage {
    const NAMES: &'static [(&'static str, Stage)] = &[
        ("bootloader", Stage::Bootloader),
        ("sos", Stage::Sos),
        ("psp-ring", Stage::PspRing),
        ("psp-command", Stage::PspCommand),
        ("smu", Stage::Smu),
        ("autoload", Stage::Autoload),
        ("tlb-mm", Stage::TlbMm),
        ("tlb-gc", Stage::TlbGc),
        ("safe-mode", Stage::SafeMode),
        ("compute", Stage::Compute),
        ("sdma", Stage::Sdma),
        ("dequeue", Stage::Dequeue),
    ];

    /// Every stage, with its name on the command line.
    pub fn all() -> &'static [(&'static str, Stage)] {
        Self::NAMES
    }
}

/// A fault on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// `hang:STAGE`.
    Hang(Stage),
    /// `ones:N`: from access N on, every read returns all ones and writes are lost.
    Ones(u64),
    /// `unplug:N`: as `ones`, and the device is reported as gone.
    Unplug(u64),
    /// `psp:CODE`: every PSP ring command answers with this status.
    PspStatus(u32),
    /// `psp-bl:CODE`: the bootloader answers components with this code in its low bits.
    PspBootloader(u32),
    /// `smu:CODE`: every SMU message answers with this code.
    SmuResult(u32),
    /// `lost-irq`: no MSI is ever raised.
    LostInterrupt,
    /// `slow:FACTOR`: everything takes that many times longer.
    Slow(u32),
}

impl Fault {
    fn parse(text: &str) -> Result<Fault, ConfigError> {
        let bad = || ConfigError::Fault(text.into());
        let (name, arg) = text.split_once(':').unwrap_or((text, ""));
        let n = || parse_number(arg).ok_or_else(bad);
        let n32 = || n().and_then(|v| u32::try_from(v).map_err(|_| bad()));
        Ok(match name {
            "hang" => {
                Fault::Hang(Stage::NAMES.iter().find(|(s, _)| *s == arg).map(|(_, s)| *s).ok_or_else(bad)?)
            }
            "ones" => Fault::Ones(n()?),
            "unplug" => Fault::Unplug(n()?),
            "psp" => Fault::PspStatus(n32()?),
            "psp-bl" => Fault::PspBootloader(n32()?),
            "smu" => Fault::SmuResult(n32()?),
            "smu-dead" => Fault::Hang(Stage::Smu),
            "lost-irq" => Fault::LostInterrupt,
            "slow" => Fault::Slow(n32()?.max(1)),
            _ => return Err(bad()),
        })
    }
}

/// What is wrong with a description of a simulated GPU.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// Unknown model.
    #[error("unknown GPU '{0}': one of navi31, navi32, navi33, navi44, navi48")]
    Gpu(String),
    /// Unknown key.
    #[error("unknown key '{0}': one of state, bar, count, fault, clock, delays, seed, scratch7, pci, rev")]
    Key(String),
    /// Bad value of a key.
    #[error("'{1}' is no value for '{0}': {allowed}", allowed = allowed(.0))]
    Value(String, String),
    /// Unknown fault.
    #[error(
        "unknown fault '{0}': hang:STAGE, ones:N, unplug:N, psp:CODE, psp-bl:CODE, smu:CODE, smu-dead, lost-irq, \
         slow:FACTOR; STAGE is one of {stages}", stages = stages()
    )]
    Fault(String),
}

/// What a key's value can be.
fn allowed(key: &str) -> &'static str {
    match key {
        "state" => "cold, amdgpu, amdev or malformed",
        "bar" => "a power of two from 1M to the card's own BAR0, as 256M",
        "count" => "1 to 64",
        "clock" => "virtual or real",
        "delays" => "on or off",
        "scratch7" => "a number of 32 bits",
        "pci" => "a PCI device id of four hexadecimal digits, as 7551",
        "rev" => "a PCI revision of two hexadecimal digits, as c8",
        "seed" => "zero or crc32",
        _ => "see --help",
    }
}

fn stages() -> String {
    Stage::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// A simulated GPU's description.
#[derive(Clone, Debug)]
pub struct Config {
    /// The model.
    pub chip: &'static Chip,
    /// State in which it is found.
    pub state: State,
    /// Length of the VRAM aperture BAR0 in bytes.
    pub bar0: u64,
    /// How many of them the machine has.
    pub count: u32,
    /// Which of them this is, from 0.
    pub index: u32,
    /// Faults on demand.
    pub faults: Vec<Fault>,
    /// Who keeps time.
    pub clock: ClockKind,
    /// Answers of firmware, resets and the work of engines take the time they take on hardware.
    pub delays: bool,
    /// SCRATCH_REG7 in the states `amdev` and `malformed`.
    pub scratch7: u32,
    /// PCI device id (vendor 0x1002): that of the model, or of a sibling that differs in nothing else.
    pub device_id: u16,
    /// PCI revision, by which boards of one device id are told apart.
    pub revision: u8,
    /// A foreign trace is judged: violations are reported, and fresh data is served all the same.
    pub judge: bool,
    /// Registers that nothing sets hold the CRC-32 of their dword address instead of 0, so that a
    /// driver that forgets to keep the other fields shows.
    pub seeded: bool,
}

impl Config {
    /// What the reference driver leaves in SCRATCH_REG7.
    pub const REFERENCE_SCRATCH7: u32 = 0xA000_0006;

    /// A cold GPU of this model, all of its VRAM in BAR0.
    pub fn new(gpu: &str) -> Result<Config, ConfigError> {
        let chip = chip::chip(gpu).ok_or_else(|| ConfigError::Gpu(gpu.into()))?;
        Ok(Config {
            chip,
            state: State::Cold,
            bar0: chip.bar0,
            count: 1,
            index: 0,
            faults: Vec::new(),
            clock: ClockKind::Virtual,
            scratch7: Config::REFERENCE_SCRATCH7,
            delays: true,
            device_id: chip.device_id,
            revision: 0xc8,
            judge: false,
            seeded: false,
        })
    }

    /// Parses `GPU[,key=value]...` as after `sim:` on the command line. `fault` may stand more
    /// than once.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut parts = text.split(',');
        let mut config = Config::new(parts.next().unwrap_or_default())?;
        for part in parts.filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| ConfigError::Key(part.into()))?;
            let bad = || ConfigError::Value(key.into(), value.into());
            match key {
                "state" => {
                    config.state = match value {
                        "cold" => State::Cold,
                        "amdgpu" => State::Amdgpu,
                        "amdev" => State::Amdev,
                        "malformed" => State::Malformed,
                        _ => return Err(bad()),
                    }
                }
                "bar" => {
                    let len = parse_size(value).ok_or_else(bad)?;
                    // PCIe ReBAR: powers of two from 1 MiB; VRAM BARs start at 256 MiB.
                    if !len.is_power_of_two() || len < 1 << 20 || len > config.chip.bar0 {
                        return Err(bad());
                    }
                    config.bar0 = len;
                }
                "count" => {
                    config.count = parse_number(value)
                        .and_then(|v| u32::try_from(v).ok())
                        .filter(|c| (1..=64).contains(c))
                        .ok_or_else(bad)?
                }
                "clock" => {
                    config.clock = match value {
                        "virtual" => ClockKind::Virtual,
                        "real" => ClockKind::Real,
                        _ => return Err(bad()),
                    }
                }
                "delays" => {
                    config.delays = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(bad()),
                    }
                }
                "scratch7" => {
                    config.scratch7 =
                        parse_number(value).and_then(|v| u32::try_from(v).ok()).ok_or_else(bad)?
                }
                "pci" => config.device_id = parse_id(value).ok_or_else(bad)?,
                "rev" => {
                    config.revision = parse_id(value).and_then(|v| u8::try_from(v).ok()).ok_or_else(bad)?
                }
                "seed" => {
                    config.seeded = match value {
                        "zero" => false,
                        "crc32" => true,
                        _ => return Err(bad()),
                    }
                }
                "fault" => config.faults.push(Fault::parse(value)?),
                _ => return Err(ConfigError::Key(key.into())),
            }
        }
        Ok(config)
    }

    /// One description for each of [`Config::count`] GPUs.
    pub fn each(&self) -> impl Iterator<Item = Config> + '_ {
        (0..self.count).map(|index| Config { index, ..self.clone() })
    }

    pub(crate) fn hangs(&self, stage: Stage) -> bool {
        self.faults.contains(&Fault::Hang(stage))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim:{} #{}", self.chip.name, self.index)
    }
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Hexadecimal with or without `0x`, as PCI ids are written.
fn parse_id(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.chars().last()? {
        'K' | 'k' => (&text[..text.len() - 1], 10),
        'M' | 'm' => (&text[..text.len() - 1], 20),
        'G' | 'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    parse_number(digits)?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_syntax_sets_every_key() {
        let c = Config::parse(
            "navi31,state=amdgpu,bar=256M,count=8,clock=real,fault=hang:sos,fault=psp:0xffff000a",
        )
        .unwrap();
        assert_eq!((c.chip.name, c.state, c.bar0, c.count), ("navi31", State::Amdgpu, 256 << 20, 8));
        assert_eq!(c.clock, ClockKind::Real);
        assert_eq!(c.faults, [Fault::Hang(Stage::Sos), Fault::PspStatus(0xffff_000a)]);
        assert_eq!(c.each().map(|c| c.index).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn boards_are_told_apart_by_pci_id_and_revision() {
        let id = |text| Config::parse(text).map(|c| (c.device_id, c.revision));
        assert_eq!(id("navi48"), Ok((0x7550, 0xc8)));
        assert_eq!(id("navi48,pci=7551,rev=c0"), Ok((0x7551, 0xc0)));
        assert_eq!(id("navi31,pci=0x744B,rev=0"), Ok((0x744b, 0)));
        for wrong in ["navi31,pci=", "navi31,pci=+744", "navi31,pci=1744b", "navi31,rev=1c8", "navi31,rev=x"]
        {
            assert!(matches!(Config::parse(wrong), Err(ConfigError::Value(..))), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(Config::parse("navi99").unwrap_err(), ConfigError::Gpu("navi99".into()));
        assert_eq!(
            Config::parse("navi31,bar=3M").unwrap_err(),
            ConfigError::Value("bar".into(), "3M".into())
        );
        assert_eq!(Config::parse("navi31,colour=red").unwrap_err(), ConfigError::Key("colour".into()));
        assert!(matches!(Config::parse("navi31,fault=meteor"), Err(ConfigError::Fault(_))));
    }
}
