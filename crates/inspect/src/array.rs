//! The disks as the labels join them: an own reading of labels, so that nothing is written, not
//! even a repair.
//!
//! Invariants: nothing here writes. Of a group's labels the one with the highest sequence says who
//! is a member and who has missed writes; what a disk that missed writes holds is not looked at,
//! nor one of a group that was removed.
//!
//! Fails: [`InspectError`] when the disks are not one aggregate's or too few.

use crate::error::InspectError;
use crate::pump::Pump;
use media::MediaError;
use ondisk::label::DiskLabel;
use ondisk::medium::Medium;
use platform::completion::gather;
use platform::{Disk, DiskError};
use raid::{Geometry, GroupGeometry, GroupList};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{AggregateUuid, BlockRef, Pvbn};

/// Requests under way at once.
const REQUESTS_MAX: usize = 128;

/// Blocks of one disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Stretch {
    pub group: u32,
    pub disk: usize,
    /// The first block of the device.
    pub block: u64,
    pub count: usize,
}

/// What was read of a stretch: a block each, `None` where it cannot be read.
pub(crate) type StretchBlocks = Vec<Option<BlockRef>>;

/// A disk and its label.
type Labelled = (Arc<dyn Disk>, DiskLabel);

/// The disks of a group, in order; none where one is missing or missed writes.
type Members = Vec<Option<Arc<dyn Disk>>>;

/// See the module.
pub(crate) struct Array {
    pub geometry: Geometry,
    /// Labels say what each group is made of; early ones do not.
    pub knows_media: bool,
    groups: Vec<Members>,
    pub aggregate: AggregateUuid,
}

impl Array {
    pub fn open(disks: Vec<Arc<dyn Disk>>, pump: &mut Pump<'_>) -> Result<Self, InspectError> {
        let again = disks.clone();
        let read = move |done| {
            let parts = gather(again.len(), done);
            again.iter().zip(parts).for_each(|(disk, part)| media::read_label(disk, part));
        };
        let labels: Vec<Result<DiskLabel, MediaError>> =
            pump.wait(read).ok_or(InspectError::Stalled)?;
        let mut found: Vec<Labelled> = Vec::new();
        for (disk, label) in disks.into_iter().zip(labels) {
            match label {
                // It holds nothing that counts.
                Ok(label) if label.is_spare() => {}
                Ok(label) => found.push((disk, label)),
                // As good as not there.
                Err(MediaError::Disk(_) | MediaError::DamagedLabel { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Self::join(&found)
    }

    fn join(found: &[Labelled]) -> Result<Self, InspectError> {
        let Some((first_disk, first)) = found.first() else { return Err(InspectError::NoDisks) };
        let Some(list) = GroupList::of(found.iter().map(|pair| &pair.1)) else {
            return Err(InspectError::NoDisks);
        };
        let mut by_group: BTreeMap<u32, Vec<&Labelled>> = BTreeMap::new();
        for pair in found {
            if pair.1.aggregate != first.aggregate {
                let (disk, other) = (pair.0.name().to_owned(), first_disk.name().to_owned());
                return Err(InspectError::Stranger { disk, other });
            }
            by_group.entry(pair.1.group_index.get()).or_default().push(pair);
        }
        let (mut places, mut groups) = (Vec::new(), Vec::new());
        for index in 0..list.count() {
            let disks = by_group.remove(&index).unwrap_or_default();
            let (place, members) = match list.is_removed(index) {
                true => (GroupGeometry::removed(), Members::new()),
                false => join_group(index, list.latest(index), &disks)?,
            };
            places.push(place);
            groups.push(members);
        }
        let geometry = Geometry::with_gaps(places, list.removed_blocks());
        let geometry = geometry.ok_or(InspectError::Ranges)?;
        let knows_media = found.iter().all(|pair| pair.1.medium().is_some());
        Ok(Self { geometry, groups, aggregate: first.aggregate, knows_media })
    }

    /// Whether a disk can be read.
    pub fn is_present(&self, group: u32, disk: usize) -> bool {
        self.disk(group, disk).is_some()
    }

    /// Whether all disks of a group can.
    pub fn is_whole(&self, group: u32) -> bool {
        self.groups.get(group as usize).is_some_and(|members| members.iter().all(Option::is_some))
    }

    /// How many disks that have a place cannot be read.
    pub fn missing_disks(&self) -> usize {
        self.groups.iter().flatten().filter(|member| member.is_none()).count()
    }

    fn disk(&self, group: u32, disk: usize) -> Option<&Arc<dyn Disk>> {
        self.groups.get(group as usize)?.get(disk)?.as_ref()
    }

    /// All disks that can be read.
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        self.groups.iter().flatten().flatten().cloned().collect()
    }

    /// Reads stretches; what cannot be read as a whole is read block by block.
    pub fn read(
        &self,
        stretches: &[Stretch],
        pump: &mut Pump<'_>,
    ) -> Result<Vec<StretchBlocks>, InspectError> {
        let mut read = Vec::with_capacity(stretches.len());
        for some in stretches.chunks(REQUESTS_MAX) {
            let answers = self.read_once(some, pump)?;
            for (stretch, answer) in some.iter().zip(answers) {
                match answer {
                    Some(blocks) => read.push(blocks.into_iter().map(Some).collect()),
                    None if stretch.count == 1 => read.push(vec![None]),
                    None => read.push(self.read_singly(stretch, pump)?),
                }
            }
        }
        Ok(read)
    }

    fn read_singly(
        &self,
        stretch: &Stretch,
        pump: &mut Pump<'_>,
    ) -> Result<StretchBlocks, InspectError> {
        let mut blocks = Vec::with_capacity(stretch.count);
        for block in (stretch.block..).take(stretch.count) {
            let one = Stretch { block, count: 1, ..*stretch };
            let answer = self.read_once(&[one], pump)?.into_iter().next().flatten();
            blocks.push(answer.and_then(|blocks| blocks.into_iter().next()));
        }
        Ok(blocks)
    }

    fn read_once(
        &self,
        stretches: &[Stretch],
        pump: &mut Pump<'_>,
    ) -> Result<Vec<Option<Vec<BlockRef>>>, InspectError> {
        type Answer = Result<Vec<BlockRef>, DiskError>;
        let requests: Vec<(Option<Arc<dyn Disk>>, Stretch)> = stretches
            .iter()
            .map(|stretch| (self.disk(stretch.group, stretch.disk).cloned(), *stretch))
            .collect();
        let answers = pump.wait(move |done| {
            let parts = gather(requests.len(), move |answers: Vec<Option<Answer>>| done(answers));
            for ((disk, stretch), part) in requests.into_iter().zip(parts) {
                match disk {
                    Some(disk) => {
                        disk.read(stretch.block, stretch.count, Box::new(move |r| part(Some(r))));
                    }
                    None => part(None),
                }
            }
        });
        let answers = answers.ok_or(InspectError::Stalled)?;
        let whole = |(answer, stretch): (Option<Answer>, &Stretch)| {
            answer?.ok().filter(|blocks| blocks.len() == stretch.count)
        };
        Ok(answers.into_iter().zip(stretches).map(whole).collect())
    }
}

fn join_group(
    index: u32,
    latest: Option<&DiskLabel>,
    disks: &[&Labelled],
) -> Result<(GroupGeometry, Members), InspectError> {
    let too_few = |missing, count, tolerated| InspectError::TooFewDisks {
        group: index,
        missing,
        count,
        tolerated,
    };
    let Some(latest) = latest else { return Err(too_few(1, 1, 0)) };
    let Some(kind) = latest.kind() else {
        unreachable!("labels were validated when they were read")
    };
    let count = usize::from(latest.disks_in_group.get());
    let mut members: Members = vec![None; count];
    for (disk, label) in disks.iter().copied() {
        let at = usize::from(label.disk_index.get());
        let agrees = latest.members.get(at) == Some(&label.disk)
            && label.data_regions == latest.data_regions
            && label.log_regions == latest.log_regions
            && label.raid_kind == latest.raid_kind;
        match members.get_mut(at) {
            Some(slot) if agrees && slot.is_none() && !latest.is_missing(at) => {
                *slot = Some(Arc::clone(disk));
            }
            // It missed writes, or another has its place.
            _ => {}
        }
    }
    let missing = members.iter().filter(|member| member.is_none()).count();
    if missing > kind.parity_disks() {
        return Err(too_few(missing, count, kind.parity_disks()));
    }
    let bases = latest.data_bases().map(Pvbn).collect();
    let medium = latest.medium().unwrap_or(Medium::Unrecorded);
    let (regions, log_regions) = (latest.data_regions.get(), latest.log_regions.get());
    let geometry = GroupGeometry { kind, regions, log_regions, bases, medium };
    Ok((geometry, members))
}
