//! The commit: the image whose superblock is durable becomes the one that is in memory, while
//! nothing else of the aggregate runs.
//!
//! Invariants: all that a commit does is in [`Commit::STEPS`]. Nothing in them waits or fails.

use super::steps::{self, Step};
use crate::administration::{evacuation, pinning};
use crate::background::{counting, forgetting, reclaiming};
use crate::block_side::deletion::Deletion;
use crate::block_side::room::settle_budget;
use crate::block_side::side::BlockSide;
use crate::relocating;
use crate::relocation::tiers::Tiers;
use crate::service::action::CpDone;
use crate::service::aggregate::Aggregate;
use crate::service::guarantees;
use crate::service::member::Published;
use crate::service::state::Phase;
use affinity::Access;
use cowfs::image::GivenUp;
use cowfs::logical::CleanedInode;
use ondisk::pointer::PhysicalPointer;
use platform::stage::{self, Stage};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{CpNumber, Pvbn};

/// A commit under way.
pub struct Commit<'a, 'run> {
    aggregate: &'a Arc<Aggregate>,
    access: &'a mut Access<'run>,
    facts: Facts,
}

/// What a commit is about.
struct Facts {
    cp: CpNumber,
    /// The aggregate's files that were written.
    cleaned: Vec<CleanedInode<PhysicalPointer>>,
    given_up: Vec<GivenUp>,
    /// What may be given again from now on, in order.
    freed: Vec<Pvbn>,
    /// Work is left that wants another consistency point.
    wants_another: bool,
    /// Who waited for this consistency point.
    running: Vec<CpDone>,
}

impl Commit<'_, '_> {
    /// What a commit does, in this order.
    pub const STEPS: [Step<Self>; 19] = [
        Step {
            name: "Containers and volume table get their new roots",
            reason: "First: all that follows asks where blocks are",
            run: |commit| commit.on_side(|_, facts, side| side.publish(&facts.cleaned)),
        },
        Step {
            name: "Freed blocks become free, and a pin begins or ends",
            reason: "Before anything that is told what was freed; what a pin keeps is not",
            run: |commit| {
                commit
                    .on_side(|aggregate, facts, side| facts.freed = pinning::freed(aggregate, side))
            },
        },
        Step {
            name: "Released numbers are dropped",
            reason: "No space is below this one that would want them, and the next consistency point \
                     begins with none",
            run: |commit| commit.on_side(|_, _, side| drop(side.space.drain_released())),
        },
        Step {
            name: "The allocator may choose areas again",
            reason: "After the frees: what was full may have room; before whoever looks for areas",
            run: |commit| commit.on_side(|_, _, side| side.refill.note_commit()),
        },
        Step {
            name: "Chosen areas are counted for the statistics",
            reason: "The choices of this consistency point only",
            run: |commit| {
                commit.on_side(|aggregate, _, side| {
                    aggregate.statistics.group_picks.add(side.refill.take_picks());
                })
            },
        },
        Step {
            name: "Counting of areas goes on",
            reason: "It has stood still while the maps changed",
            run: |commit| commit.on_side(|aggregate, _, side| counting::go_on(aggregate, side)),
        },
        Step {
            name: "Loads under way learn what was freed",
            reason: "Before any freed number is given again: a load that fails there has lost nothing",
            run: |commit| {
                commit.aggregate.loads.note_freed(&commit.facts.freed);
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "Regions of freed blocks are offered back to the disks",
            reason: "After the loads: what is read now is not discarded",
            run: |commit| {
                commit.on_side(|aggregate, facts, side| {
                    reclaiming::go_on(aggregate, side, &facts.freed)
                })
            },
        },
        Step {
            name: "Moved blocks are moved, and the next are looked for",
            reason: "After the new roots, which have them, and after the allocator, which knows the room",
            run: |commit| {
                commit.on_side(|aggregate, facts, side| {
                    relocating::committed(aggregate, side, &facts.freed);
                })
            },
        },
        Step {
            name: "Tiers are published",
            reason: "After the moves, which change the counts",
            run: |commit| {
                commit.on_side(|aggregate, _, side| {
                    *aggregate.tiers.write() = Tiers::of(&side.relocation, &side.table);
                })
            },
        },
        Step {
            name: "Freed blocks leave the cache",
            reason: "After the moves, whose new places the cache learns; before any refill that could give \
                     the numbers again",
            run: |commit| {
                forgetting::send(commit.aggregate, std::mem::take(&mut commit.facts.freed));
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "How far a leaving group is becomes known",
            reason: "After the frees; before the budget, which leaves its room out",
            run: |commit| commit.on_side(|aggregate, _, side| evacuation::note(aggregate, side)),
        },
        Step {
            name: "The disks of an empty leaving group are taken out",
            reason: "After the moves: nothing is in use there, and nothing is on its way there",
            run: |commit| commit.on_side(|aggregate, _, side| evacuation::end(aggregate, side)),
        },
        Step {
            name: "The budget follows the free map, and guarantees follow the budget",
            reason: "After all that changes what is free or nobody's; before members promise for what they \
                     go on with",
            run: |commit| {
                commit.on_side(|aggregate, _, side| {
                    let parts = &aggregate.parts;
                    settle_budget(&parts.shared, side, &parts.store.geometry());
                    guarantees::commit(aggregate, side);
                })
            },
        },
        Step {
            name: "Used blocks and deletions are published for status",
            reason: "With the budget, which says the same",
            run: |commit| {
                commit.on_side(|aggregate, _, side| {
                    let statistics = &aggregate.statistics;
                    statistics.used_blocks.store(side.space.used_blocks, Ordering::Relaxed);
                    statistics.active_blocks.store(side.space.active_blocks, Ordering::Relaxed);
                    *aggregate.deletions.write() = Deletion::all_of(side);
                })
            },
        },
        Step {
            name: "Each member takes its new trees over",
            reason: "After the aggregate's own, through which they are read; before the log, so that \
                     whoever waits for it knows what the image lacks",
            run: Self::publish_members,
        },
        Step {
            name: "The log's half is retired",
            reason: "After the members; before the commit is told to anyone: what replay would apply is in \
                     the image",
            run: |commit| {
                commit.aggregate.parts.log.retire(commit.facts.cp);
                commit.aggregate.set_filling(commit.aggregate.parts.log.active_cp());
                ControlFlow::Continue(())
            },
        },
        Step {
            name: "The state is idle, and the next freeze is asked for if work is left",
            reason: "After the log: a freeze finds a half to switch to",
            run: Self::note_idle,
        },
        Step {
            name: "Who waits is answered, and the next consistency point begins if one is due",
            reason: "Last: whoever is answered finds all of the above",
            run: Self::answer,
        },
    ];
}

/// Has the image in memory be the one that was written.
pub(crate) fn commit(aggregate: &Arc<Aggregate>, access: &mut Access<'_>, cp: CpNumber) {
    let _stage = stage::enter(Stage::Freeze);
    if aggregate.is_failed() {
        return;
    }
    let Some(mut cleaning) = aggregate.block_side.write(access).cleaning.take() else {
        unreachable!("a commit follows a cleaning")
    };
    let facts = Facts {
        cp,
        cleaned: cleaning.cleaner.take_cleaned(),
        given_up: cleaning.cleaner.take_given_up(),
        freed: Vec::new(),
        wants_another: false,
        running: Vec::new(),
    };
    steps::run(&Commit::STEPS, &mut Commit { aggregate, access, facts });
}

impl Commit<'_, '_> {
    /// A step on the aggregate's own file system.
    fn on_side(
        &mut self,
        step: impl FnOnce(&Arc<Aggregate>, &mut Facts, &mut BlockSide),
    ) -> ControlFlow<()> {
        let Self { aggregate, access, facts } = self;
        step(aggregate, facts, aggregate.block_side.write(access));
        ControlFlow::Continue(())
    }

    fn publish_members(&mut self) -> ControlFlow<()> {
        let Self { aggregate, access, facts } = self;
        let side = aggregate.block_side.read(access);
        let mut again = side.is_dirty() || side.space.has_snapshot_work();
        let inode_file = side.space.inode_file.0;
        for member in aggregate.members() {
            let (cleaned, given_up) = (&facts.cleaned[..], &facts.given_up[..]);
            again |= member.publish(access, &Published { cleaned, inode_file, given_up });
        }
        facts.wants_another = again;
        ControlFlow::Continue(())
    }

    fn note_idle(&mut self) -> ControlFlow<()> {
        let Self { aggregate, facts, .. } = self;
        if facts.wants_another {
            // Whatever goes on in the background frees blocks.
            aggregate.parts.shared.budget.note_frees();
        }
        let mut state = aggregate.state.lock();
        if !state.advance(Phase::Idle, &*aggregate.parts.clock) {
            // Who waited was told.
            return ControlFlow::Break(());
        }
        state.committed = facts.cp;
        state.requested |= facts.wants_another || !state.actions.is_empty();
        let now = aggregate.parts.clock.monotonic_nanoseconds();
        let duration = now.saturating_sub(state.started_nanoseconds);
        state.durations.note_whole(duration);
        if !state.room.is_empty() {
            aggregate.statistics.back_to_back.fetch_add(1, Ordering::Relaxed);
        }
        aggregate.statistics.last_cp_nanoseconds.store(duration, Ordering::Relaxed);
        facts.running = std::mem::take(&mut state.running);
        ControlFlow::Continue(())
    }

    fn answer(&mut self) -> ControlFlow<()> {
        let Self { aggregate, facts, .. } = self;
        aggregate.statistics.consistency_points.fetch_add(1, Ordering::Relaxed);
        aggregate.wake_for_room();
        // Another one would write stripes behind a superblock that says clean. A crash in it leaves
        // them half written, and their notes in a log that nobody looks for after a clean stop.
        let is_last = aggregate.parts.log.is_closed();
        if is_last {
            aggregate.halt();
        }
        facts.running.drain(..).for_each(|done| done(Ok(())));
        if !is_last {
            aggregate.start_consistency_point();
        }
        ControlFlow::Continue(())
    }
}
