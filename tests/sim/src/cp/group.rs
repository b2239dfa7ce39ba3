//! A workgroup: its waves, its LDS and its barrier.

use super::dispatch::{Fetch, Launch};
use crate::env::Env;
use crate::isa::{Ctx, Program, ProgramError, Target, Wave, WaveState};

/// Instructions that a wave runs before the next has its turn.
const TURN: u32 = 256;
/// What LDS holds at the start: nothing that a kernel may rely on.
const LDS_GARBAGE: u8 = 0xcd;
/// What scalar registers hold that the dispatcher does not set.
const SGPR_GARBAGE: u32 = 0xbad0_0000;

/// A workgroup that runs.
#[derive(Debug)]
pub(super) struct Group {
    waves: Vec<Wave>,
    /// Number of the next instruction of each wave.
    at: Vec<u32>,
    lds: Vec<u8>,
}

impl Group {
    /// Starts a workgroup in a slot of those that run together.
    pub(super) fn new(launch: &Launch, slot: u32, id: [u32; 3]) -> Self {
        let waves: Vec<Wave> = (0..launch.waves()).map(|n| start(launch, slot, id, n)).collect();
        Group { at: vec![0; waves.len()], waves, lds: vec![LDS_GARBAGE; launch.lds_bytes as usize] }
    }

    /// True when every wave has ended.
    pub(super) fn is_done(&self) -> bool {
        self.waves.iter().all(|w| w.state == WaveState::Ended)
    }

    /// Gives every wave a turn. Returns the first access outside LDS or scratch.
    pub(super) fn run(
        &mut self,
        env: &mut dyn Env,
        launch: &Launch,
        program: &mut Program,
        left: &mut u32,
    ) -> Result<Option<String>, ProgramError> {
        let mut strayed = None;
        for n in 0..self.waves.len() {
            if *left == 0 {
                break;
            }
            if self.waves[n].state == WaveState::Ready {
                let turn = TURN.min(*left);
                let mut ctx = Ctx { env: &mut *env, who: launch.who, lds: &mut self.lds, strayed: None };
                let used = turn_of(&mut self.waves[n], &mut self.at[n], program, &mut ctx, launch, turn)?;
                *left -= used;
                strayed = strayed.or(ctx.strayed);
                env.spend_ns(u64::from(used));
            }
        }
        let waits = |w: &Wave| matches!(w.state, WaveState::Barrier | WaveState::Ended);
        if self.waves.iter().all(waits) {
            for w in self.waves.iter_mut().filter(|w| w.state == WaveState::Barrier) {
                w.state = WaveState::Ready;
                // Leaving a barrier is progress.
                *left = left.saturating_sub(1);
            }
        }
        Ok(strayed)
    }
}

/// Runs a wave for at most `turn` instructions and returns how many it was.
fn turn_of(
    wave: &mut Wave,
    at: &mut u32,
    program: &mut Program,
    ctx: &mut Ctx<'_>,
    launch: &Launch,
    turn: u32,
) -> Result<u32, ProgramError> {
    for used in 0..turn {
        if wave.state != WaveState::Ready {
            return Ok(used);
        }
        // Most instructions follow the one before; else the map knows.
        if program.get(*at).is_none_or(|i| i.pc != wave.pc) {
            *at = match program.find(wave.pc) {
                Some(n) => n,
                None => {
                    let mut fetch = Fetch::new(&mut *ctx.env, launch.who);
                    program.follow(wave.pc, &mut |va| fetch.word(va))?;
                    program.find(wave.pc).unwrap_or(u32::MAX)
                }
            };
        }
        let Some(inst) = program.get(*at) else { return Ok(used) };
        *at += 1;
        wave.pc = inst.next();
        wave.execute(inst, ctx);
    }
    Ok(turn)
}

/// A wave as the dispatcher starts it.
fn start(launch: &Launch, slot: u32, id: [u32; 3], n: u32) -> Wave {
    let mut w = Wave::new(launch.lanes);
    w.pc = launch.entry;
    w.mode = launch.mode;
    w.index = n;
    w.apertures = launch.apertures;
    for (i, s) in w.s.iter_mut().enumerate().take(108) {
        *s = SGPR_GARBAGE | i as u32;
    }
    let mut next = 0u16;
    let mut push = |w: &mut Wave, value: u32| {
        w.set_sgpr(next, value);
        next += 1;
    };
    for value in &launch.user_data {
        push(&mut w, *value);
    }
    if launch.target >= Target::Gfx12 {
        // Workgroup ids are in trap temporaries: X in TTMP9, Y and Z in the halves of TTMP7.
        w.set_sgpr(108 + 9, id[0]);
        w.set_sgpr(108 + 7, id[1] & 0xffff | id[2] << 16);
    } else {
        for (enabled, id) in launch.group_ids.iter().zip(id) {
            if *enabled {
                push(&mut w, id);
            }
        }
    }
    if launch.group_size {
        push(&mut w, launch.waves() & 0x3f);
    }
    let (bx, by) = (launch.block[0], launch.block[1]);
    let mut exec = 0u64;
    for lane in 0..launch.lanes {
        let item = n * launch.lanes + lane;
        if item >= launch.items() {
            break;
        }
        exec |= 1 << lane;
        let (x, y, z) = (item % bx, item / bx % by, item / (bx * by));
        // Packed into one register from gfx11 on.
        let y = if launch.item_ids >= 1 { y } else { 0 };
        let z = if launch.item_ids >= 2 { z } else { 0 };
        w.v[0][lane as usize] = x | y << 10 | z << 20;
    }
    w.set_exec(exec);
    if launch.scratch_wave_bytes != 0 {
        // The last slots first: a ring that is smaller than its register says shows at once.
        let taken = slot * launch.waves() + n;
        let slot = launch.scratch_waves - 1 - taken;
        w.scratch = launch.scratch_base + u64::from(slot) * u64::from(launch.scratch_wave_bytes);
        w.scratch_bytes = launch.scratch_wave_bytes;
    }
    w
}
