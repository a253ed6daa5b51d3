//! Which disk has which place, which of them can be used, and what the labels say of it.
//!
//! The room writes labels and superblocks, and nothing else. Rooms above it ask which disks they
//! may use and tell it which have failed. It asks one thing of them: that a disk which has a place
//! be filled ([`Fill`]).
//!
//! Invariants: as many members of a group may be missing as it has parity disks; a failure beyond
//! that fails the store (`failure`) and leaves the disk as it is in the labels. A missing disk is
//! marked in the labels of the others before `sync` succeeds. The state's lock is held for a few
//! instructions, never while a disk or a completion is called. Labels are locked before it, and the
//! state of a scrub; spares and the state of `io` after it.

mod disks;
mod error_counts;
mod errors;
mod failure;
mod filled;
mod filling;
mod group_state;
mod label;
mod log_places;
mod lost;
pub(crate) mod numbers;
mod removal;
mod replacement;
mod replacing;
mod report;
mod returning;
mod saved_errors;
mod sequence;
mod spares;
mod standing;
mod status;
mod superblock;
mod told;

use crate::error::StoreError;
use crate::layout::{DiskPlace, Geometry, Group, Layout};
use crate::request::{FailureHook, SyncDone};
use media::Device;
use ondisk::log_copies::LogCopies;
use ondisk::scrub::ScrubRecord;
use platform::sync::Mutex;
use std::sync::{Arc, Weak};

pub use errors::{
    ErrorCounts, FAILURES_MAX, ROTTEN_BLOCKS_MAX, RetiredDisk, UNREADABLE_BLOCKS_MAX,
    WINDOW_NANOSECONDS,
};
pub(crate) use errors::{Known, Trouble};
pub use filling::Way;
pub(crate) use filling::{Rebuild, Task};
pub(crate) use group_state::{GroupState, Starting};
pub use log_places::LogPlace;
pub(crate) use log_places::log_places;
pub(crate) use sequence::first_sequence;
pub(crate) use standing::{Found, Standing, at_start};
pub use status::{
    FillingStatus, GroupStatus, MemberState, MemberStatus, ReplacementStatus, SpareStatus,
};
pub(crate) use told::Told;

/// Fills disks that have a place with what it must hold.
pub(crate) trait Fill: Send + Sync {
    /// The labels name the disks that are to be filled there.
    fn fill(self: Arc<Self>, place: DiskPlace);
}

/// What else keeps a group from being removed.
pub(crate) struct Busy<'a> {
    /// Whether a scrub is under way.
    pub is_scrubbing: bool,
    /// Whether something is queued to be written to the group. Asked last.
    pub is_written: &'a dyn Fn() -> bool,
}

/// The disks of all groups, and the spares.
pub(crate) struct Members {
    layout: Mutex<Arc<Layout>>,
    state: Mutex<State>,
    /// Disks that wait for a place. Locked alone, or after the state.
    spares: Mutex<Vec<Arc<Device>>>,
    /// The places that the log has on disks. Locked alone.
    log_disks: log_places::LogDisks,
    /// Disks that hold all that those have beside which they were filled, and wait until the log
    /// has left these. Locked alone.
    waiting_for_log: Mutex<Vec<Task>>,
    /// Names of those that are about to have one. Locked alone.
    leaving_spares: Mutex<Vec<String>>,
    /// Gone with the store, but not before whoever waits for a label.
    filler: Weak<dyn Fill>,
}

struct State {
    groups: Vec<GroupState>,
    /// Consistency points, as far as blocks tell of them.
    points: lost::Points,
    /// Labels on their way.
    label_updates: usize,
    /// Waits until no label is.
    label_waiters: Vec<SyncDone>,
    /// Writes of superblocks that have not ended.
    superblocks_under_way: usize,
    /// What labels say of the scrub, or are to say next: see [`told::newest_scrub`].
    scrub: ScrubRecord,
    /// What they say of the copies of the log, or are to say next.
    log_copies: LogCopies,
    /// What every `sync` fails with, once it happened.
    failure: Option<StoreError>,
    /// Who is told of it.
    failure_hook: Option<FailureHook>,
    /// Disks that were replaced for being sick, since the start.
    retired: Vec<RetiredDisk>,
    /// Nothing new is begun.
    is_abandoned: bool,
}

impl Members {
    pub(crate) fn new(
        layout: Layout,
        groups: Vec<GroupState>,
        spares: Vec<Arc<Device>>,
        filler: Weak<dyn Fill>,
    ) -> Self {
        let scrub = told::newest_scrub(&layout, &groups);
        let log_copies = told::newest_log_copies(&layout, &groups);
        let state = State {
            groups,
            points: lost::Points::default(),
            label_updates: 0,
            label_waiters: Vec::new(),
            superblocks_under_way: 0,
            scrub,
            log_copies,
            failure: None,
            failure_hook: None,
            retired: Vec::new(),
            is_abandoned: false,
        };
        Self {
            layout: Mutex::new(Arc::new(layout)),
            state: Mutex::new(state),
            spares: Mutex::new(spares),
            log_disks: log_places::LogDisks::default(),
            waiting_for_log: Mutex::default(),
            leaving_spares: Mutex::default(),
            filler,
        }
    }

    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.lock())
    }

    pub(crate) fn geometry(&self) -> Arc<Geometry> {
        Arc::clone(&self.layout.lock().geometry)
    }

    pub(crate) fn group(&self, group: u32) -> Arc<Group> {
        Arc::clone(&self.layout.lock().groups[group as usize])
    }

    fn set_layout(&self, layout: Layout) {
        *self.layout.lock() = Arc::new(layout);
    }

    /// Lets go of everyone who waits, and of what is under way on the disks.
    pub(crate) fn abandon(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            state.is_abandoned = true;
            (state.failure_hook.take(), std::mem::take(&mut state.label_waiters))
        };
        drop(forgotten);
        let layout = self.layout();
        let members = layout.groups.iter().flat_map(|group| &group.members);
        members.filter_map(|member| member.device()).for_each(|device| device.abandon());
        self.devices().iter().for_each(|(_, _, device)| device.abandon());
        let spares = self.spares.lock().clone();
        spares.iter().for_each(|device| device.abandon());
    }
}
