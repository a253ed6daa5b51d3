//! Checks of aggregates by another process, which reads the disks beside this one.
//!
//! Of an aggregate in service an image is kept from being overwritten. An aggregate that is out of
//! service is kept there: its disks are open here for the check, so nobody else can take them, and
//! it is not opened before the check ends (`recovery`).
//!
//! Invariants: a check that is not heard of for [`KEEP_NANOSECONDS`] is over: its process has died,
//! and nobody reads any more. No call here waits for a check, so others are answered meanwhile.
//!
//! Fails: `NotFound` without such an aggregate, `Conflict` if another check is under way or the
//! check is over.

use crate::checks::table::{CheckTable, KEEP_NANOSECONDS, Kind};
use crate::disks::labels::Found;
use crate::disks::table::DiskTable;
use crate::node::Node;
use crate::patience::Patience;
use admin_api::check::to_hexadecimal;
use admin_api::{
    AdminError, CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckPin, CheckRead, CheckedState,
    Code, Named,
};
use aggregate::{Aggregate, ImagePin, PinError};
use platform::{Disk, DiskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64, BlockRef};

const MESSAGE: &str = "cannot check aggregate";
fn refusal(name: &str, error: &PinError) -> AdminError {
    let code = match error {
        PinError::Aggregate(_) => Code::Failed,
        _ => Code::Conflict,
    };
    let refusal = AdminError::new(code, MESSAGE, name).because(error.to_string());
    match error {
        PinError::UnderWay => refusal.try_next(
            "wait for the other check, or end it; the server forgets a check that was killed after \
             a minute",
        ),
        PinError::Over => refusal.try_next(format!("stroop check aggr {name}")),
        PinError::Room { .. } | PinError::Memory { .. } => refusal.try_next(format!(
            "stroop check aggr {name} when less is written, or without the server: stroop shutdown"
        )),
        PinError::Aggregate(_) => refusal.try_next(format!("stroop check aggr {name}")),
    }
}

fn conflict(name: &str, cause: impl Into<String>) -> AdminError {
    let refusal = AdminError::new(Code::Conflict, MESSAGE, name).because(cause);
    refusal.try_next(format!("stroop check aggr {name}"))
}

/// Nobody knows what was written to the disks since the check was over.
fn over(name: &str, cause: &str) -> AdminError {
    conflict(name, cause)
        .because("clients may have overwritten what the check read, so its findings are not shown")
}

fn stopped(name: &str) -> AdminError {
    AdminError::new(Code::Failed, MESSAGE, name).because("the engine stopped")
}

/// The disks of an aggregate that is out of service, as far as they were found.
struct AtRest {
    identity: AggregateUuid,
    state: CheckedState,
    disks: Vec<Arc<dyn Disk>>,
    left_out: Vec<String>,
    busy: Vec<String>,
}

/// The checks of a node's aggregates.
pub(crate) struct Checks {
    pub node: Arc<Node>,
    pub disks: Arc<DiskTable>,
    pub table: CheckTable,
    /// What remembering held blocks may take.
    pub memory_bytes: u64,
}

impl Checks {
    pub(crate) fn begin_check(&self, request: &Named) -> Result<CheckBegun, AdminError> {
        let name = &request.name;
        let in_service = self.node.engine.aggregate_named(name).filter(|found| !found.is_failed());
        let Some(aggregate) = in_service else { return self.begin_at_rest(name) };
        let pinned = self.node.waits.wait_for(|done| aggregate.pin_image(self.memory_bytes, done));
        match pinned.ok_or_else(|| stopped(name))? {
            Ok(pin) => self.begin_pinned(name, &aggregate, &pin),
            Err(PinError::Aggregate(_)) if aggregate.is_failed() => self.begin_at_rest(name),
            Err(error) => Err(refusal(name, &error)),
        }
    }

    fn begin_pinned(
        &self,
        name: &str,
        aggregate: &Arc<Aggregate>,
        pin: &ImagePin,
    ) -> Result<CheckBegun, AdminError> {
        let now = self.node.clock.monotonic_nanoseconds();
        let Some(number) = self.table.begin(name, Kind::Pinned(pin.number), now) else {
            aggregate.unpin_image(pin.number, Box::new(|_| ()));
            return Err(refusal(name, &PinError::UnderWay));
        };
        Ok(CheckBegun {
            number,
            state: CheckedState::InService(CheckPin {
                consistency_point: pin.cp.get(),
                superblock: to_hexadecimal(pin.superblock.bytes()),
            }),
            disks: self.disks.held_by(name),
            left_out: Vec::new(),
            busy: Vec::new(),
            keep_within_ns: KEEP_NANOSECONDS,
        })
    }

    /// Begins a check of an aggregate that is out of service. The turn keeps it from being opened
    /// before the check is known.
    fn begin_at_rest(&self, name: &str) -> Result<CheckBegun, AdminError> {
        let _turn = self.node.turn();
        let AtRest { identity, state, disks, left_out, busy } = self.find_at_rest(name)?;
        let names = disks.iter().map(|disk| disk.name().to_owned()).collect();
        let now = self.node.clock.monotonic_nanoseconds();
        let number = self.table.begin(name, Kind::AtRest { identity, disks }, now);
        let number = number.ok_or_else(|| refusal(name, &PinError::UnderWay))?;
        tracing::info!(aggregate = name, "it stays out of service until a check of it ends");
        let keep_within_ns = KEEP_NANOSECONDS;
        Ok(CheckBegun { number, state, disks: names, left_out, busy, keep_within_ns })
    }

    /// The disks of an aggregate that is out of service.
    fn find_at_rest(&self, name: &str) -> Result<AtRest, AdminError> {
        if self.table.is_under_way(name) {
            return Err(refusal(name, &PinError::UnderWay));
        }
        if let Some(aggregate) = self.node.engine.aggregate_named(name) {
            if !aggregate.is_failed() {
                return Err(conflict(name, "it came back into service just now"));
            }
            let identity = aggregate.parts.identity.aggregate;
            let held = self.disks.held_by(name);
            let disks = held.iter().filter_map(|name| self.disks.held(name)).collect();
            let (left_out, busy) = (Vec::new(), Vec::new());
            return Ok(AtRest { identity, state: CheckedState::Failed, disks, left_out, busy });
        }
        let mut known: BTreeMap<AggregateUuid, CheckedState> = BTreeMap::new();
        for one in self.node.offline.lock().iter().filter(|one| one.name == name) {
            known.insert(one.identity, CheckedState::NotOpened);
        }
        for one in self.node.engine.outages().iter().filter(|one| one.summary.name == name) {
            known.insert(one.summary.identity, CheckedState::Away);
        }
        if known.len() > 1 {
            return Err(AdminError::new(Code::Conflict, MESSAGE, name)
                .because(format!("{} aggregates on the disks have this name", known.len()))
                .try_next("name the disks of one of them only under [node] disks"));
        }
        let Some((identity, state)) = known.pop_first() else {
            return Err(AdminError::missing(MESSAGE, "aggregate", name));
        };
        // A try to open it that has just failed is forgotten a moment later.
        let patience = Patience::new(Arc::clone(&self.node.clock), self.node.waits.clone());
        if !patience.wait_until(|| self.node.engine.is_closed(&identity)) {
            return Err(conflict(name, "requests to its disks from before have not all ended"));
        }
        Ok(self.open_at_rest(name, identity, state))
    }

    /// Opens the disks of an aggregate that nothing in this process uses.
    fn open_at_rest(&self, name: &str, identity: AggregateUuid, state: CheckedState) -> AtRest {
        if state == CheckedState::Away {
            self.disks.keep(name, &[]);
        }
        let mut names = self.disks.names();
        names.retain(|name| {
            let is_in_use = self.disks.is_held(name) || self.disks.upkeep.is_under_way(name);
            !is_in_use && !self.table.has_disk(name)
        });
        let mut found = Found::on(names, |name| self.disks.look(name));
        // A disk that hangs is in use by nobody else.
        found.doubtful.busy.retain(|name| !self.disks.hangs(name));
        let unread = found.left_out.iter().filter(|(name, ..)| !found.doubtful.busy.contains(name));
        let left_out = unread.map(|(.., error)| error.to_string()).collect();
        let candidate = found.candidates.remove(&identity).unwrap_or_default();
        AtRest {
            identity,
            state,
            disks: candidate.into_disks(),
            left_out,
            busy: found.doubtful.busy,
        }
    }

    /// The aggregate whose image a check reads.
    fn pinned(&self, name: &str) -> Result<Arc<Aggregate>, AdminError> {
        let found = self.node.engine.aggregate_named(name);
        found.ok_or_else(|| conflict(name, "it went out of service while it was checked"))
    }

    /// A check goes on; what it reads.
    fn hear_of(&self, name: &str, number: u64) -> Result<Kind, AdminError> {
        let now = self.node.clock.monotonic_nanoseconds();
        let kind = self.table.hear(name, number, now);
        kind.ok_or_else(|| over(name, self.table.why_over(number)))
    }

    pub(crate) fn keep_check(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        let CheckKeep { aggregate: name, number } = request;
        let Kind::Pinned(pin) = self.hear_of(name, *number)? else {
            return Ok(CheckHeld::default());
        };
        let held = self.pinned(name)?.pinned_blocks(pin);
        let held = held.map_err(|error| refusal(name, &error))?;
        Ok(CheckHeld { held_bytes: held.saturating_mul(BLOCK_SIZE_U64) })
    }

    pub(crate) fn read_for_check(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        let CheckRead { aggregate: name, number, disk, block, count } = request;
        let found = match self.hear_of(name, *number)? {
            Kind::AtRest { disks, .. } => disks.into_iter().find(|open| open.name() == disk),
            Kind::Pinned(pin) => {
                let held = self.pinned(name)?.pinned_blocks(pin);
                held.map_err(|error| refusal(name, &error))?;
                let is_own = self.disks.held_by(name).contains(disk);
                self.disks.held(disk).filter(|_| is_own)
            }
        };
        let found = found.ok_or_else(|| AdminError::missing("cannot read", "disk", disk))?;
        let count = *count as usize;
        let read = self.node.waits.wait_for(|done| found.read(*block, count, done));
        let gone = || Err(DiskError::Gone { disk: disk.clone() });
        let blocks: Vec<BlockRef> = read.unwrap_or_else(gone).map_err(|error| {
            AdminError::new(Code::Failed, "cannot read disk", disk).because(error.to_string())
        })?;
        let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes().to_vec()).collect();
        Ok(CheckBlocks { size_blocks: found.size_blocks(), data: to_hexadecimal(&bytes) })
    }

    pub(crate) fn end_check(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        let CheckKeep { aggregate: name, number } = request;
        let kind = self.table.end(name, *number);
        let kind = kind.ok_or_else(|| over(name, self.table.why_over(*number)))?;
        let Kind::Pinned(pin) = kind else { return Ok(CheckHeld::default()) };
        let aggregate = self.pinned(name)?;
        let held = aggregate.pinned_blocks(pin).unwrap_or(0);
        let ended = self.node.waits.wait_for(|done| aggregate.unpin_image(pin, done));
        ended.ok_or_else(|| stopped(name))?.map_err(|error| refusal(name, &error))?;
        Ok(CheckHeld { held_bytes: held.saturating_mul(BLOCK_SIZE_U64) })
    }

    /// Ends the checks that were not heard of for too long.
    pub(crate) fn expire_checks(&self) {
        for (name, kind) in self.table.expire(self.node.clock.monotonic_nanoseconds()) {
            tracing::warn!(aggregate = name, "a check was given up: its process stopped answering");
            let aggregate = self.node.engine.aggregate_named(&name);
            if let (Kind::Pinned(pin), Some(aggregate)) = (kind, aggregate) {
                aggregate.unpin_image(pin, Box::new(|_| ()));
            }
        }
    }
}
