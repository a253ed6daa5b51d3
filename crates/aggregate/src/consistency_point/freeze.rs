//! The freeze: every member sets its changes aside, while nothing else of the aggregate runs.
//!
//! Invariants: all that a freeze does is in [`Freeze::STEPS`]. One that finds nothing changed
//! leaves no trace; its requests are answered.

use super::cleaning;
use super::steps::{self, Step};
use crate::allocation::refill::reopen_stock;
use crate::error::AggregateError;
use crate::relocating;
use crate::service::action::{Acted, Action, CpDone, FreezeScope};
use crate::service::aggregate::Aggregate;
use crate::service::member::{Cleaning, FreezeContext};
use crate::service::state::Phase;
use affinity::Access;
use platform::stage::{self, Stage};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::CpNumber;

/// A freeze under way.
pub struct Freeze<'a, 'run> {
    aggregate: &'a Arc<Aggregate>,
    access: &'a mut Access<'run>,
    /// The consistency point that it begins.
    cp: CpNumber,
    actions: Vec<(Action, CpDone)>,
    /// Told when the consistency point has committed.
    running: Vec<CpDone>,
    put_off: Vec<(Action, CpDone, AggregateError)>,
    cleanings: Vec<Box<dyn Cleaning>>,
    /// There is something to write.
    is_changed: bool,
}

impl Freeze<'_, '_> {
    /// What a freeze does, in this order.
    pub const STEPS: [Step<Self>; 11] = [
        Step {
            name: "Administrators' actions run",
            reason: "They change volumes and the volume table, and this image is to have that",
            run: Self::act,
        },
        Step {
            name: "Each member sets its changes aside",
            reason: "After the actions, which may add, remove and change members",
            run: Self::freeze_members,
        },
        Step {
            name: "Room is promised for blocks that move",
            reason: "After the members: what clients were promised comes first. Marks records of volumes, \
                     so before the volume table is looked at",
            run: |freeze| {
                freeze.is_changed |= relocating::promise(freeze.aggregate, freeze.access);
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "The volume table and containers are looked at",
            reason: "After all that may have changed a slot",
            run: |freeze| {
                freeze.is_changed |= freeze.aggregate.block_side.read(freeze.access).is_dirty();
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "If nothing changed the freeze ends here",
            reason: "Before anything that only a commit can undo",
            run: Self::end_unchanged,
        },
        Step {
            name: "The log switches halves",
            reason: "In the same moment as the images are set aside: a record is in the half of the image \
                     that has its operation",
            run: |freeze| {
                switch_log(freeze.aggregate, freeze.cp);
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "Promises of space become the consistency point's",
            reason: "After the last promise of this image, before the first operation of the next",
            run: |freeze| {
                freeze.aggregate.parts.shared.budget.freeze();
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "Numbers in stock are announced to the disks",
            reason: "The last sync has made raid forget them, and no block is placed before this",
            run: |freeze| {
                let Freeze { aggregate, access, .. } = freeze;
                let stock = aggregate.block_side.read(access).relocation.in_stock();
                reopen_stock(&*aggregate.parts.store, aggregate.pool.in_stock());
                reopen_stock(&*aggregate.parts.store, stock);
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "Requests become the running consistency point's",
            reason: "Before the state changes: whoever asks from then on is met by the next one",
            run: Self::note_running,
        },
        Step {
            name: "Who waits for room is woken",
            reason: "After the switch: the log has an empty half",
            run: |freeze| {
                freeze.aggregate.wake_for_room();
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "Members begin to write their images",
            reason: "Last: from here on others run beside",
            run: |freeze| {
                if freeze.cleanings.is_empty() {
                    cleaning::begin(freeze.aggregate);
                }
                freeze.cleanings.drain(..).for_each(Cleaning::begin);
                ControlFlow::Continue(())
            },
        },
    ];
}

/// Begins a consistency point.
pub(crate) fn freeze(aggregate: &Arc<Aggregate>, access: &mut Access<'_>) {
    let _stage = stage::enter(Stage::Freeze);
    let (actions, waiting, forced) = {
        let mut state = aggregate.state.lock();
        if state.phase == Phase::Failed {
            return;
        }
        let actions = std::mem::take(&mut state.actions);
        (actions, std::mem::take(&mut state.waiting), std::mem::take(&mut state.forced))
    };
    let mut freeze = Freeze {
        aggregate,
        access,
        cp: aggregate.filling(),
        actions,
        running: waiting,
        put_off: Vec::new(),
        cleanings: Vec::new(),
        is_changed: forced,
    };
    steps::run(&Freeze::STEPS, &mut freeze);
}

impl Freeze<'_, '_> {
    fn act(&mut self) -> ControlFlow<()> {
        for (mut action, done) in std::mem::take(&mut self.actions) {
            let mut scope = FreezeScope { aggregate: self.aggregate, access: self.access };
            match action(&mut scope) {
                Ok(Acted::Done) => self.running.push(done),
                Ok(Acted::PutOff(why)) => {
                    self.put_off.push((action, done, why));
                    continue;
                }
                Err(error) => done(Err(error)),
            }
            self.is_changed = true;
        }
        ControlFlow::Continue(())
    }

    fn freeze_members(&mut self) -> ControlFlow<()> {
        let context = FreezeContext { cp: self.cp, time: self.aggregate.parts.clock.wall() };
        for member in self.aggregate.members() {
            self.cleanings.extend(member.freeze(self.access, &context));
        }
        self.is_changed |= !self.cleanings.is_empty();
        ControlFlow::Continue(())
    }

    fn end_unchanged(&mut self) -> ControlFlow<()> {
        if self.is_changed {
            return ControlFlow::Continue(());
        }
        self.aggregate.parts.shared.budget.clear();
        let outcome = self.aggregate.advance(Phase::Idle);
        self.aggregate.wake_for_room();
        self.running.drain(..).for_each(|done| done(outcome.clone()));
        // No commit comes that could make room.
        let failure = outcome.err();
        self.put_off.drain(..).for_each(|(_, done, why)| {
            done(Err(failure.clone().unwrap_or(why)));
        });
        self.aggregate.start_consistency_point();
        ControlFlow::Break(())
    }

    fn note_running(&mut self) -> ControlFlow<()> {
        {
            let mut state = self.aggregate.state.lock();
            state.running = std::mem::take(&mut self.running);
            // Actions that were put off come before actions that were asked for meanwhile.
            let put_off = self.put_off.drain(..).map(|(action, done, _)| (action, done));
            state.actions.splice(..0, put_off);
            state.running_cp = self.cp;
            state.cleaning_members = self.cleanings.len();
        }
        if self.aggregate.advance(Phase::CleaningMembers).is_err() {
            refuse_running(self.aggregate);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Operations from now on belong to the next consistency point.
///
/// The first one after a start with something to replay retires both halves of the log, which
/// may both hold records; it runs before clients are served, so nothing is logged beside it.
///
/// The last consistency point, which a stop asks for, closes the log: its superblock says that the
/// log is not needed, so nothing may be logged after this freeze.
fn switch_log(aggregate: &Aggregate, cp: CpNumber) {
    if aggregate.state.lock().stopping {
        aggregate.parts.log.close();
    }
    aggregate.parts.journal.set_cp(cp);
    if !aggregate.parts.log.can_switch() {
        let recovering = aggregate.statistics.consistency_points.load(Ordering::Relaxed) == 0;
        assert!(recovering, "the other half of the log is retired");
        return;
    }
    if let Err(full) = aggregate.parts.log.switch_half(cp.next()) {
        unreachable!("the log can switch: {full}");
    }
    aggregate.set_filling(cp.next());
}

/// The aggregate failed while a consistency point took those in who wait for it.
fn refuse_running(aggregate: &Aggregate) {
    let (refused, failure) = {
        let mut state = aggregate.state.lock();
        let mut refused = std::mem::take(&mut state.running);
        refused.extend(state.actions.drain(..).map(|(_, done)| done));
        (refused, state.failure())
    };
    let error = failure.unwrap_or(AggregateError::Stopping);
    refused.into_iter().for_each(|done| done(Err(error.clone())));
}
