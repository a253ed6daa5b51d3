//! Counting what comes back when snapshots are deleted ([`cowfs::spans::SnapshotSpans`]), beside
//! clients and consistency points.
//!
//! The count runs as messages of the affinity that has the block side. Each looks at some maps and
//! sends the next, so that a consistency point waits for one of them only.
//!
//! Invariants: nothing is changed. What a message had loaded goes with it, so that a count holds
//! few blocks however large the volume is.
//!
//! Fails: [`AggregateError`], where a map cannot be read, the aggregate has failed, or the volume
//! is gone meanwhile.

use crate::flexible::FlexibleVolume;
use affinity::{Access, AffinityId, Outcome};
use aggregate::{Aggregate, AggregateError, Container, owned_among};
use cowfs::free_map::{VBNS_PER_BLOCK, set_bits_of};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::spans::{MapWords, SnapshotSpans, SpanCount};
use std::sync::Arc;
use units::{Fbn, VolumeId, Vvbn};

/// Blocks of maps that a message looks at.
const MAPS_PER_MESSAGE: usize = 256;

/// Is told the spans.
pub type SpansDone = Box<dyn FnOnce(Result<SnapshotSpans, AggregateError>) + Send>;

/// Whether a count may go on. It is asked in each message.
pub type MayGoOn = Box<dyn Fn() -> Result<(), AggregateError> + Send>;

/// Goes on with a count.
type Step = Box<
    dyn FnMut(&mut Access<'_>, &mut SpanCount, &Reader<'_>) -> Progress<Option<SnapshotSpans>>
        + Send,
>;

/// Counts what the snapshots of a flexible volume hold.
pub fn of_flexible(
    volume: &Arc<FlexibleVolume>,
    aggregate: &Arc<Aggregate>,
    may_go_on: MayGoOn,
    done: SpansDone,
) {
    let this = Arc::clone(volume);
    let step: Step = Box::new(move |access, count, reader| {
        let side = this.vbn.write(access);
        let container = side.container.as_deref();
        let own_numbers = |index: Fbn, numbers: &MapWords| {
            own_numbers((this.front.id, container), (index, numbers), reader)
        };
        count.go_on(&mut side.space, MAPS_PER_MESSAGE, &own_numbers, reader)
    });
    let affinity = volume.front.affinities.vbn;
    Counting::begin(aggregate, (affinity, step), (may_go_on, done));
}

/// Counts what the snapshots of an aggregate's own file system hold.
pub fn of_traditional(aggregate: &Arc<Aggregate>, may_go_on: MayGoOn, done: SpansDone) {
    let of = Arc::clone(aggregate);
    let step: Step = Box::new(move |access, count, reader| {
        let space = &mut of.block_side.write(access).space;
        count.go_on(space, MAPS_PER_MESSAGE, &|_, numbers| Ok((*numbers, 0)), reader)
    });
    let affinity = aggregate.parts.vbn_affinity;
    Counting::begin(aggregate, (affinity, step), (may_go_on, done));
}

/// Those of a map block's numbers at which a clone has blocks of its own. One that no commit has
/// yet has none.
fn own_numbers(
    (volume, container): (VolumeId, Option<&Container>),
    (index, numbers): (Fbn, &MapWords),
    reader: &Reader<'_>,
) -> Progress<(MapWords, usize)> {
    let (first, mut own) = (index.get() * VBNS_PER_BLOCK, numbers.map(|_| 0));
    let Some(container) = container else { return Ok((own, 0)) };
    let bits = numbers.iter().enumerate().flat_map(|(at, word)| {
        set_bits_of(*word).map(move |bit| Vvbn(first + at as u64 * 64 + u64::from(bit)))
    });
    let numbers: Vec<Vvbn> = bits.collect();
    let (owned, nodes) = owned_among(volume, container, &numbers, reader)?;
    for vvbn in owned {
        let bit = vvbn.get() - first;
        own[(bit / 64) as usize] |= 1 << (bit % 64);
    }
    Ok((own, nodes))
}

struct Counting {
    aggregate: Arc<Aggregate>,
    affinity: AffinityId,
    step: Step,
    count: SpanCount,
    may_go_on: MayGoOn,
    done: SpansDone,
}

impl Counting {
    fn begin(
        aggregate: &Arc<Aggregate>,
        (affinity, step): (AffinityId, Step),
        (may_go_on, done): (MayGoOn, SpansDone),
    ) {
        let (aggregate, count) = (Arc::clone(aggregate), SpanCount::default());
        Self { aggregate, affinity, step, count, may_go_on, done }.send();
    }

    /// Sends the next message.
    fn send(self) {
        let (scheduler, affinity) = (self.aggregate.parts.scheduler.clone(), self.affinity);
        let (mut this, held) = (Some(self), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| {
            let Some(mut counting) = this.take() else { return Outcome::Done };
            let aggregate = Arc::clone(&counting.aggregate);
            let failed = || Err(AggregateError::Stopping);
            let may_go_on = if aggregate.is_failed() { failed() } else { (counting.may_go_on)() };
            if let Err(error) = may_go_on {
                (counting.done)(Err(error));
                return Outcome::Done;
            }
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            match (counting.step)(access, &mut counting.count, &reader) {
                Ok(Some(spans)) => (counting.done)(Ok(spans)),
                Ok(None) => counting.send(),
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
