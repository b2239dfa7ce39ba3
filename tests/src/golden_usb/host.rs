//! Sends batches of commands as the reference does: one stream each, windows of 31.

use std::collections::BTreeMap;

use amdev_sim::bridge::usb::{Completion, Setup, Status, Transfer, UsbPort};
use amdev_sim::bridge::{Bridge, BridgeConfig};
use anyhow::{Context, Result, anyhow, bail};

const WINDOW: usize = 31;

/// A command: its block, bytes in, bytes out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pub(crate) cdb: Vec<u8>,
    pub(crate) room: usize,
    pub(crate) out: Option<Vec<u8>>,
}

impl Command {
    /// E5: one byte of bridge memory.
    pub(crate) fn write(at: u16, value: u8) -> Command {
        let [high, low] = at.to_be_bytes();
        Command { cdb: vec![0xe5, value, 0x50, high, low, 0], ..Command::default() }
    }

    /// The address of E4 and E5.
    pub(crate) fn address(&self) -> u32 {
        let byte = |i: usize| u32::from(self.cdb.get(i).copied().unwrap_or(0));
        (byte(2) << 16 | byte(3) << 8 | byte(4)) & 0x1_ffff
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.cdb.first().copied().unwrap_or(0)
    }

    /// The second byte: the value of E5, the length of E4.
    pub(crate) fn byte(&self) -> u8 {
        self.cdb.get(1).copied().unwrap_or(0)
    }
}

pub(crate) struct Host {
    pub(crate) bridge: Bridge,
    ended: BTreeMap<u64, Completion>,
}

impl Host {
    /// A bridge with the vendor's firmware, its streams allocated.
    pub(crate) fn new(config: BridgeConfig) -> Result<Host> {
        let mut h = Host { bridge: Bridge::new(config), ended: BTreeMap::new() };
        for (request_type, request, value) in [(0, 9, 1), (1, 11, 1)] {
            let setup = Setup { request_type, request, value, ..Setup::default() };
            let id = h.bridge.submit(Transfer::Control { setup, data: Vec::new() });
            h.end(id)?;
        }
        match h.bridge.alloc_streams(&[0x02, 0x81, 0x83], WINDOW as u32) {
            Status::Success => Ok(h),
            other => Err(anyhow!("{WINDOW} streams: {other:?}")),
        }
    }

    fn end(&mut self, id: u64) -> Result<Completion> {
        loop {
            if let Some(c) = self.ended.remove(&id) {
                if c.status != Status::Success {
                    bail!("transfer ended as {:?}", c.status);
                }
                return Ok(c);
            }
            match self.bridge.poll() {
                Some(c) => drop(self.ended.insert(c.id, c)),
                None if self.bridge.wait() => {}
                None => bail!("transfer never ends"),
            }
        }
    }

    /// Data of each command. A command that is refused is an error.
    pub(crate) fn send(&mut self, commands: &[Command]) -> Result<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for window in commands.chunks(WINDOW) {
            let mut ids = Vec::new();
            for (c, stream) in window.iter().zip(1u32..) {
                let mut data = vec![1, 0, 0, stream as u8];
                data.resize(16, 0);
                data.extend(&c.cdb);
                data.resize(32, 0);
                let command = self.bridge.submit(Transfer::Out { endpoint: 4, stream: 0, data });
                let status = Transfer::In { endpoint: 0x83, stream, length: 64 };
                let status = self.bridge.submit(status);
                let read = Transfer::In { endpoint: 0x81, stream, length: c.room };
                let read = (c.room > 0).then(|| self.bridge.submit(read));
                let out = c.out.clone().map(|data| Transfer::Out { endpoint: 2, stream, data });
                let out = out.map(|t| self.bridge.submit(t));
                ids.push((command, status, read, out));
            }
            for ((command, status, read, out), c) in ids.into_iter().zip(window) {
                let place = || format!("command {:02x?}", c.cdb);
                self.end(command).with_context(place)?;
                let data = match read {
                    Some(id) => self.end(id).with_context(place)?.data,
                    None => Vec::new(),
                };
                if let Some(id) = out {
                    self.end(id).with_context(place)?;
                }
                let status = self.end(status).with_context(place)?.data;
                if status.get(6) != Some(&0) {
                    bail!("{} is refused: {:02x?}", place(), status);
                }
                all.push(data);
            }
        }
        Ok(all)
    }
}
