//! Counting what comes back when snapshots are deleted ([`cowfs::spans::SnapshotSpans`]), beside
//! clients and consistency points ([`crate::beside`]).
//!
//! The count runs in the affinity that has the block side.
//!
//! Fails: [`aggregate::AggregateError`], where a map cannot be read, the aggregate has failed, or
//! the volume is gone meanwhile.

use crate::beside::{MayGoOn, Part, Work, WorkDone};
use crate::flexible::FlexibleVolume;
use affinity::{Access, AffinityId};
use aggregate::{Aggregate, Container, owned_among};
use cowfs::free_map::{VBNS_PER_BLOCK, set_bits_of};
use cowfs::reader::{Progress, Reader};
use cowfs::spans::{MapWords, SnapshotSpans, SpanCount};
use std::sync::Arc;
use units::{Fbn, VolumeId, Vvbn};

/// Blocks of maps that a message looks at.
const MAPS_PER_MESSAGE: usize = 256;

/// Is told the spans.
pub type SpansDone = WorkDone<SnapshotSpans>;

/// Counts what the snapshots of a flexible volume hold.
pub fn of_flexible(
    volume: &Arc<FlexibleVolume>,
    aggregate: &Arc<Aggregate>,
    may_go_on: MayGoOn,
    done: SpansDone,
) {
    let (this, mut count) = (Arc::clone(volume), SpanCount::default());
    let part: Part<SnapshotSpans> = Box::new(move |access: &mut Access<'_>, reader| {
        let side = this.vbn.write(access);
        let container = side.container.as_deref();
        let own_numbers = |index: Fbn, numbers: &MapWords| {
            own_numbers((this.front.id, container), (index, numbers), reader)
        };
        count.go_on(&mut side.space, MAPS_PER_MESSAGE, &own_numbers, reader).map(Ok)
    });
    begin(aggregate, (volume.front.affinities.vbn, part), (may_go_on, done));
}

/// Counts what the snapshots of an aggregate's own file system hold.
pub fn of_traditional(aggregate: &Arc<Aggregate>, may_go_on: MayGoOn, done: SpansDone) {
    let (of, mut count) = (Arc::clone(aggregate), SpanCount::default());
    let part: Part<SnapshotSpans> = Box::new(move |access: &mut Access<'_>, reader| {
        let space = &mut of.block_side.write(access).space;
        count.go_on(space, MAPS_PER_MESSAGE, &|_, numbers| Ok((*numbers, 0)), reader).map(Ok)
    });
    begin(aggregate, (aggregate.parts.vbn_affinity, part), (may_go_on, done));
}

fn begin(
    aggregate: &Arc<Aggregate>,
    (affinity, part): (AffinityId, Part<SnapshotSpans>),
    (may_go_on, done): (MayGoOn, SpansDone),
) {
    let failed = "what its snapshots hold cannot be counted";
    Work { aggregate: Arc::clone(aggregate), affinity, part, failed, may_go_on, done }.send();
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
