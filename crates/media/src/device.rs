//! A disk with its label: checking, labelling, opening, changing the label.

use crate::error::MediaError;
use crate::layout::{
    DATA_START, DISK_BLOCKS_MIN, DeviceLayout, LABEL_BLOCK, RESERVED_END_BLOCKS, SUPERBLOCK_BLOCK,
    SUPERBLOCK_SLOTS,
};
use crate::profile::Profile;
use crate::signature::{Found, PROBED_BLOCKS, identify};
use ondisk::damage::Damage;
use ondisk::features::FeatureSet;
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::DiskLabel;
use platform::completion::gather;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, BlockRef, ByteSize, zero_block};

/// Receives the end of a call on a device.
pub type DeviceDone<T> = Box<dyn FnOnce(Result<T, MediaError>) + Send>;

/// A disk that carries our label.
pub struct Device {
    disk: Arc<dyn Disk>,
    layout: DeviceLayout,
    profile: Profile,
    label: Mutex<LabelState>,
    /// A copy that holds the label whole: the other is written first.
    whole_copy: LabelCopy,
}

/// A label, and who waits for it to be on the disk.
struct LabelState {
    label: DiskLabel,
    /// Whether the copy that was read is durable: a process that died just after writing it leaves
    /// it to be read, and the next power cut may take it.
    is_durable: bool,
    is_being_written: bool,
    /// The disk is nobody's any more: zeros are written instead, and nothing after them.
    is_erased: bool,
    /// Why a write of it failed. What a disk that hangs was told may land at any time: to write the
    /// other copy now could leave both torn.
    failure: Option<MediaError>,
    /// Those whose changes came while it was being written.
    waiting: Vec<DeviceDone<()>>,
}

/// One of the two places of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LabelCopy {
    First,
    Last,
}

impl LabelCopy {
    const fn other(self) -> Self {
        match self {
            Self::First => Self::Last,
            Self::Last => Self::First,
        }
    }

    fn block(self, disk: &dyn Disk) -> u64 {
        match self {
            Self::First => LABEL_BLOCK,
            Self::Last => disk.size_blocks() - RESERVED_END_BLOCKS,
        }
    }
}

impl Device {
    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// The disk's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.disk.name()
    }

    /// Where its data lies.
    #[must_use]
    pub const fn layout(&self) -> DeviceLayout {
        self.layout
    }

    /// What it is good at: by its label, or as the disk tells where the label is of a version that
    /// does not record it.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// Its label as it was last read or written.
    #[must_use]
    pub fn label(&self) -> DiskLabel {
        self.label.lock().label.clone()
    }

    /// What its label says of the format, as it would be written now.
    #[must_use]
    pub fn features(&self) -> FeatureSet {
        self.label.lock().label.features_in_use()
    }

    /// Changes the label, durably: one copy, then the other. Changes that come while it is written
    /// are written together after it; none is written after one that failed, until the disk is
    /// opened anew.
    pub fn update_label(
        self: &Arc<Self>,
        change: impl FnOnce(&mut DiskLabel),
        done: DeviceDone<()>,
    ) {
        let change = |state: &mut LabelState| {
            change(&mut state.label);
            // A label may say anything that its checksum proves.
            state.label.sequence = state.label.sequence.get().saturating_add(1).into();
        };
        self.change_label(change, done);
    }

    /// Erases the label, durably: from then on the disk is nobody's. Changes that come later count
    /// for nothing.
    pub fn erase_label(self: &Arc<Self>, done: DeviceDone<()>) {
        self.change_label(|state| state.is_erased = true, done);
    }

    /// Erases the label, and then all that [`check_unused`] looks at: the disk is free to be used.
    pub fn erase(self: &Arc<Self>, done: DeviceDone<()>) {
        let disk = Arc::clone(&self.disk);
        let erased = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => {
                let zeros = || vec![zero_block(); PROBED_BLOCKS];
                let last_start = disk.size_blocks() - PROBED_BLOCKS as u64;
                write_in_order(&disk, (0, zeros()), (last_start, zeros()), done);
            }
            Err(error) => done(Err(error)),
        };
        self.erase_label(Box::new(erased));
    }

    /// The same the other way about, with the label last: whoever is cut off finds by the label
    /// that there is something left to erase. What a power cut could tear of a label would be
    /// nobody's, so the last label has all it says in one sector.
    pub fn erase_label_last(self: &Arc<Self>, done: DeviceDone<()>) {
        let this = Arc::clone(self);
        let erased = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => this.erase_in_one_sector(done),
            Err(error) => done(Err(error)),
        };
        // All but the two copies of the label.
        let zeros = || vec![zero_block(); PROBED_BLOCKS - 1];
        let last_start = self.disk.size_blocks() - PROBED_BLOCKS as u64;
        let first = (LABEL_BLOCK + 1, zeros());
        write_in_order(&self.disk, first, (last_start, zeros()), Box::new(erased));
    }

    fn erase_in_one_sector(self: &Arc<Self>, done: DeviceDone<()>) {
        let this = Arc::clone(self);
        let shortened = move |outcome: Result<(), MediaError>| match outcome {
            Ok(()) => this.erase_label(done),
            Err(error) => done(Err(error)),
        };
        self.update_label(|label| *label = label.in_one_sector(), Box::new(shortened));
    }

    fn change_label(self: &Arc<Self>, change: impl FnOnce(&mut LabelState), done: DeviceDone<()>) {
        {
            let mut state = self.label.lock();
            if let Some(failure) = state.failure.clone() {
                drop(state);
                return done(Err(failure));
            }
            change(&mut state);
            if std::mem::replace(&mut state.is_being_written, true) {
                state.waiting.push(done);
                return;
            }
        }
        self.write_label(vec![done]);
    }

    /// Lets go of everyone who waits for the label, unanswered: their world is gone. They may hold
    /// what holds the device.
    pub fn abandon(&self) {
        let forgotten = std::mem::take(&mut self.label.lock().waiting);
        drop(forgotten);
    }

    fn write_label(self: &Arc<Self>, dones: Vec<DeviceDone<()>>) {
        if self.label.lock().is_durable {
            return self.write_copies(dones);
        }
        let this = Arc::clone(self);
        let flushed = move |result: Result<(), DiskError>| {
            this.label.lock().is_durable = result.is_ok();
            match result {
                Ok(()) => this.write_copies(dones),
                Err(error) => this.end_write(dones, &Err(error.into())),
            }
        };
        self.disk.flush(Box::new(flushed));
    }

    fn write_copies(self: &Arc<Self>, dones: Vec<DeviceDone<()>>) {
        let block = {
            let state = self.label.lock();
            let label = || Arc::new(state.label.to_block());
            vec![if state.is_erased { zero_block() } else { label() }]
        };
        let first = (self.whole_copy.other().block(&*self.disk), block.clone());
        let second = (self.whole_copy.block(&*self.disk), block);
        let this = Arc::clone(self);
        let finish = move |result: Result<(), MediaError>| this.end_write(dones, &result);
        write_in_order(&self.disk, first, second, Box::new(finish));
    }

    fn end_write(
        self: &Arc<Self>,
        mut dones: Vec<DeviceDone<()>>,
        result: &Result<(), MediaError>,
    ) {
        let mut next = Vec::new();
        {
            let mut state = self.label.lock();
            state.failure = result.clone().err();
            match result {
                Ok(()) => next = std::mem::take(&mut state.waiting),
                Err(_) => dones.append(&mut state.waiting),
            }
            state.is_being_written = !next.is_empty();
        }
        if !next.is_empty() {
            self.write_label(next);
        }
        dones.into_iter().for_each(|done| done(result.clone()));
    }

    /// Writes a superblock slot and makes it durable.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn write_superblock(&self, slot: usize, block: BlockRef, done: DeviceDone<()>) {
        assert!(slot < SUPERBLOCK_SLOTS, "superblock slot {slot}");
        let at = SUPERBLOCK_BLOCK + slot as u64;
        if mutation::broken(Rule::SuperblockNotFlushed) {
            let written = move |outcome: Result<(), DiskError>| done(outcome.map_err(Into::into));
            return self.disk.write(at, vec![block], Box::new(written));
        }
        write_and_flush(&self.disk, at, vec![block], done);
    }

    /// Reads a superblock slot.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn read_superblock(&self, slot: usize, done: DeviceDone<BlockRef>) {
        assert!(slot < SUPERBLOCK_SLOTS, "superblock slot {slot}");
        read_one(&self.disk, SUPERBLOCK_BLOCK + slot as u64, done);
    }
}

/// Refuses a disk that is too small, or on which there is anything, unless `force`.
pub fn check_unused(disk: &Arc<dyn Disk>, force: bool, done: DeviceDone<()>) {
    let size_blocks = disk.size_blocks();
    if size_blocks < DISK_BLOCKS_MIN {
        done(Err(MediaError::TooSmall {
            disk: disk.name().to_owned(),
            size: ByteSize(size_blocks * BLOCK_SIZE_U64),
            minimum: ByteSize(DISK_BLOCKS_MIN * BLOCK_SIZE_U64),
        }));
        return;
    }
    if force {
        done(Ok(()));
        return;
    }
    probe(
        disk,
        Box::new(move |found| {
            done(found.and_then(|(disk, found)| match found {
                Some(found) => Err(MediaError::Occupied { disk, found }),
                None => Ok(()),
            }));
        }),
    );
}

/// The disk's name and what is on it.
fn probe(disk: &Arc<dyn Disk>, done: DeviceDone<(String, Option<Found>)>) {
    let name = disk.name().to_owned();
    let last_start = disk.size_blocks() - PROBED_BLOCKS as u64;
    let ends = gather(2, move |ends: Vec<Result<Vec<BlockRef>, DiskError>>| {
        let ends: Result<Vec<_>, DiskError> = ends.into_iter().collect();
        let found = ends.map(|ends| match ends.as_slice() {
            [first, last] => identify(first, last, last_start),
            _ => unreachable!("two reads give two results"),
        });
        done(found.map(|found| (name, found)).map_err(MediaError::from));
    });
    for (end, start) in ends.into_iter().zip([0, last_start]) {
        disk.read(start, PROBED_BLOCKS, end);
    }
}

/// Labels a disk that was checked: clears the beginning of the log's place and the reserved area,
/// writes both labels, opens it.
///
/// # Panics
/// If the label is not valid, or says that there are more regions than the disk has room for.
pub fn initialize(disk: Arc<dyn Disk>, label: DiskLabel, done: DeviceDone<Device>) {
    assert_eq!(is_large_enough(&*disk, &label), Ok(()), "the label fits the disk");
    let log_blocks = layout_of(&label).log_blocks();
    if log_blocks.is_empty() {
        return write_labels(disk, label, done);
    }
    // Whoever looks for a log must not find the one of an aggregate that was here before.
    let same = Arc::clone(&disk);
    let cleared = move |result: Result<(), MediaError>| match result {
        Ok(()) => write_labels(same, label, done),
        Err(error) => done(Err(error)),
    };
    let zeros = vec![zero_block(); REGION_BLOCKS];
    write_and_flush(&disk, log_blocks.start, zeros, Box::new(cleared));
}

fn write_labels(disk: Arc<dyn Disk>, label: DiskLabel, done: DeviceDone<Device>) {
    let block = Arc::new(label.to_block());
    let mut reserved = vec![zero_block(); DATA_START as usize];
    reserved[LABEL_BLOCK as usize] = Arc::clone(&block);
    let first = (LabelCopy::First.block(&*disk), reserved);
    let second = (LabelCopy::Last.block(&*disk), vec![block]);
    let device = new_device(Arc::clone(&disk), label, LabelCopy::First);
    write_in_order(&disk, first, second, Box::new(move |result| done(result.map(|()| device))));
}

/// Opens a disk that has a label.
pub fn open(disk: Arc<dyn Disk>, done: DeviceDone<Device>) {
    let opened = Arc::clone(&disk);
    read_label_copies(
        &disk,
        Box::new(move |label| {
            done(label.and_then(|(label, whole_copy)| {
                is_large_enough(&*opened, &label)?;
                Ok(new_device(opened, label, whole_copy))
            }));
        }),
    );
}

fn new_device(disk: Arc<dyn Disk>, label: DiskLabel, whole_copy: LabelCopy) -> Device {
    let layout = layout_of(&label);
    let recorded = label.medium().and_then(Profile::of_medium);
    let profile = recorded.unwrap_or_else(|| Profile::of(&*disk));
    let label = LabelState {
        label,
        is_durable: false,
        is_being_written: false,
        is_erased: false,
        failure: None,
        waiting: Vec::new(),
    };
    Device { disk, layout, profile, label: Mutex::new(label), whole_copy }
}

fn layout_of(label: &DiskLabel) -> DeviceLayout {
    DeviceLayout { regions: label.data_regions.get(), log_regions: label.log_regions.get() }
}

fn is_large_enough(disk: &dyn Disk, label: &DiskLabel) -> Result<(), MediaError> {
    let labelled = layout_of(label).blocks();
    if labelled <= disk.size_blocks() {
        return Ok(());
    }
    Err(MediaError::Shrunk {
        disk: disk.name().to_owned(),
        size: ByteSize(disk.size_blocks() * BLOCK_SIZE_U64),
        labelled: ByteSize(labelled * BLOCK_SIZE_U64),
    })
}

/// Reads the better of the two labels.
pub fn read_label(disk: &Arc<dyn Disk>, done: DeviceDone<DiskLabel>) {
    read_label_copies(disk, Box::new(move |result| done(result.map(|(label, _)| label))));
}

fn read_label_copies(disk: &Arc<dyn Disk>, done: DeviceDone<(DiskLabel, LabelCopy)>) {
    let name = disk.name().to_owned();
    let size_blocks = disk.size_blocks();
    if size_blocks < DISK_BLOCKS_MIN {
        done(Err(MediaError::NoLabel { disk: name }));
        return;
    }
    let copies = gather(2, move |copies: Vec<Result<BlockRef, MediaError>>| {
        done(choose_label(name, copies));
    });
    for (done, copy) in copies.into_iter().zip([LabelCopy::First, LabelCopy::Last]) {
        read_one(disk, copy.block(&**disk), done);
    }
}

fn choose_label(
    disk: String,
    copies: Vec<Result<BlockRef, MediaError>>,
) -> Result<(DiskLabel, LabelCopy), MediaError> {
    let mut best: Option<(DiskLabel, LabelCopy)> = None;
    let mut damaged: Option<Damage> = None;
    let mut failed: Option<MediaError> = None;
    let read: Vec<BlockRef> = copies.iter().flatten().cloned().collect();
    for (result, copy) in copies.into_iter().zip([LabelCopy::First, LabelCopy::Last]) {
        let label = match result {
            Ok(block) if DiskLabel::is_claimed_by(&block) => DiskLabel::from_block(&block),
            Ok(_) => continue,
            Err(error) => {
                failed.get_or_insert(error);
                continue;
            }
        };
        match label {
            Ok(label) => {
                let best_sequence = best.as_ref().map(|(label, _)| label.sequence.get());
                if best_sequence.is_none_or(|best| best < label.sequence.get()) {
                    best = Some((label, copy));
                }
            }
            Err(damage) => {
                // What another build wrote is whole, and says more than a damaged copy.
                if damaged.is_none() || damage.is_of_another_build() {
                    damaged = Some(damage);
                }
            }
        }
    }
    // The newer build may have died between the two copies. This build must not write over one.
    let lacking = |label: &DiskLabel| read.iter().find_map(|block| label.lacking_for(block));
    let newer = best.as_ref().and_then(|(label, _)| lacking(label));
    if let Some(damage) = newer.filter(|_| !mutation::broken(Rule::NewerLabelPassedOver)) {
        return Err(MediaError::AnotherBuild { disk, damage });
    }
    match (best, damaged, failed) {
        (Some(best), _, _) => Ok(best),
        (None, Some(damage), _) if damage.is_of_another_build() => {
            Err(MediaError::AnotherBuild { disk, damage })
        }
        (None, Some(damage), _) => Err(MediaError::DamagedLabel { disk, damage }),
        (None, None, Some(error)) => Err(error),
        (None, None, None) => Err(MediaError::NoLabel { disk }),
    }
}

fn read_one(disk: &Arc<dyn Disk>, at: u64, done: DeviceDone<BlockRef>) {
    let name = disk.name().to_owned();
    disk.read(
        at,
        1,
        Box::new(move |blocks| {
            let block = blocks.and_then(|blocks| {
                let short = || DiskError::Io { disk: name, block: at, kind: "short".to_owned() };
                blocks.into_iter().next().ok_or_else(short)
            });
            done(block.map_err(MediaError::from));
        }),
    );
}

/// Writes one, makes it durable, writes the other.
fn write_in_order(
    disk: &Arc<dyn Disk>,
    first: (u64, Vec<BlockRef>),
    second: (u64, Vec<BlockRef>),
    done: DeviceDone<()>,
) {
    let again = Arc::clone(disk);
    write_and_flush(
        disk,
        first.0,
        first.1,
        Box::new(move |result| match result {
            Ok(()) => write_and_flush(&again, second.0, second.1, done),
            Err(error) => done(Err(error)),
        }),
    );
}

fn write_and_flush(disk: &Arc<dyn Disk>, at: u64, blocks: Vec<BlockRef>, done: DeviceDone<()>) {
    let flushed = Arc::clone(disk);
    disk.write(
        at,
        blocks,
        Box::new(move |result| match result {
            Ok(()) => flushed.flush(Box::new(move |result| done(result.map_err(Into::into)))),
            Err(error) => done(Err(error.into())),
        }),
    );
}
