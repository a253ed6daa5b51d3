//! Volumes of an aggregate and their model ([`super::model`]), changed together and compared.
//!
//! Rules that [`Twin::check`] looks at, whatever a test is about:
//!
//! - The volumes are those of the model, and so are their files, and their files in each snapshot.
//! - The active map has exactly the numbers that the active image reaches; a snapshot's map those
//!   that its image reaches.
//! - The container has a block for exactly the numbers that some image reaches or whose free is
//!   delayed. No image reaches a delayed one. The counts say so, too.
//! - The aggregate's free map has exactly the blocks that its image reaches.
//! - No block that the image before had is another block's in the next image.

use super::model::{Files, Model, NaiveVolume, Witness};
use crate::lifecycle::{self, NewVolumes};
use crate::{Birth, FlexibleVolume, SnapshotRequest};
use affinity::{Access, Outcome};
use aggregate::test_support::{BlocksInUse, Rig, find_blocks};
use aggregate::{
    Acted, AggregateError, AutogrowMax, FreezeScope, Reallocation, SnapshotAutodelete,
    SnapshotSchedule, Tiering, Tuning,
};
use cowfs::budget::Spender;
use cowfs::buftree::{self, FileKey, Root};
use cowfs::content::Content;
use cowfs::free_map::{MapFile, is_set, runs_of};
use cowfs::image::snapshot_table_key;
use cowfs::logical::{inode_file_key, read_record};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop, all};
use cowfs::space::Space;
use cowfs::transaction::Transaction;
use ondisk::inode::KIND_REGULAR;
use ondisk::label::RaidKind;
use ondisk::pointer::DualPointer;
use ondisk::records::STATE_ONLINE;
use ondisk::root::{VOL_INFO_VVBN, metafile};
use platform::Entropy;
use platform::simulated::SimulatedWorld;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{
    BLOCK_SIZE_U64, BlockNumber, CpNumber, Fbn, InodeNumber, SnapshotUuid, Timestamp, VolumeId,
    Vvbn,
};

/// See the module.
pub struct Twin {
    rig: Option<Rig>,
    pub world: SimulatedWorld,
    pub model: Arc<Model>,
    pub volumes: BTreeMap<VolumeId, Arc<FlexibleVolume>>,
    tuning: Tuning,
    before: (CpNumber, BlocksInUse),
}

/// What a client asks for. A file that is not there is left alone.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Create,
    /// Writes so many blocks, each so many after the one before.
    Write {
        file: InodeNumber,
        first: u64,
        count: u64,
        step: u64,
    },
    /// Frees all blocks from this one on.
    Truncate {
        file: InodeNumber,
        from: u64,
    },
    Remove {
        file: InodeNumber,
    },
}

/// There was no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

impl Twin {
    pub fn new(seed: u64, groups: &[(RaidKind, usize)], tuning: Tuning) -> Self {
        println!("seed {seed}");
        let world = SimulatedWorld::new(seed);
        let rig = Rig::create(&world, groups, tuning);
        let model: Arc<Model> = Arc::default();
        rig.aggregate.add_member(Arc::new(Witness(Arc::clone(&model))));
        let (volumes, before) = (BTreeMap::new(), Default::default());
        Self { rig: Some(rig), world, model, volumes, tuning, before }
    }

    pub fn rig(&self) -> &Rig {
        self.rig.as_ref().expect("it is open")
    }

    pub fn choose(&self, end: u64) -> u64 {
        self.world.choose(end)
    }

    /// One of the volumes.
    pub fn some_volume(&self) -> Option<VolumeId> {
        let count = self.volumes.len() as u64;
        (count > 0).then(|| *self.volumes.keys().nth(self.choose(count) as usize).expect("there"))
    }

    /// One of a volume's files.
    pub fn some_file(&self, volume: VolumeId) -> Option<InodeNumber> {
        let files = self
            .model
            .change(|volumes| volumes[&volume].files.keys().copied().collect::<Vec<InodeNumber>>());
        (!files.is_empty()).then(|| files[self.choose(files.len() as u64) as usize])
    }

    /// An action of a freeze, to its commit.
    fn act<F>(&self, action: F) -> Result<(), AggregateError>
    where
        F: FnMut(&mut FreezeScope<'_, '_>) -> Result<Acted, AggregateError> + Send + 'static,
    {
        self.rig().wait(|done| self.rig().aggregate.request_action(Box::new(action), done))
    }

    /// Makes a volume. One that is refused has changed nothing, and nothing is promised for it.
    pub fn create(&mut self, name: &str, size_blocks: u64) -> Result<VolumeId, AggregateError> {
        let (name, model, world) = (name.to_owned(), Arc::clone(&self.model), self.world.clone());
        let made = Arc::new(platform::sync::Mutex::new(None));
        let noted = Arc::clone(&made);
        let outcome = self.act(move |scope| {
            let (tiering, reallocation) = (Tiering::default(), Reallocation::default());
            let autogrow_max = AutogrowMax::default();
            let names = std::slice::from_ref(&name);
            let new = NewVolumes {
                names,
                size_blocks,
                exports: &[],
                tiering,
                reallocation,
                autogrow_max,
                schedule: SnapshotSchedule::default(),
                autodelete: SnapshotAutodelete::default(),
                guarantee: aggregate::Guarantee::default(),
            };
            let shared = Arc::clone(&scope.aggregate.parts.shared);
            let known = |scope: &mut FreezeScope<'_, '_>| {
                let side = scope.block_side();
                let (table, next) = (side.table.len(), side.next_volume);
                (table, next, side.dirty_slots.len(), shared.budget.promised_blocks())
            };
            let before = known(scope);
            let outcome = lifecycle::create_flexible(scope, &new, &world, |_, _| ());
            let mut made = outcome.inspect_err(|_| assert_eq!(known(scope), before))?;
            let (_, volume) = made.pop().expect("one was asked for");
            let (name, id) = (name.clone(), volume.front.id);
            let naive = NaiveVolume { name, size_blocks, ..NaiveVolume::default() };
            model.change(|volumes| volumes.insert(id, naive));
            *noted.lock() = Some((id, volume));
            Ok(Acted::Done)
        });
        outcome?;
        let (id, volume) = made.lock().take().expect("it was made");
        self.volumes.insert(id, volume);
        Ok(id)
    }

    /// Gives a volume another size.
    pub fn resize(&self, id: VolumeId, size_blocks: u64) -> Result<(), AggregateError> {
        let (volume, model) = (Arc::clone(&self.volumes[&id]), Arc::clone(&self.model));
        self.act(move |scope| {
            let acted = lifecycle::resize(
                scope,
                &volume,
                size_blocks,
                &mut aggregate::Patience::default(),
            )?;
            model.change(|volumes| {
                volumes.get_mut(&id).expect("it is there").size_blocks = size_blocks;
            });
            Ok(acted)
        })
    }

    /// The least size that a volume may have now.
    pub fn least_size_blocks(&self, id: VolumeId) -> u64 {
        let volume = &self.volumes[&id];
        volume.least_size_blocks().min(volume.size_blocks())
    }

    /// Deletes a volume: its blocks are freed in the background.
    pub fn delete(&mut self, id: VolumeId) {
        let volume = self.volumes.remove(&id).expect("it is there");
        let model = Arc::clone(&self.model);
        let outcome = self.act(move |scope| {
            lifecycle::delete(scope, &volume);
            model.change(|volumes| volumes.remove(&id));
            Ok(Acted::Done)
        });
        outcome.expect("a volume can be deleted");
    }

    /// Makes or deletes a snapshot.
    pub fn request(&self, id: VolumeId, request: SnapshotRequest) -> Result<(), AggregateError> {
        let (volume, model) = (Arc::clone(&self.volumes[&id]), Arc::clone(&self.model));
        let birth =
            Birth { identity: SnapshotUuid(self.world.next_identity()), time: Timestamp(1) };
        self.act(move |scope| {
            let acted = volume.accept(scope.access, &request, birth)?;
            if matches!(acted, Acted::Done) {
                model.change(|volumes| {
                    let volume = volumes.get_mut(&id).expect("it is there");
                    match &request {
                        SnapshotRequest::Create(name) => {
                            volume.snapshots.insert(name.clone(), volume.files.clone());
                        }
                        SnapshotRequest::Delete(name) => drop(volume.snapshots.remove(name)),
                        SnapshotRequest::DeleteThrough(..)
                        | SnapshotRequest::Restore(_)
                        | SnapshotRequest::Hold(_)
                        | SnapshotRequest::Release(_) => unreachable!("no test asks for it"),
                    }
                });
            }
            Ok(acted)
        })
    }

    /// Does what a client asks for.
    pub fn change(&self, id: VolumeId, change: Change) -> Result<(), NoRoom> {
        let (volume, model) = (Arc::clone(&self.volumes[&id]), Arc::clone(&self.model));
        let aggregate = Arc::clone(&self.rig().aggregate);
        let affinity = volume.front.affinities.logical;
        let held = HeldBlocks::default();
        self.rig().wait(|done| {
            let mut done = Some(done);
            let message = move |access: &mut Access<'_>| {
                let reader = Reader { cache: &aggregate.parts.cache, held: &held };
                let logical = volume.front.logical.write(access);
                let transaction = Transaction::new(logical, reader, Timestamp(1));
                let mut files = model.change(|volumes| volumes[&id].files.clone());
                let outcome = match apply(transaction, change, &model, &mut files) {
                    Err(Stop::Wait(wait)) => return aggregate.suspend(wait, &held),
                    Err(Stop::NoSpace) => Err(NoRoom),
                    Err(stop) => panic!("{stop}"),
                    Ok(()) => {
                        let volume = |volumes: &mut super::model::Volumes| {
                            volumes.get_mut(&id).expect("it is there").files = files;
                        };
                        model.change(volume);
                        Ok(())
                    }
                };
                if let Some(done) = done.take() {
                    done(outcome);
                }
                Outcome::Done
            };
            self.rig().scheduler.send(affinity, Box::new(message));
        })
    }

    /// A consistency point, after which all that was to come of it has come.
    pub fn commit(&self) {
        self.rig().consistency_point();
        self.rig().settle();
    }

    /// The power goes after so many steps, in which a consistency point begins; then a start.
    pub fn cut_after(&mut self, steps: u64) {
        let rig = self.rig.take().expect("it is open");
        rig.aggregate.request_consistency_point(None);
        for _ in 0..steps {
            rig.step();
        }
        self.volumes.clear();
        rig.cut();
        let rig = Rig::open(&self.world, self.tuning);
        self.model.go_back_to(rig.aggregate.committed());
        rig.aggregate.add_member(Arc::new(Witness(Arc::clone(&self.model))));
        let aggregate = Arc::clone(&rig.aggregate);
        let opened = rig.on_side(move |side, reader| {
            let online = side.table.iter().filter(|slot| slot.record.state == STATE_ONLINE);
            for slot in online.clone() {
                lifecycle::read_ahead(&aggregate, side, slot, reader)?;
            }
            let open = |slot: &aggregate::VolumeSlot| {
                let volume = lifecycle::open_flexible(&aggregate, side, &slot.record, reader)?;
                Ok((volume.front.id, (slot.record.name().to_owned(), volume)))
            };
            online.map(open).collect::<Progress<BTreeMap<_, _>>>()
        });
        for (id, (name, volume)) in opened {
            let naive = self.model.change(|volumes| volumes[&id].name.clone());
            assert_eq!(name, naive);
            self.volumes.insert(id, volume);
        }
        self.rig = Some(rig);
    }

    /// Looks at a volume's block side in a message of its affinity.
    fn on_space<T: Send + 'static>(
        &self,
        id: VolumeId,
        mut look: impl FnMut(&mut Space<DualPointer>, &Reader<'_>) -> Progress<T> + Send + 'static,
    ) -> T {
        let (volume, held) = (Arc::clone(&self.volumes[&id]), HeldBlocks::default());
        let aggregate = Arc::clone(&self.rig().aggregate);
        let affinity = volume.front.affinities.vbn;
        self.rig().wait(|done| {
            let mut done = Some(done);
            let message = move |access: &mut Access<'_>| {
                let reader = Reader { cache: &aggregate.parts.cache, held: &held };
                match look(&mut volume.vbn.write(access).space, &reader) {
                    Err(Stop::Wait(wait)) => return aggregate.suspend(wait, &held),
                    Err(stop) => panic!("{stop}"),
                    Ok(found) => {
                        if let Some(done) = done.take() {
                            done(found);
                        }
                    }
                }
                Outcome::Done
            };
            self.rig().scheduler.send(affinity, Box::new(message));
        })
    }

    /// Looks at the image of the last commit, which has all changes of the model.
    pub fn check(&mut self) {
        self.rig().settle();
        assert!(!self.rig().aggregate.is_failed());
        let naive = self.model.volumes();
        assert!(naive.keys().eq(self.volumes.keys()), "these volumes are there");
        let found = self.rig().on_side(move |side, reader| {
            let found = find_blocks(side, reader)?;
            found.check_space(side, reader)?;
            Ok(found)
        });
        for (id, volume) in naive {
            assert_eq!(self.volumes[&id].size_blocks(), volume.size_blocks);
            let expected =
                self.on_space(id, move |space, reader| check_volume(space, &volume, reader));
            let of_volume = found.entries.keys().filter(|(of, _)| *of == id);
            let numbers: BTreeSet<Vvbn> = of_volume.map(|(_, vvbn)| *vvbn).collect();
            assert_eq!(numbers, expected, "the container's, and those in use");
        }
        let cp = self.rig().aggregate.committed();
        if self.before.0.next() == cp {
            let reused = found.reused_of(&self.before.1);
            assert!(reused.is_empty(), "{reused:?} were in the image before");
        }
        self.before = (cp, found);
    }
}

/// Makes a change in the volume and in `files`.
fn apply(
    mut transaction: Transaction<'_, DualPointer>,
    change: Change,
    model: &Model,
    files: &mut Files,
) -> Progress<()> {
    let is_there = |file: InodeNumber| files.contains_key(&file);
    let spender = match change {
        Change::Create => {
            let (inode, _) = transaction.create(KIND_REGULAR, 0o644, None)?;
            assert!(files.insert(inode, BTreeMap::new()).is_none(), "{inode} is in use");
            Spender::Common
        }
        Change::Write { file, first, count, step } if is_there(file) => {
            let content = files.get_mut(&file).expect("it is there");
            for fbn in (0..count).map(|at| first + at * step) {
                let block = model.content();
                transaction.put(file, Fbn(fbn), Arc::clone(&block))?;
                content.insert(fbn, block);
            }
            let end = content.keys().next_back().map_or(0, |last| last + 1);
            transaction.edit(file)?.size = end * BLOCK_SIZE_U64;
            Spender::Common
        }
        Change::Truncate { file, from } if is_there(file) => {
            transaction.punch(file, Fbn(from), Fbn(u64::MAX))?;
            let size = &mut transaction.edit(file)?.size;
            *size = (*size).min(from * BLOCK_SIZE_U64);
            files.get_mut(&file).expect("it is there").split_off(&from);
            Spender::Free
        }
        Change::Remove { file } if is_there(file) => {
            transaction.free(file)?;
            files.remove(&file);
            Spender::Free
        }
        _ => return Ok(()),
    };
    transaction.promise(spender)?.apply();
    Ok(())
}

/// The numbers that a volume's container must have blocks for, after a look at all its images.
fn check_volume(
    space: &mut Space<DualPointer>,
    naive: &NaiveVolume,
    reader: &Reader<'_>,
) -> Progress<BTreeSet<Vvbn>> {
    let id = space.volume;
    let active = reached(id, &space.inode_file.0, &space.snapshot_table.0, &naive.files, reader)?;
    check_map(&space.active_map, space.size_blocks, &active, reader)?;
    assert_eq!(space.active_blocks, active.len() as u64);
    let mut used = active;
    let size_blocks = space.size_blocks;
    let names: Vec<&String> = naive.snapshots.keys().collect();
    let mut found: Vec<&String> = space.snapshots.iter().map(|snapshot| &snapshot.name).collect();
    found.sort_unstable();
    assert_eq!(found, names, "deleted ones are gone");
    for snapshot in &mut space.snapshots {
        let table = snapshot.snapshot_table.expect("it is in an image").0;
        let files = &naive.snapshots[&snapshot.name];
        let its = reached(id, &snapshot.root(), &table, files, reader)?;
        check_map(snapshot.map(id, reader)?, size_blocks, &its, reader)?;
        used.extend(its);
    }
    assert_eq!(space.used_blocks, used.len() as u64);
    let mut delayed = BTreeSet::new();
    for (index, part) in runs_of(Vvbn(0)..Vvbn(size_blocks)) {
        let map = space.delayed_map.read(index, reader)?;
        delayed.extend(part.start.until(part.end).filter(|vvbn| is_set(&map, *vvbn)));
    }
    assert!(delayed.is_disjoint(&used), "an image has a number whose free is delayed");
    assert_eq!(space.delayed_blocks, delayed.len() as u64);
    used.extend(delayed);
    // Number 0 is a hole's.
    used.remove(&Vvbn(0));
    Ok(used)
}

/// The numbers that an image reaches, with those that are always in use; its files are `files`.
fn reached(
    volume: VolumeId,
    inode_file: &Root<DualPointer>,
    table: &Root<DualPointer>,
    files: &Files,
    reader: &Reader<'_>,
) -> Progress<BTreeSet<Vvbn>> {
    let mut found = BTreeSet::from([Vvbn(0), VOL_INFO_VVBN]);
    walk(inode_file, &inode_file_key(volume), &mut found, reader)?;
    walk(table, &snapshot_table_key(volume), &mut found, reader)?;
    let metafiles = (1..metafile::ROOT_DIRECTORY).map(InodeNumber);
    for inode in metafiles.chain(files.keys().copied()) {
        let record = read_record(inode_file, volume, inode, reader)?;
        let Some(record) = record.filter(|record| !record.is_free()) else {
            assert!(inode.get() < metafile::ROOT_DIRECTORY, "{inode} is not there");
            continue;
        };
        let root = Root::of(&record);
        let key = FileKey { volume, inode, content: Content::Data };
        let blocks = walk(&root, &key, &mut found, reader)?;
        let Some(expected) = files.get(&inode) else { continue };
        assert!(blocks.iter().eq(expected.keys()), "{inode} has other blocks");
        let read = |fbn: &u64| buftree::read(&root, &key, Fbn(*fbn), reader);
        let content = all(expected.keys().map(read))?;
        for ((fbn, expected), block) in expected.iter().zip(content) {
            assert!(block.as_ref() == Some(expected), "{inode} {fbn} is another's");
        }
    }
    Ok(found)
}

/// Adds the numbers of a file; the blocks that it has.
fn walk(
    root: &Root<DualPointer>,
    key: &FileKey,
    found: &mut BTreeSet<Vvbn>,
    reader: &Reader<'_>,
) -> Progress<Vec<u64>> {
    let (mut numbers, mut blocks, mut from) = (BTreeSet::new(), Vec::new(), Fbn(0));
    while let Some(fbn) = buftree::next_present(root, key, from, Fbn(u64::MAX), reader)? {
        buftree::numbers(root, key, fbn, reader, &mut numbers)?;
        blocks.push(fbn.get());
        from = Fbn(fbn.get() + 1);
    }
    for number in numbers {
        assert!(found.insert(number), "number {number} of {key:?} is another's too");
    }
    Ok(blocks)
}

fn check_map(
    map: &MapFile<DualPointer>,
    size_blocks: u64,
    expected: &BTreeSet<Vvbn>,
    reader: &Reader<'_>,
) -> Progress<()> {
    for (index, part) in runs_of(Vvbn(0)..Vvbn(size_blocks)) {
        let block = map.read(index, reader)?;
        for vvbn in part.start.until(part.end) {
            let is_reached = expected.contains(&vvbn);
            assert_eq!(is_set(&block, vvbn), is_reached, "{vvbn} is in use, and is reached");
        }
    }
    Ok(())
}
