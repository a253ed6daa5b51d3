//! How far a disk has come that is filled with what its place must hold.

use crate::layout::DiskPlace;
use crate::walk::{Pace, Walk};
use media::Device;
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::DiskLabel;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, DiskUuid};

/// Tetrises that are rebuilt at a time.
const TETRISES_AT_A_TIME: usize = 4;

/// What a region takes on the disk; one of which nothing had to be written counts the same.
const REGION_BYTES: u64 = REGION_BLOCKS as u64 * BLOCK_SIZE_U64;

/// A rebuild by place and disk: another disk may have the place by now.
#[derive(Clone)]
pub(crate) struct Task {
    pub place: DiskPlace,
    pub device: Arc<Device>,
}

/// How a disk comes to hold what its place must.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// All of it is written.
    Anew,
    /// What may have changed since it went is written.
    Resync,
    /// All of it is written beside the disk that has the place.
    Copy,
}

/// As what a disk takes the place of one that is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It had the place before.
    Returns,
    /// It is another disk.
    Replaces,
}

/// How far a disk has come.
pub(crate) struct Rebuild {
    pub way: Way,
    device: Arc<Device>,
    identity: DiskUuid,
    /// Of a spare: its label once it has the place.
    label_of_place: Option<Box<DiskLabel>>,
    /// A superblock was written to it since the start, so that it can stand for its place.
    pub has_superblock: bool,
    /// Of a disk that is filled beside another: which of the group's copies since the start.
    pub copy: Option<u64>,
    /// Whether a start would know that it has the place; what it holds counts only then.
    pub is_told: bool,
    /// A region could not be filled, and is not tried again before the next start.
    pub is_stuck: bool,
    /// An operator has it wait.
    is_held: bool,
    /// A region would have been begun but for that, or but for its rate.
    has_waited: bool,
    walk: Walk,
}

impl Rebuild {
    /// Of a disk, from where its label says that it stopped.
    pub(crate) fn new(device: Arc<Device>, way: Way) -> Self {
        let label = device.label();
        let (below, regions) = (label.rebuilt_regions.get(), label.data_regions.get());
        Self {
            way,
            device,
            identity: label.disk,
            label_of_place: None,
            has_superblock: false,
            copy: None,
            is_told: true,
            is_stuck: false,
            is_held: false,
            has_waited: false,
            walk: Walk::new(below, regions, TETRISES_AT_A_TIME),
        }
    }

    /// The same at a rate.
    pub(crate) fn at_rate(mut self, rate: Option<u64>) -> Self {
        self.walk.set_rate(rate);
        self
    }

    /// Of a spare that is filled beside the disk that has the place.
    pub(crate) fn copy(device: Arc<Device>, label_of_place: DiskLabel) -> Self {
        let label_of_place = Some(Box::new(label_of_place));
        Self { label_of_place, copy: Some(0), ..Self::new(device, Way::Copy) }
    }

    pub(crate) fn device(&self) -> Arc<Device> {
        Arc::clone(&self.device)
    }

    pub(crate) fn is_of(&self, device: &Arc<Device>) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub(crate) const fn identity(&self) -> DiskUuid {
        self.identity
    }

    pub(crate) fn label_of_place(&self) -> Option<&DiskLabel> {
        self.label_of_place.as_deref()
    }

    pub(crate) fn has(&self, region: u64) -> bool {
        self.walk.has(region)
    }

    pub(crate) const fn has_durably(&self, region: u64) -> bool {
        self.is_told && self.walk.has_durably(region)
    }

    pub(crate) fn regions(&self) -> u64 {
        self.walk.done()
    }

    /// Regions that it has to hold.
    pub(crate) const fn end(&self) -> u64 {
        self.walk.end()
    }

    /// How fast the disk is filled.
    pub(crate) fn pace(&self) -> Pace {
        self.walk.pace(REGION_BYTES)
    }

    pub(crate) const fn is_held(&self) -> bool {
        self.is_held
    }

    /// Has it wait, or lets it go; whether somebody has to begin regions now, who was refused one
    /// before.
    pub(crate) const fn hold(&mut self, is_held: bool) -> bool {
        self.is_held = is_held;
        self.goes_on()
    }

    /// How many bytes of the disk may be filled a second; `None` if there is no limit.
    pub(crate) const fn rate(&self) -> Option<u64> {
        self.walk.rate()
    }

    /// Sets the rate; whether somebody has to begin regions now, as for [`Self::hold`].
    pub(crate) fn set_rate(&mut self, rate: Option<u64>) -> bool {
        self.walk.set_rate(rate);
        self.goes_on()
    }

    /// Whether regions may begin now, of which one was refused before. Of one that the labels do
    /// not name yet none was: nobody has asked.
    const fn goes_on(&mut self) -> bool {
        let may_begin = !self.is_held && self.walk.has_allowance();
        may_begin && std::mem::replace(&mut self.has_waited, false)
    }

    /// The next region to fill, if one may begin now.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        if self.is_held || !self.walk.has_allowance() {
            self.has_waited = true;
            return None;
        }
        let region = self.walk.begin()?;
        self.walk.spend(REGION_BYTES);
        Some(region)
    }

    /// A region that was begun is done.
    pub(crate) fn finish(&mut self, region: u64) {
        self.walk.finish(region, REGION_BYTES);
    }

    /// The position that its label is to say, if that is worth it.
    pub(crate) fn label_due(&mut self) -> Option<u64> {
        let is_over = self.walk.is_over();
        if self.has_superblock { self.walk.label_due(is_over) } else { None }
    }

    /// Its label says a position; whether that is the end.
    pub(crate) fn labelled(&mut self, below: u64) -> bool {
        self.walk.labelled(below);
        below == self.walk.end()
    }

    /// Time has passed; whether somebody has to begin regions now, as for [`Self::hold`].
    pub(crate) fn tick(&mut self, now: u64) -> bool {
        self.walk.tick(now);
        self.goes_on()
    }
}
