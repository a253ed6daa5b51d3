//! Counting what comes back when snapshots are deleted ([`cowfs::space::SnapshotSpans`]), beside
//! clients and consistency points.
//!
//! The count runs as messages of the affinity that has the block side. Each looks at some maps and
//! sends the next, so that a consistency point waits for one of them only.
//!
//! Invariants: nothing is changed. A message holds a bounded number of blocks.
//!
//! Fails: [`AggregateError`], where a map cannot be read or the aggregate has failed.

use crate::flexible::FlexibleVolume;
use affinity::{Access, AffinityId, Outcome};
use aggregate::{Aggregate, AggregateError, Container, container_lookup};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::space::{SnapshotSpans, SpanCount};
use std::sync::Arc;
use units::{VolumeId, Vvbn};

/// Blocks of maps that a message looks at.
const MAPS_PER_MESSAGE: usize = 256;
/// Blocks that a count keeps between its messages at most, of those that were loaded for it.
const HELD_BLOCKS_MAX: usize = 1024;

/// Is told the spans.
pub type SpansDone = Box<dyn FnOnce(Result<SnapshotSpans, AggregateError>) + Send>;

/// Goes on with a count.
type Step = Box<
    dyn FnMut(&mut Access<'_>, &mut SpanCount, &Reader<'_>) -> Progress<Option<SnapshotSpans>>
        + Send,
>;

/// Counts what the snapshots of a flexible volume hold.
pub fn of_flexible(volume: &Arc<FlexibleVolume>, aggregate: &Arc<Aggregate>, done: SpansDone) {
    let this = Arc::clone(volume);
    let step: Step = Box::new(move |access, count, reader| {
        let side = this.vbn.write(access);
        let container = side.container.as_deref();
        let is_own = |vvbn| is_own(this.front.id, container, vvbn, reader);
        side.space.count_spans(count, MAPS_PER_MESSAGE, &is_own, reader)
    });
    Counting::begin(aggregate, (volume.front.affinities.vbn, step), done);
}

/// Counts what the snapshots of an aggregate's own file system hold.
pub fn of_traditional(aggregate: &Arc<Aggregate>, done: SpansDone) {
    let of = Arc::clone(aggregate);
    let step: Step = Box::new(move |access, count, reader| {
        let space = &mut of.block_side.write(access).space;
        space.count_spans(count, MAPS_PER_MESSAGE, &|_| Ok(true), reader)
    });
    Counting::begin(aggregate, (aggregate.parts.vbn_affinity, step), done);
}

/// Whether a clone has a block of its own at a number; one that no commit has yet has none.
fn is_own(
    volume: VolumeId,
    container: Option<&Container>,
    vvbn: Vvbn,
    reader: &Reader<'_>,
) -> Progress<bool> {
    let Some(container) = container else { return Ok(false) };
    Ok(!container_lookup(volume, container, vvbn, reader)?.is_hole())
}

struct Counting {
    aggregate: Arc<Aggregate>,
    affinity: AffinityId,
    step: Step,
    count: SpanCount,
    done: SpansDone,
}

impl Counting {
    fn begin(aggregate: &Arc<Aggregate>, (affinity, step): (AffinityId, Step), done: SpansDone) {
        let (aggregate, count) = (Arc::clone(aggregate), SpanCount::default());
        Self { aggregate, affinity, step, count, done }.send(HeldBlocks::default());
    }

    /// Sends the next message.
    fn send(self, held: HeldBlocks) {
        let (scheduler, affinity) = (self.aggregate.parts.scheduler.clone(), self.affinity);
        let mut this = Some(self);
        let message = move |access: &mut Access<'_>| {
            let Some(mut counting) = this.take() else { return Outcome::Done };
            let aggregate = Arc::clone(&counting.aggregate);
            if aggregate.is_failed() {
                (counting.done)(Err(AggregateError::Stopping));
                return Outcome::Done;
            }
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            match (counting.step)(access, &mut counting.count, &reader) {
                Ok(Some(spans)) => (counting.done)(Ok(spans)),
                Ok(None) => {
                    held.trim(HELD_BLOCKS_MAX);
                    counting.send(held.clone());
                }
                Err(Stop::Wait(wait)) => {
                    this = Some(counting);
                    return aggregate.suspend(wait, &held);
                }
                Err(stop) => {
                    let text = format!("what its snapshots hold cannot be counted: {stop}");
                    (counting.done)(Err(AggregateError::Refused(text)));
                }
            }
            Outcome::Done
        };
        scheduler.send(affinity, Box::new(message));
    }
}
