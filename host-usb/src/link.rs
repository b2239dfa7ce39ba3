//! Transfers with a deadline: all of a group end, or all are taken back and the first failure is told.

use crate::error::UsbError;
use crate::port::{Completion, End, Port, Transfer};

/// A bridge that does not answer for so long has stopped, in microseconds. Its slowest command takes
/// half a second: waiting for a PCIe completion that does not come.
const TIMEOUT_US: u64 = 5_000_000;
/// What a byte may take at most, in nanoseconds: 10 MB/s, a third of USB 2.
const BYTE_NS: u64 = 100;
/// Transfers that were taken back end so soon, in microseconds.
const CANCEL_US: u64 = 1_000_000;

/// What was done over the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireCounts {
    /// Command blocks and vendor requests.
    pub commands: u64,
    /// Transfers.
    pub transfers: u64,
    /// Bytes in both directions.
    pub bytes: u64,
    /// Bytes of blocks for bridge memory among them.
    pub block_bytes: u64,
}

/// A port with deadlines and counts.
pub struct Link {
    port: Box<dyn Port>,
    /// What was done so far.
    pub counts: WireCounts,
    gone: bool,
}

impl Link {
    /// Over a port that was opened.
    pub fn new(port: Box<dyn Port>) -> Self {
        Link { port, counts: WireCounts::default(), gone: false }
    }

    /// The port.
    pub fn port(&self) -> &dyn Port {
        self.port.as_ref()
    }

    /// The port.
    pub fn port_mut(&mut self) -> &mut dyn Port {
        self.port.as_mut()
    }

    /// Runs transfers that are under way together; their completions in the order of the transfers.
    ///
    /// # Errors
    /// The first transfer that does not end well. None is under way afterwards, halted endpoints go on.
    pub fn run(
        &mut self,
        transfers: Vec<Transfer>,
        what: impl Fn(usize) -> String,
    ) -> Result<Vec<Completion>, UsbError> {
        if self.gone {
            return Err(UsbError::Gone);
        }
        let bytes: usize = transfers.iter().map(Transfer::len).sum();
        let timeout_us = TIMEOUT_US + bytes as u64 * BYTE_NS / 1000;
        let endpoints: Vec<u8> = transfers.iter().map(Transfer::endpoint).collect();
        let mut group = Group { ids: Vec::new(), ended: Vec::new() };
        for transfer in transfers {
            match self.port.submit(transfer) {
                Ok(id) => group.push(id),
                Err(e) => return Err(self.give_up(&mut group, &endpoints, e)),
            }
        }
        let deadline = self.port.now_us() + timeout_us;
        while let Some(open) = group.first_open() {
            let left = deadline.saturating_sub(self.port.now_us());
            if left == 0 {
                let e = UsbError::Timeout { what: what(open), after_ms: timeout_us / 1000 };
                return Err(self.give_up(&mut group, &endpoints, e));
            }
            let completion = match self.port.reap(left) {
                Ok(Some(completion)) => completion,
                Ok(None) => continue,
                Err(e) => return Err(self.give_up(&mut group, &endpoints, e)),
            };
            let end = completion.end;
            let Some(at) = group.end(completion) else { continue };
            let failed = match end {
                End::Done => continue,
                End::Gone => UsbError::Gone,
                End::Stalled => UsbError::Stall { what: what(at) },
                End::Cancelled => protocol(what(at), "the host took it back"),
                End::Overflow => protocol(what(at), "more bytes came than there was room for"),
                End::Failed => protocol(what(at), "the host controller reports an error"),
            };
            let failed = self.give_up(&mut group, &endpoints, failed);
            if end == End::Failed && !self.port.is_present() {
                self.gone = true;
                return Err(UsbError::Gone);
            }
            return Err(failed);
        }
        let done: Vec<Completion> = group.ended.into_iter().flatten().collect();
        self.counts.transfers += done.len() as u64;
        self.counts.bytes += done.iter().map(|c| c.actual as u64).sum::<u64>();
        Ok(done)
    }

    /// Takes back what is under way, and lets halted endpoints go on.
    fn give_up(&mut self, group: &mut Group, endpoints: &[u8], error: UsbError) -> UsbError {
        for id in group.open() {
            self.port.cancel(id);
        }
        let deadline = self.port.now_us() + CANCEL_US;
        while group.first_open().is_some() {
            let left = deadline.saturating_sub(self.port.now_us());
            match self.port.reap(left) {
                Ok(Some(completion)) => drop(group.end(completion)),
                Ok(None) if left > 0 => {}
                _ => break,
            }
        }
        self.counts.transfers += group.ended.iter().flatten().count() as u64;
        for (endpoint, ended) in endpoints.iter().zip(&group.ended) {
            if *endpoint != 0 && ended.as_ref().is_some_and(|c| c.end == End::Stalled) {
                // What counts is the error that is already known.
                let _ = self.port.clear_halt(*endpoint);
            }
        }
        self.gone = self.gone || error == UsbError::Gone;
        error
    }
}

fn protocol(what: String, why: &str) -> UsbError {
    UsbError::Protocol { what, why: why.into() }
}

/// Transfers that are under way together.
struct Group {
    ids: Vec<u64>,
    ended: Vec<Option<Completion>>,
}

impl Group {
    fn push(&mut self, id: u64) {
        self.ids.push(id);
        self.ended.push(None);
    }

    fn first_open(&self) -> Option<usize> {
        self.ended.iter().position(Option::is_none)
    }

    fn open(&self) -> Vec<u64> {
        let open = self.ids.iter().zip(&self.ended).filter(|(_, ended)| ended.is_none());
        open.map(|(id, _)| *id).collect()
    }

    /// Takes a completion in; `None` if it is of no transfer here.
    fn end(&mut self, completion: Completion) -> Option<usize> {
        let at = self.ids.iter().position(|id| *id == completion.id)?;
        *self.ended.get_mut(at)? = Some(completion);
        Some(at)
    }
}
