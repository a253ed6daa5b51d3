//! Checks of aggregates in service: an image is kept from being overwritten while another process
//! reads the disks.
//!
//! Invariants: a check that is not heard of for [`KEEP_NANOSECONDS`] is over: its process has died,
//! and nobody reads any more. No call here waits for a check, so others are answered meanwhile.
//!
//! Fails: `NotFound` without such an aggregate, `Conflict` if another check is under way or the
//! image was let go of.

use super::blocking::wait_for;
use super::core::Core;
use super::refusals::missing;
use admin_api::check::to_hexadecimal;
use admin_api::{
    AdminError, CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckPin, CheckRead, Code, Named,
};
use aggregate::{Aggregate, PinError};
use platform::DiskError;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, BlockRef};

const MESSAGE: &str = "cannot check aggregate";
/// A process that reads is heard of every few seconds, also on a busy machine.
const KEEP_NANOSECONDS: u64 = 60_000_000_000;
/// The share of the memory cap that remembering what is kept may take.
const MEMORY_SHARE: u64 = 64;

/// When the checks under way were last heard of: by aggregate, with their numbers.
#[derive(Default)]
pub(super) struct Checks(Mutex<BTreeMap<String, (u64, u64)>>);

fn refusal(name: &str, error: &PinError) -> AdminError {
    let code = match error {
        PinError::Aggregate(_) => Code::Failed,
        _ => Code::Conflict,
    };
    let refusal = AdminError::new(code, MESSAGE, name).because(error.to_string());
    match error {
        PinError::UnderWay => refusal.try_next("wait for the other check, or end it"),
        PinError::Over => refusal.try_next(format!("stroop check aggr {name}")),
        PinError::Room { .. } | PinError::Memory { .. } => refusal.try_next(format!(
            "stroop check aggr {name} when less is written, or without the server: stroop shutdown"
        )),
        PinError::Aggregate(_) => refusal.try_next("stroop status"),
    }
}

impl Core {
    fn checked(&self, name: &str) -> Result<Arc<Aggregate>, AdminError> {
        let found = self.engine.aggregate_named(name);
        found.ok_or_else(|| missing(MESSAGE, "aggregate", name))
    }

    pub(super) fn begin_check(&self, request: &Named) -> Result<CheckBegun, AdminError> {
        let name = &request.name;
        let Some(aggregate) = self.engine.aggregate_named(name) else {
            let is_away = self.offline.lock().iter().any(|offline| offline.name == *name)
                || self.engine.outages().iter().any(|outage| outage.summary.name == *name);
            return match is_away {
                true => Ok(CheckBegun { pin: None }),
                false => Err(missing(MESSAGE, "aggregate", name)),
            };
        };
        let memory_bytes = self.config.memory.0 / MEMORY_SHARE;
        let pinned = wait_for(|done| aggregate.pin_image(memory_bytes, done));
        let stopped = || AdminError::new(Code::Failed, MESSAGE, name).because("the engine stopped");
        let pin = pinned.ok_or_else(stopped)?.map_err(|error| refusal(name, &error))?;
        self.hear_of(name, pin.number);
        Ok(CheckBegun {
            pin: Some(CheckPin {
                number: pin.number,
                consistency_point: pin.cp.get(),
                superblock: to_hexadecimal(pin.superblock.bytes()),
                disks: self.disks.held_by(name),
                keep_within_ns: KEEP_NANOSECONDS,
            }),
        })
    }

    fn hear_of(&self, name: &str, number: u64) {
        let now = self.clock.monotonic_nanoseconds();
        self.checks.0.lock().insert(name.to_owned(), (number, now));
    }

    pub(super) fn keep_check(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        let CheckKeep { aggregate: name, number } = request;
        let held = self.checked(name)?.pinned_blocks(*number);
        let held = held.map_err(|error| refusal(name, &error))?;
        self.hear_of(name, *number);
        Ok(CheckHeld { held_bytes: held.saturating_mul(BLOCK_SIZE_U64) })
    }

    pub(super) fn read_for_check(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        let CheckRead { aggregate: name, number, disk, block, count } = request;
        let keep = CheckKeep { aggregate: name.clone(), number: *number };
        self.keep_check(&keep)?;
        let is_own = self.disks.held_by(name).contains(disk);
        let held = self.disks.held(disk).filter(|_| is_own);
        let found = held.ok_or_else(|| missing("cannot read", "disk", disk))?;
        let count = *count as usize;
        let read = wait_for(|done| found.read(*block, count, done));
        let gone = || Err(DiskError::Gone { disk: disk.clone() });
        let blocks: Vec<BlockRef> = read.unwrap_or_else(gone).map_err(|error| {
            AdminError::new(Code::Failed, "cannot read disk", disk).because(error.to_string())
        })?;
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes().to_vec()).collect();
        Ok(CheckBlocks { size_blocks: found.size_blocks(), data: to_hexadecimal(&bytes) })
    }

    pub(super) fn end_check(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        let CheckKeep { aggregate: name, number } = request;
        {
            // Another check may have begun since: it is still to be heard of.
            let mut checks = self.checks.0.lock();
            if checks.get(name).is_some_and(|(current, _)| current == number) {
                checks.remove(name);
            }
        }
        let aggregate = self.checked(name)?;
        let held = aggregate.pinned_blocks(*number).unwrap_or(0);
        let ended = wait_for(|done| aggregate.unpin_image(*number, done));
        let stopped = || AdminError::new(Code::Failed, MESSAGE, name).because("the engine stopped");
        ended.ok_or_else(stopped)?.map_err(|error| refusal(name, &error))?;
        Ok(CheckHeld { held_bytes: held.saturating_mul(BLOCK_SIZE_U64) })
    }

    /// Ends the checks that were not heard of for too long.
    pub(super) fn expire_checks(&self) {
        let now = self.clock.monotonic_nanoseconds();
        let mut late = Vec::new();
        self.checks.0.lock().retain(|name, (number, heard)| {
            let is_late = now.saturating_sub(*heard) > KEEP_NANOSECONDS;
            if is_late {
                late.push((name.clone(), *number));
            }
            !is_late
        });
        for (name, number) in late {
            tracing::warn!(aggregate = name, "a check is over: its process was not heard of");
            if let Some(aggregate) = self.engine.aggregate_named(&name) {
                aggregate.unpin_image(number, Box::new(|_| ()));
            }
        }
    }
}
