//! What may be asked of a scrub, and time that passes for it.

use super::{Scrub, TETRISES_AT_A_TIME, rate_of};
use crate::error::RaidError;
use crate::member::GroupState;
use crate::store::Inner;
use crate::walk::Walk;
use ondisk::scrub::{ScrubPhase, ScrubRecord};
use std::sync::Arc;
use units::Timestamp;

/// Receives the end of an order: the labels say what it changed.
pub type ScrubDone = Box<dyn FnOnce(Result<(), RaidError>) + Send>;

/// What may be asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrubOrder {
    /// Begins one from the beginning.
    Start {
        /// Bytes a second that it may read from the disks; `None` if there is no limit.
        rate: Option<u64>,
    },
    /// Has it wait.
    Pause,
    /// Has it go on where it was, or changes how fast.
    Resume {
        /// Bytes a second from now on; `None` if as before.
        rate: Option<u64>,
    },
    /// Gives it up.
    Stop,
}

impl Scrub {
    fn obey(&mut self, order: ScrubOrder, tetrises: u64) -> Result<(), RaidError> {
        let (phase, is_open) = (self.phase(), self.is_open());
        match order {
            ScrubOrder::Start { .. } if is_open => return Err(RaidError::ScrubUnderWay),
            ScrubOrder::Pause if phase == ScrubPhase::Paused => {
                return Err(RaidError::ScrubPaused);
            }
            ScrubOrder::Resume { rate: None } if phase == ScrubPhase::Running => {
                return Err(RaidError::ScrubUnderWay);
            }
            ScrubOrder::Start { rate } => self.restart(rate, tetrises),
            _ if !is_open => return Err(RaidError::NoScrub),
            ScrubOrder::Pause => self.rest(ScrubPhase::Paused),
            ScrubOrder::Stop => self.rest(ScrubPhase::Stopped),
            ScrubOrder::Resume { rate } => {
                self.record.phase = ScrubPhase::Running.number();
                self.record.ended_nanoseconds = 0.into();
                self.record.rate = rate.unwrap_or(self.record.rate.get()).into();
                self.walk.set_rate(rate_of(&self.record));
                if self.walk.is_over() {
                    self.rest(ScrubPhase::Finished);
                }
            }
        }
        Ok(())
    }

    fn restart(&mut self, rate: Option<u64>, tetrises: u64) {
        let mut record = ScrubRecord::never();
        record.phase = ScrubPhase::Running.number();
        record.serial = self.record.serial;
        record.started_nanoseconds = self.wall.get().into();
        record.rate = rate.unwrap_or(0).into();
        self.record = record;
        self.number += 1;
        self.active_nanoseconds = 0;
        self.findings.clear();
        let is_label_under_way = self.walk.is_label_under_way();
        self.walk = Walk::new(0, tetrises, TETRISES_AT_A_TIME);
        self.walk.set_rate(rate_of(&self.record));
        if is_label_under_way {
            // That of the one before: this one's follows.
            let _ = self.walk.label_due(true);
        }
        if let Some(now) = self.now {
            self.walk.tick(now);
        }
    }

    fn tick(&mut self, now: u64, wall: Timestamp) {
        let before = self.now.replace(now).unwrap_or(now);
        self.wall = wall;
        if self.is_running() {
            self.active_nanoseconds += now.saturating_sub(before);
        }
        self.walk.tick(now);
    }
}

impl Inner {
    pub(crate) fn order_scrub(
        self: &Arc<Self>,
        order: ScrubOrder,
        wall: Timestamp,
        done: ScrubDone,
    ) {
        let obeyed = {
            let mut state = self.state.lock();
            let tetrises = self.tetrises();
            state.scrub.wall = wall;
            state.scrub.obey(order, tetrises)
        };
        if let Err(error) = obeyed {
            return done(Err(error));
        }
        self.state.lock().scrub.waiters.push(done);
        self.label_scrub();
        self.scrub_next();
    }

    /// Time passes: for how fast rebuilds and scrubs may go, and do.
    pub(crate) fn tick(self: &Arc<Self>, now: u64, wall: Timestamp) {
        {
            let mut state = self.state.lock();
            let rebuilds = state.groups.iter_mut().flat_map(GroupState::fillings_mut);
            rebuilds.for_each(|rebuild| rebuild.tick(now));
            state.scrub.tick(now, wall);
        }
        self.tick_health(now);
        self.scrub_next();
    }
}
