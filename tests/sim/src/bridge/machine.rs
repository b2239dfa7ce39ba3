//! The bridge as a USB device: configuration, endpoints, transfers and when they end.

use super::blocks::Blocks;
use super::bot::Bot;
use super::config::{BridgeConfig, BridgeFault, Firmware};
use super::cost;
use super::descriptors;
use super::link::Link;
use super::memory::Memory;
use super::pcie::Pcie;
use super::uas::Uas;
use super::usb::{Completion, Interface, Status, Transfer, UsbCounts};
use super::vendor::Vendor;
use crate::config::ClockKind;
use crate::gpu::SimGpu;
use crate::violation::{Rule, Violation};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// More misuse than anybody reads is dropped.
const MAX_VIOLATIONS: usize = 1000;
/// A host waits no longer for what only the GPU can bring about.
const PATIENCE: u64 = 10_000_000_000;

/// A transfer that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    /// When the device sees it.
    pub(crate) at: u64,
    pub(crate) transfer: Transfer,
}

/// How a command goes on, where faults are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    Normal,
    Stall,
    Short,
    Late,
    Lost,
    Gone,
}

pub(crate) struct Machine {
    pub(crate) config: BridgeConfig,
    pub(crate) gpu: SimGpu,
    pub(crate) memory: Memory,
    pub(crate) pcie: Pcie,
    pub(crate) link: Link,
    pub(crate) counts: UsbCounts,
    pub(crate) violations: Vec<Violation>,
    pub(crate) present: bool,
    pub(crate) configuration: u8,
    pub(crate) alternate: u8,
    pub(crate) streams: BTreeMap<u8, u32>,
    pub(crate) halted: BTreeSet<u8>,
    pub(crate) control: VecDeque<Pending>,
    pub(crate) bulk: BTreeMap<(u8, u32), VecDeque<Pending>>,
    /// Until when the controller works.
    pub(crate) busy: u64,
    /// Until when the wire carries data.
    pub(crate) wire: u64,
    pub(crate) blocks: Blocks,
    pub(crate) uas: Uas,
    pub(crate) bot: Bot,
    pub(crate) vendor: Vendor,
    /// What reached PCIe, if somebody wants to know.
    pub(crate) record: Option<Vec<super::Access>>,
    next_id: u64,
    done: BTreeMap<(u64, u64), Completion>,
    sequence: u64,
}

impl Machine {
    pub(crate) fn new(config: BridgeConfig) -> Machine {
        let gpu = SimGpu::new(config.gpu.clone());
        // No BIOS has configured what is behind the bridge.
        gpu.lock().pci.reset();
        if !config.power {
            gpu.unplug();
        }
        let link = Link::new(config.power, 0);
        let mut m = Machine {
            memory: Memory::new(config.firmware == Firmware::Custom),
            pcie: Pcie::new(&config),
            link,
            gpu,
            counts: UsbCounts::default(),
            violations: Vec::new(),
            present: true,
            configuration: 0,
            alternate: 0,
            streams: BTreeMap::new(),
            halted: BTreeSet::new(),
            control: VecDeque::new(),
            bulk: BTreeMap::new(),
            busy: 0,
            wire: 0,
            blocks: Blocks::default(),
            uas: Uas::default(),
            bot: Bot::default(),
            vendor: Vendor::default(),
            record: None,
            next_id: 1,
            done: BTreeMap::new(),
            sequence: 0,
            config,
        };
        m.power_on_registers();
        m
    }

    pub(crate) fn violation(&mut self, rule: Rule, detail: impl Into<String>) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation::new(rule, detail));
        }
    }

    // Time.

    pub(crate) fn now(&self) -> u64 {
        self.gpu.time_ns()
    }

    /// A cost on the virtual clock. With a real one, work takes what it takes, and only waits are made.
    pub(crate) fn ns(&self, cost: u64) -> u64 {
        let real = self.config.gpu.clock == ClockKind::Real;
        if real && cost < cost::TRAINING { 0 } else { cost }
    }

    /// The controller works for `cost` nanoseconds from `start`; when it is done.
    pub(crate) fn work(&mut self, start: u64, cost: u64) -> u64 {
        let cost = self.ns(cost);
        self.counts.busy_ns += cost;
        self.busy = start + cost;
        self.busy
    }

    /// Everything that can happen until now.
    pub(crate) fn run(&mut self) {
        loop {
            self.take_in();
            let now = self.now();
            match self.next_action() {
                Some((at, action)) if at <= now => self.act(at, action),
                _ => break,
            }
        }
        self.take_in();
    }

    /// The next thing that happens by itself.
    fn next_action(&self) -> Option<(u64, Action)> {
        let control = self.control.front().map(|p| (p.at.max(self.busy), Action::Control));
        let bulk = match (self.config.firmware, self.alternate) {
            (Firmware::Custom, _) => self.vendor_next(),
            (Firmware::Patched, 0) => self.bot_next().map(|at| (at, Action::Bot)),
            (Firmware::Patched, _) => self.uas_next().map(|at| (at, Action::Uas)),
        };
        [control, bulk].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn act(&mut self, at: u64, action: Action) {
        match action {
            Action::Control => {
                if let Some(p) = self.control.pop_front() {
                    self.control_request(at, p);
                }
            }
            Action::Bot => self.bot_act(at),
            Action::Uas => self.uas_act(at),
            Action::VendorOut => self.vendor_out(at),
            Action::VendorIn => self.vendor_in(at),
        }
    }

    /// What needs no controller: transfers on halted endpoints, command blocks taken in, answers that
    /// meet their transfers.
    fn take_in(&mut self) {
        for endpoint in self.halted.clone() {
            for p in self.drain(|e, _| e == endpoint) {
                let at = p.at;
                self.finish(p, Status::Stall, 0, Vec::new(), at);
            }
        }
        if self.config.firmware == Firmware::Patched {
            if self.alternate == 1 { self.uas_take_in() } else { self.bot_take_in() }
        }
    }

    /// Lets time pass until something has ended; false if nothing will by itself.
    pub(crate) fn wait(&mut self) -> bool {
        self.run();
        let start = self.now();
        loop {
            let now = self.now();
            let done = self.done.keys().next().map(|(at, _)| *at);
            if done.is_some_and(|at| at <= now) {
                return true;
            }
            let action = self.next_action().map(|(at, _)| at);
            let own = [done, action].into_iter().flatten().min();
            // What a GPU writes can end a transfer, too.
            let waits = self.vendor_waits_for_gpu();
            let gpu = if waits { self.gpu.next_due().map(|d| now + d.max(1)) } else { None };
            match [own, gpu].into_iter().flatten().min() {
                Some(at) if at.saturating_sub(start) < PATIENCE || own.is_some() => {
                    self.gpu.advance_to_ns(at);
                }
                _ => return false,
            }
            self.run();
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, ns: u64) {
        let target = self.now().saturating_add(ns);
        loop {
            self.run();
            match self.next_action() {
                Some((at, _)) if at <= target => self.gpu.advance_to_ns(at),
                _ => break,
            }
        }
        self.gpu.advance_to_ns(target);
        self.run();
    }

    // Transfers.

    pub(crate) fn submit(&mut self, transfer: Transfer) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let now = self.now();
        let p = Pending { id, at: now + self.ns(cost::SEND), transfer };
        if !self.present {
            self.finish(p, Status::Io, 0, Vec::new(), now);
            return id;
        }
        match &p.transfer {
            Transfer::Control { .. } => self.control.push_back(p),
            Transfer::Out { endpoint, stream, .. } | Transfer::In { endpoint, stream, .. } => {
                let key = (*endpoint, *stream);
                if let Some(why) = self.refuses(&p.transfer) {
                    self.violation(Rule::UsbStream, why);
                    self.finish(p, Status::Invalid, 0, Vec::new(), now);
                } else {
                    self.bulk.entry(key).or_default().push_back(p);
                }
            }
        }
        id
    }

    /// Why a host controller could not have sent it.
    fn refuses(&self, transfer: &Transfer) -> Option<String> {
        let (endpoint, stream, is_in) = match transfer {
            Transfer::Control { .. } => return None,
            Transfer::Out { endpoint, stream, .. } => (*endpoint, *stream, false),
            Transfer::In { endpoint, stream, .. } => (*endpoint, *stream, true),
        };
        if self.configuration == 0 {
            return Some(format!("transfer on endpoint {endpoint:#04x} of a device without configuration"));
        }
        let interface = self.interface()?;
        let known = interface.endpoints.iter().any(|e| e.address == endpoint);
        if !known || is_in != (endpoint & 0x80 != 0) {
            return Some(format!(
                "transfer on endpoint {endpoint:#04x}, which alternate setting {} does not have",
                self.alternate
            ));
        }
        match (self.streams.get(&endpoint).copied().unwrap_or(0), stream) {
            (0, 0) => None,
            (0, s) => Some(format!("stream {s} of endpoint {endpoint:#04x}, which has none allocated")),
            (_, 0) => Some(format!("transfer without stream on endpoint {endpoint:#04x}, which has streams")),
            (n, s) if s <= n => None,
            (n, s) => Some(format!("stream {s} of endpoint {endpoint:#04x}, which has {n}")),
        }
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        let mine = |p: &Pending| p.id == id;
        let now = self.now();
        if let Some(i) = self.control.iter().position(mine) {
            if let Some(p) = self.control.remove(i) {
                self.finish(p, Status::Cancelled, 0, Vec::new(), now);
            }
            return;
        }
        let key = self.bulk.iter().find(|(_, q)| q.iter().any(mine)).map(|(k, _)| *k);
        let Some(key) = key else { return };
        let Some(queue) = self.bulk.get_mut(&key) else { return };
        let Some(p) = queue.iter().position(mine).and_then(|i| queue.remove(i)) else { return };
        if self.config.firmware == Firmware::Custom {
            self.vendor_cancelled(&p);
        }
        self.finish(p, Status::Cancelled, 0, Vec::new(), now);
    }

    /// A transfer's end, seen by the host at `at` and a little.
    pub(crate) fn finish(&mut self, p: Pending, status: Status, actual: usize, data: Vec<u8>, at: u64) {
        let back = if matches!(status, Status::Success | Status::Stall | Status::Babble) {
            self.ns(cost::RETURN)
        } else {
            0
        };
        self.counts.usb_transfers += 1;
        match &p.transfer {
            Transfer::Control { setup, .. } if setup.is_in() => self.counts.bytes_in += actual as u64,
            Transfer::In { .. } => self.counts.bytes_in += actual as u64,
            _ => self.counts.bytes_out += actual as u64,
        }
        let at_ns = at + back;
        self.sequence += 1;
        self.done.insert((at_ns, self.sequence), Completion { id: p.id, status, actual, data, at_ns });
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        self.run();
        let now = self.now();
        let first = *self.done.keys().next().filter(|(at, _)| *at <= now)?;
        self.done.remove(&first)
    }

    /// The next thing that happens, for a host that sleeps until then.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let done = self.done.keys().next().map(|(at, _)| *at);
        [done, self.next_action().map(|(at, _)| at)].into_iter().flatten().min()
    }

    /// The transfer at the head of a pipe.
    pub(crate) fn head(&self, endpoint: u8, stream: u32) -> Option<&Pending> {
        self.bulk.get(&(endpoint, stream))?.front()
    }

    pub(crate) fn take(&mut self, endpoint: u8, stream: u32) -> Option<Pending> {
        self.bulk.get_mut(&(endpoint, stream))?.pop_front()
    }

    fn drain(&mut self, which: impl Fn(u8, u32) -> bool) -> Vec<Pending> {
        let keys: Vec<_> = self.bulk.keys().copied().filter(|(e, s)| which(*e, *s)).collect();
        keys.into_iter().flat_map(|k| self.bulk.remove(&k).unwrap_or_default()).collect()
    }

    pub(crate) fn sweep(&mut self, status: Status) {
        let now = self.now();
        let mut all = self.drain(|_, _| true);
        all.extend(self.control.drain(..));
        all.sort_by_key(|p| p.id);
        for p in all {
            self.finish(p, status, 0, Vec::new(), now);
        }
    }

    // Configuration.

    pub(crate) fn interface(&self) -> Option<Interface> {
        if !self.present || self.configuration == 0 {
            return None;
        }
        descriptors::interface(self.config.firmware, self.alternate)
    }

    /// Another alternate setting, or the same anew: pipes are empty, streams gone.
    pub(crate) fn set_alternate(&mut self, alternate: u8) {
        let now = self.now();
        for p in self.drain(|_, _| true) {
            self.finish(p, Status::Cancelled, 0, Vec::new(), now);
        }
        self.alternate = alternate;
        self.streams.clear();
        self.halted.clear();
        self.uas = Uas::default();
        self.bot = Bot::default();
        self.vendor.stop();
    }

    pub(crate) fn clear_halt(&mut self, endpoint: u8) {
        self.halted.remove(&endpoint);
        self.vendor.stop_endpoint(endpoint);
    }

    pub(crate) fn alloc_streams(&mut self, endpoints: &[u8], n: u32) -> Status {
        let Some(interface) = self.interface() else { return Status::Io };
        for e in endpoints {
            let max = interface.endpoints.iter().find(|i| i.address == *e).map_or(0, |i| i.max_streams);
            // Number 0 is reserved.
            let max = max.saturating_sub(1);
            if n == 0 || n > max {
                self.violation(
                    Rule::UsbStream,
                    format!("{n} streams asked for on endpoint {e:#04x}, which can have {max}"),
                );
                return Status::Invalid;
            }
        }
        self.streams.extend(endpoints.iter().map(|e| (*e, n)));
        Status::Success
    }

    pub(crate) fn free_streams(&mut self, endpoints: &[u8]) -> Status {
        let now = self.now();
        for e in endpoints {
            self.streams.remove(e);
        }
        for p in self.drain(|e, _| endpoints.contains(&e)) {
            self.finish(p, Status::Cancelled, 0, Vec::new(), now);
        }
        Status::Success
    }

    pub(crate) fn reset(&mut self) {
        if self.present {
            self.sweep(Status::Cancelled);
            self.set_alternate(0);
            self.configuration = 0;
        }
    }

    // Commands.

    /// Counts a command, and tells what becomes of it.
    pub(crate) fn begin_command(&mut self) -> Course {
        let n = self.counts.usb_commands;
        self.counts.usb_commands += 1;
        let course = |f: &BridgeFault| match *f {
            BridgeFault::Stall(at) if at == n => Some(Course::Stall),
            BridgeFault::Short(at) if at == n => Some(Course::Short),
            BridgeFault::Late(at) if at == n => Some(Course::Late),
            BridgeFault::Lost(at) if at == n => Some(Course::Lost),
            BridgeFault::Unplug(at) if at == n => Some(Course::Gone),
            _ => None,
        };
        let course = self.config.faults.iter().find_map(course).unwrap_or(Course::Normal);
        if course == Course::Gone {
            self.unplug();
        }
        course
    }
}

/// What the device does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Control,
    Bot,
    Uas,
    VendorOut,
    VendorIn,
}
