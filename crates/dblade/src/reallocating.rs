//! Read reallocation in the background: what readers have found scattered is written anew, some
//! of it at each tick.
//!
//! A file that is read in order, and lies scattered, will be read so again. The read itself goes
//! on at once; the blocks are queued, are mostly in memory when their turn comes, and go with the
//! next consistency point ([`operations::data::reallocate`]).
//!
//! Invariants: see [`crate::scattered`]. Nothing is made dirty while half of the dirty memory is
//! used, or an image is pinned.
//!
//! Fails: where little is free, or reallocation was in vain a while ago, the queue is dropped: the
//! next reader finds the same. A file that cannot be read is left to its readers.

use crate::engine::Engine;
use crate::host::{Asker, Halt, Host};
use crate::served::{Fronted, ServedVolume, Standing, VolumeKind};
use affinity::{Access, Message, Outcome};
use aggregate::TieringPolicy;
use cowfs::overlay::stripe_of;
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use ondisk::pointer::DualPointer;
use operations::data::reallocate::{Scattered, reallocate};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

/// The part of an aggregate's disks, and of a volume, that must be free: in fuller disks there
/// are few runs of free blocks, and the last of a volume is for its clients.
const FREE_SHARE: u64 = 8;

/// A reader has found blocks scattered: they are reallocated if the volume's policy says so.
pub(crate) fn note(served: &ServedVolume, found: Scattered) {
    if is_wanted(served) {
        served.scattered.note(found);
    }
}

fn is_wanted(served: &ServedVolume) -> bool {
    // What may go to an object store is not put in order on disks.
    let stays = || served.tiering().policy == TieringPolicy::None;
    // A clone's blocks that are written anew are its own, and the parent's stay: they would be
    // shared no more.
    let is_clone = served.origin().is_some();
    served.may_reallocate()
        && matches!(served.kind, VolumeKind::Flexible(_))
        && !is_clone
        && stays()
}

/// Time has passed: volumes reallocate what readers have found.
pub(crate) fn tick(engine: &Arc<Engine>, now_nanoseconds: u64) {
    let volumes = engine.volumes();
    let mut busy: BTreeMap<AggregateUuid, u64> = BTreeMap::new();
    for served in volumes.iter().filter(|served| served.scattered.has_work()) {
        *busy.entry(served.aggregate.parts.identity.aggregate).or_default() += 1;
    }
    for served in volumes {
        let sharing = busy.get(&served.aggregate.parts.identity.aggregate);
        let piece = served.scattered.tick(now_nanoseconds, sharing.copied().unwrap_or(1));
        let VolumeKind::Flexible(volume) = &served.kind else { continue };
        if let Some(piece) = piece {
            let fronted: Arc<dyn Fronted<DualPointer>> = Arc::clone(volume) as _;
            let (asker, engine) = (Asker::Node, Arc::clone(engine));
            send(Host { asker, engine, served, fronted }, piece);
        }
    }
}

fn send(host: Host<DualPointer>, piece: Scattered) {
    let stripe = stripe_of(piece.inode, piece.blocks.start);
    let affinity = host.fronted.front().affinities.stripes[stripe];
    let scheduler = host.engine.scheduler.clone();
    let message = Reallocate { host, piece, stripe, held: HeldBlocks::default() };
    // If it comes back the volume is gone.
    let _gone = scheduler.try_send(affinity, Box::new(message));
}

/// The message that reallocates blocks of one stripe.
struct Reallocate {
    host: Host<DualPointer>,
    piece: Scattered,
    stripe: usize,
    held: HeldBlocks,
}

impl Message for Reallocate {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        let outcome = self.attempt(access);
        let Self { host, piece, held, .. } = self;
        let queue = &host.served.scattered;
        match outcome {
            Ok(Attempt::Done(blocks)) => {
                host.engine.watch_pressure(&host.served.aggregate);
                if let Some(next) = queue.go_on(blocks) {
                    send(host.clone(), next);
                }
            }
            Ok(Attempt::Load(wait)) => return host.served.aggregate.suspend(wait, held),
            Ok(Attempt::Later) | Err(Halt::Wait(_)) => queue.put_back(piece.clone()),
            Ok(Attempt::InVain) | Err(Halt::Error(_)) => queue.give_up(),
        }
        Outcome::Done
    }
}

/// What an attempt at a piece came to.
enum Attempt {
    /// So many blocks are going to be written.
    Done(u64),
    /// It needs blocks first.
    Load(Wait),
    /// It has to wait for a later tick.
    Later,
    /// Reallocation is not wanted, or would do no good: nor would that of what is queued.
    InVain,
}

impl Reallocate {
    fn attempt(&self, access: &mut Access<'_>) -> Result<Attempt, Halt> {
        let Self { host, piece, stripe, held } = self;
        let front = host.fronted.front();
        let (above, mut beneath) = access.split(front.affinities.stripes[*stripe]);
        let logical = front.logical.read_above(&above);
        host.check_change(logical)?;
        let aggregate = &host.served.aggregate;
        if !has_room(host) || !front.is_reallocation_worth_it(aggregate.filling()) {
            return Ok(Attempt::InVain);
        }
        let is_busy = aggregate.parts.shared.dirty.is_half_full();
        if is_busy || aggregate.is_pinned() || aggregate.is_stopping() {
            return Ok(Attempt::Later);
        }
        let stripe = logical.stripes[*stripe].write(&mut beneath);
        let reader = Reader { cache: front.cache(), held };
        let anyway = aggregate.parts.tuning.reallocates_all;
        // What was moved to an object store stays there.
        let geometry = aggregate.parts.store.geometry();
        let is_near =
            |pvbn| geometry.locate(pvbn).is_some_and(|at| !geometry.group(at.group).is_object());
        Ok(match reallocate(logical, stripe, &reader, (piece, anyway), is_near) {
            Ok(blocks) => Attempt::Done(blocks),
            Err(Stop::Wait(wait @ Wait::Load(_))) => Attempt::Load(wait),
            Err(Stop::Wait(_)) => Attempt::Later,
            Err(Stop::NoSpace) => Attempt::InVain,
            // It cannot be read: its readers are told.
            Err(_) => Attempt::Done(0),
        })
    }
}

/// Whether blocks of the volume are still to be reallocated, and there is room on disks.
fn has_room(host: &Host<DualPointer>) -> bool {
    let (served, aggregate) = (&host.served, &host.served.aggregate);
    let geometry = aggregate.parts.store.geometry();
    let near = geometry.groups().iter().filter(|group| !group.is_object());
    let near_blocks: u64 = near.map(|group| group.blocks()).sum();
    let used_blocks = aggregate.used_blocks().saturating_sub(aggregate.object_blocks());
    let free_of_volume = host.fronted.front().shared.budget.free_blocks();
    is_wanted(served)
        && served.standing() == Standing::Online
        && near_blocks > 0
        && near_blocks.saturating_sub(used_blocks) >= near_blocks / FREE_SHARE
        && free_of_volume >= served.size_blocks() / FREE_SHARE
}
