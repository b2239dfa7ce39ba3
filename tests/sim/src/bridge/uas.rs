//! USB Attached SCSI: command blocks on the command pipe, data and status on the stream of their tag.
//!
//! Commands run in the order of the command pipe; transfers of a command may come in any order. Data
//! goes before status.

use super::descriptors::{COMMAND_OUT, DATA_IN, DATA_OUT, STATUS_IN};
use super::machine::{Course, Machine};
use super::scsi::Reply;
use super::usb::{Status, Transfer};
use super::{cost, descriptors};
use crate::violation::Rule;
use std::collections::{BTreeMap, VecDeque};

const IU: usize = 32;
const COMMAND_IU: u8 = 1;
const SENSE_IU: u8 = 3;
const RESPONSE_IU: u8 = 4;
const TASK_IU: u8 = 5;

/// A command that came in.
struct Command {
    at: u64,
    iu: Vec<u8>,
}

/// What waits for the host's transfers.
struct Answer {
    data: Option<Vec<u8>>,
    status: Vec<u8>,
    at: u64,
}

#[derive(Default)]
pub(crate) struct Uas {
    queue: VecDeque<Command>,
    answers: BTreeMap<u16, Answer>,
}

fn tag_of(iu: &[u8]) -> u16 {
    u16::from_be_bytes([iu[2], iu[3]])
}

fn cdb_of(iu: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb.copy_from_slice(&iu[16..32]);
    cdb
}

fn sense_iu(tag: u16, reply: &Reply) -> Vec<u8> {
    let mut iu = vec![0; 16];
    iu[0] = SENSE_IU;
    iu[2..4].copy_from_slice(&tag.to_be_bytes());
    if reply.sense.is_some() {
        let sense = Reply::sense_bytes(reply.sense);
        iu[6] = 2;
        iu[14..16].copy_from_slice(&(sense.len() as u16).to_be_bytes());
        iu.extend(sense);
    }
    iu
}

impl Machine {
    /// When the command at the head can run: it is there, and so is its data.
    pub(crate) fn uas_next(&self) -> Option<u64> {
        let c = self.uas.queue.front()?;
        let mut at = c.at;
        if c.iu[0] == COMMAND_IU && self.scsi_expects(&cdb_of(&c.iu)) > 0 {
            at = at.max(self.head(DATA_OUT, u32::from(tag_of(&c.iu)))?.at);
        }
        Some(at.max(self.busy))
    }

    pub(crate) fn uas_take_in(&mut self) {
        while let Some(p) = self.take(COMMAND_OUT, 0) {
            let Transfer::Out { data, .. } = &p.transfer else { continue };
            let (iu, at, len) = (data.clone(), p.at, data.len());
            self.finish(p, Status::Success, len, Vec::new(), at);
            if let Err(why) = self.uas_check(&iu) {
                self.violation(Rule::UsbStream, why);
            } else {
                self.uas.queue.push_back(Command { at, iu });
            }
        }
        self.uas_deliver();
    }

    /// Why this is no command for this bridge.
    fn uas_check(&self, iu: &[u8]) -> Result<(), String> {
        if iu.len() != IU {
            return Err(format!("{} bytes on the command pipe: a command IU has {IU}", iu.len()));
        }
        let tag = tag_of(iu);
        let streams = self.streams.get(&STATUS_IN).copied().unwrap_or(0);
        if tag == 0 || u32::from(tag) > streams || u32::from(tag) >= descriptors::STREAMS {
            return Err(format!("tag {tag} has no stream: {streams} are allocated for status"));
        }
        if self.uas.answers.contains_key(&tag) || self.uas.queue.iter().any(|c| tag_of(&c.iu) == tag) {
            return Err(format!("tag {tag} is used again before its status was read"));
        }
        match iu[0] {
            TASK_IU => Ok(()),
            COMMAND_IU if iu[1] != 0 || iu[4] != 0 || iu[6] != 0 || iu[8..16] != [0; 8] => {
                Err(format!("command IU of tag {tag} with attributes, length or unit other than 0"))
            }
            COMMAND_IU => Ok(()),
            id => Err(format!("IU {id} on the command pipe: 1 is a command, 5 a task")),
        }
    }

    pub(crate) fn uas_act(&mut self, start: u64) {
        let Some(c) = self.uas.queue.pop_front() else { return };
        let (tag, stream) = (tag_of(&c.iu), u32::from(tag_of(&c.iu)));
        if c.iu[0] == TASK_IU {
            let at = self.work(start, cost::COMMAND);
            let mut status = vec![0; 8];
            (status[0], status[2], status[3]) = (RESPONSE_IU, c.iu[2], c.iu[3]);
            self.uas.answers.insert(tag, Answer { data: None, status, at });
            return;
        }
        let cdb = cdb_of(&c.iu);
        let course = self.begin_command();
        if course == Course::Gone {
            return;
        }
        let out = if self.scsi_expects(&cdb) > 0 { self.take(DATA_OUT, stream) } else { None };
        let bytes = match &out {
            Some(p) => match &p.transfer {
                Transfer::Out { data, .. } => data.clone(),
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        let reply = self.scsi(&cdb, &bytes, true);
        let late = if course == Course::Late { cost::LATE } else { 0 };
        let at = self.work(start, reply.cost + late);
        if let Some(p) = out {
            let len = if course == Course::Short { bytes.len() / 2 } else { bytes.len() };
            self.finish(p, Status::Success, len, Vec::new(), at);
        }
        let (mut data, mut status) = (reply.data.clone(), sense_iu(tag, &reply));
        match course {
            Course::Lost => return,
            Course::Stall => {
                self.halted.insert(STATUS_IN);
                return;
            }
            // The answer, or the status where there is none.
            Course::Short if !data.is_empty() => data.truncate(data.len() / 2),
            Course::Short => status.truncate(8),
            _ => {}
        }
        let data = (!reply.data.is_empty()).then_some(data);
        self.uas.answers.insert(tag, Answer { data, status, at });
        self.uas_deliver();
    }

    /// Answers meet the transfers that the host gave for them.
    fn uas_deliver(&mut self) {
        for tag in self.uas.answers.keys().copied().collect::<Vec<_>>() {
            let stream = u32::from(tag);
            let Some(mut answer) = self.uas.answers.remove(&tag) else { continue };
            if let Some(data) = answer.data.take() {
                let Some(p) = self.take(DATA_IN, stream) else {
                    answer.data = Some(data);
                    self.uas.answers.insert(tag, answer);
                    continue;
                };
                answer.at = answer.at.max(p.at);
                self.deliver(p, data, answer.at);
            }
            let Some(p) = self.take(STATUS_IN, stream) else {
                self.uas.answers.insert(tag, answer);
                continue;
            };
            let at = answer.at.max(p.at);
            self.deliver(p, answer.status, at);
            for endpoint in [DATA_IN, DATA_OUT] {
                while self.head(endpoint, stream).is_some_and(|p| p.at <= at) {
                    let Some(p) = self.take(endpoint, stream) else { break };
                    self.violation(
                        Rule::UsbStream,
                        format!("transfer on endpoint {endpoint:#04x}, stream {tag}, whose command has no such data"),
                    );
                    self.finish(p, Status::Stall, 0, Vec::new(), at);
                }
            }
        }
    }

    /// Bytes for a transfer of the host; more than it has room for is babble.
    pub(crate) fn deliver(&mut self, p: super::machine::Pending, data: Vec<u8>, at: u64) {
        let room = match &p.transfer {
            Transfer::In { length, .. } => *length,
            Transfer::Control { setup, .. } => usize::from(setup.length),
            Transfer::Out { .. } => 0,
        };
        if data.len() > room {
            self.violation(
                Rule::UsbStream,
                format!("room for {room} bytes where the answer has {}", data.len()),
            );
            self.finish(p, Status::Babble, room, data[..room].to_vec(), at);
        } else {
            self.finish(p, Status::Success, data.len(), data, at);
        }
    }
}
