//! Bulk-Only transport of alternate setting 0: what a BIOS or an operating system says to a disk.

use super::cost;
use super::descriptors::{DATA_IN, DATA_OUT};
use super::machine::{Course, Machine};
use super::scsi::Reply;
use super::usb::{Status, Transfer};
use crate::violation::Rule;

const CBW: usize = 31;
const CBW_SIGNATURE: [u8; 4] = *b"USBC";
const CSW_SIGNATURE: [u8; 4] = *b"USBS";

/// Where the conversation stands.
#[derive(Default)]
pub(crate) enum Bot {
    #[default]
    Command,
    /// Bytes from the host, this many.
    Out { cbw: Vec<u8>, left: usize },
    /// What the host collects: data, then status.
    In { answers: std::collections::VecDeque<Vec<u8>>, at: u64 },
}

impl Machine {
    pub(crate) fn bot_next(&self) -> Option<u64> {
        match &self.bot {
            Bot::Command | Bot::Out { .. } => Some(self.head(DATA_OUT, 0)?.at.max(self.busy)),
            Bot::In { .. } => None,
        }
    }

    pub(crate) fn bot_act(&mut self, start: u64) {
        let Some(p) = self.take(DATA_OUT, 0) else { return };
        let Transfer::Out { data, .. } = &p.transfer else { return };
        let (data, len) = (data.clone(), data.len());
        match std::mem::take(&mut self.bot) {
            Bot::Out { cbw, left } => {
                self.finish(p, Status::Success, len, Vec::new(), start);
                if len < left {
                    self.bot = Bot::Out { cbw, left: left - len };
                } else {
                    self.bot_execute(start, &cbw);
                }
            }
            Bot::Command | Bot::In { .. } => {
                let good = len == CBW && data[..4] == CBW_SIGNATURE && (1..=16).contains(&data[14]);
                if !good {
                    self.violation(
                        Rule::UsbCommand,
                        format!("{len} bytes that are no Bulk-Only command block"),
                    );
                    self.halted.extend([DATA_IN, DATA_OUT]);
                    return self.finish(p, Status::Stall, 0, Vec::new(), start);
                }
                self.finish(p, Status::Success, len, Vec::new(), start);
                let want = u32::from_le_bytes([data[8], data[9], data[10], data[11]]) as usize;
                if want > 0 && data[12] & 0x80 == 0 {
                    self.bot = Bot::Out { cbw: data, left: want };
                } else {
                    self.bot_execute(start, &data);
                }
            }
        }
    }

    fn bot_execute(&mut self, start: u64, cbw: &[u8]) {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&cbw[15..31]);
        let want = u32::from_le_bytes([cbw[8], cbw[9], cbw[10], cbw[11]]) as usize;
        let course = self.begin_command();
        if course == Course::Gone {
            return;
        }
        let reply: Reply = self.scsi(&cdb, &[], false);
        let late = if course == Course::Late { cost::LATE } else { 0 };
        let at = self.work(start, reply.cost + late);
        let reads = cbw[12] & 0x80 != 0;
        let mut data = reply.data;
        data.truncate(if reads { want } else { 0 });
        let mut csw = CSW_SIGNATURE.to_vec();
        csw.extend(&cbw[4..8]);
        csw.extend(((want - data.len().min(want)) as u32).to_le_bytes());
        csw.push(u8::from(reply.sense.is_some()));
        match course {
            Course::Lost => return,
            Course::Stall => {
                self.halted.insert(DATA_IN);
                return;
            }
            Course::Short => csw.truncate(8),
            _ => {}
        }
        let mut answers = std::collections::VecDeque::new();
        // A host that asked for data gets a data stage, be it empty.
        if reads && want > 0 {
            answers.push_back(data);
        }
        answers.push_back(csw);
        self.bot = Bot::In { answers, at };
        self.bot_take_in();
    }

    pub(crate) fn bot_take_in(&mut self) {
        while let Bot::In { answers, at } = &mut self.bot {
            let Some(answer) = answers.pop_front() else {
                self.bot = Bot::Command;
                return;
            };
            let at = *at;
            let Some(p) = self.take(DATA_IN, 0) else {
                if let Bot::In { answers, .. } = &mut self.bot {
                    answers.push_front(answer);
                }
                return;
            };
            let at = at.max(p.at);
            self.deliver(p, answer, at);
        }
    }
}
