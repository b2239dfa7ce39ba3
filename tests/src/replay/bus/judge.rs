//! What is written against the trace and the deviations from it.

use super::{ReplayBus, Row};
use crate::replay::deviations::Row as DeviationRow;
use amdev_core::bus::BusError;

impl ReplayBus {
    pub(super) fn use_deviation(&mut self, id: &str, count: usize) {
        *self.used.entry(id.to_owned()).or_default() += count;
    }

    /// The deviations that apply to this trace.
    pub(super) fn applicable(&self) -> Vec<(String, DeviationRow)> {
        let entries = self.deviations.entries.iter().filter(|e| e.expected(&self.name) > 0);
        entries.flat_map(|e| e.rows.iter().map(|row| (e.id.clone(), row.clone()))).collect()
    }

    pub(super) fn translate(&mut self, addr: u32, value: u32, to_ours: bool) -> u32 {
        for (id, row) in self.applicable() {
            if let DeviationRow::Translate { register, ours, theirs } = row {
                let (from, to) = if to_ours { (theirs, ours) } else { (ours, theirs) };
                if value == from && self.is(addr, &register) {
                    self.use_deviation(&id, 1);
                    return to;
                }
            }
        }
        value
    }

    /// Skips writes of the trace that a deviation says we do not make. `ours` is the write that did
    /// not fit.
    pub(super) fn try_missing(&mut self, ours: Option<(u32, u32)>) -> bool {
        for (id, row) in self.applicable() {
            let DeviationRow::Missing { rows } = row else { continue };
            let upcoming: Vec<(usize, u32, u32)> = self.writes().take(rows.len() + 1).collect();
            let fits = upcoming.len() >= rows.len()
                && rows.iter().zip(&upcoming).all(|(row, (_, addr, value))| {
                    self.is(*addr, &row.register) && row.value.is_none_or(|v| v == *value)
                });
            let then = upcoming.get(rows.len()).map(|(_, addr, _)| *addr);
            if !fits || (ours.is_some() && then != ours.map(|(addr, _)| addr)) {
                continue;
            }
            if let Some((last, ..)) = upcoming.get(rows.len() - 1) {
                for (_, addr, _) in upcoming.iter().take(rows.len()) {
                    if self.is(*addr, "PSP_C2PMSG_35") {
                        self.psp.components.pop_front();
                        self.psp.messages.pop_front();
                    }
                }
                self.pass(*last);
                self.matched += rows.len();
                self.use_deviation(&id, rows.len());
                return true;
            }
        }
        false
    }

    /// Compares a write with the trace. Whether it is one of the trace's.
    pub(super) fn judge(&mut self, addr: u32, value: u32) -> Result<bool, BusError> {
        let Some((i, expected_addr, expected)) = self.writes().next() else {
            for (id, row) in self.applicable() {
                if matches!(row, DeviationRow::Continues {}) {
                    self.use_deviation(&id, 1);
                    self.ended = true;
                    return Err(BusError::Unsupported("go on where the reference gave up"));
                }
            }
            if !self.try_extra(addr, value, None) {
                let what = self.describe(addr, value);
                self.differences.push(format!("extra write after the trace's end: {what}"));
            }
            return Ok(false);
        };
        let theirs = self.translate(addr, value, false);
        if (addr, theirs) == (expected_addr, expected) {
            self.pass(i);
            self.matched += 1;
            return Ok(true);
        }
        if self.try_missing(Some((addr, value))) {
            return self.judge(addr, value);
        }
        if self.try_extra(addr, value, Some(expected_addr)) {
            return Ok(false);
        }
        if addr == expected_addr {
            let covered = self.applicable().into_iter().find_map(|(id, row)| match row {
                DeviationRow::Value { register, mask, ours, theirs }
                    if self.is(addr, &register)
                        && (value ^ expected) & !mask == 0
                        && value & mask == ours
                        && expected & mask == theirs =>
                {
                    Some(id)
                }
                _ => None,
            });
            self.pass(i);
            match covered {
                Some(id) => {
                    self.matched += 1;
                    self.use_deviation(&id, 1);
                }
                None => {
                    let what = self.describe(addr, value);
                    self.differences.push(format!("row {i}: {what}, the reference writes {expected:#x}"));
                }
            }
            return Ok(true);
        }
        let (ours, theirs) = (self.describe(addr, value), self.describe(expected_addr, expected));
        self.differences.push(format!("row {i}: {ours}, the reference writes {theirs}"));
        // Find the place again, if it is near.
        let near = self.rows.iter().enumerate().skip(i).take(40).find_map(|(k, row)| match row {
            Row::Write { addr: a, value: v, .. } if (*a, *v) == (addr, value) => Some(k),
            _ => None,
        });
        if let Some(k) = near {
            self.pass(k);
        }
        Ok(near.is_some())
    }

    pub(super) fn try_extra(&mut self, addr: u32, value: u32, next: Option<u32>) -> bool {
        for (id, row) in self.applicable() {
            if let DeviationRow::Extra { register, value: wanted, before } = row
                && self.is(addr, &register)
                && wanted.is_none_or(|v| v == value)
                && before.is_none_or(|b| next.is_some_and(|next| self.is(next, &b)))
            {
                self.use_deviation(&id, 1);
                return true;
            }
        }
        false
    }
}
