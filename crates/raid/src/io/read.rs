//! Reads blocks and proves them; what fails goes to reconstruction.

use crate::error::ReadFailure;
use crate::io::Io;
use crate::layout::{Geometry, Layout, Location, Missing};
use crate::proof::Proof;
use crate::request::{BlockRead, ReadDone, RunDone, RunProofs};
use crate::stripe::CHECKSUM_ROW;
use media::Device;
use ondisk::identity::REGION_DATA_BLOCKS;
use platform::DiskError;
use platform::completion::gather;
use platform::stage::{self, Stage};
use std::sync::Arc;
use units::{BlockNumber, BlockRef, Pvbn};

const fn is_of_disk(result: &Result<Vec<BlockRef>, DiskError>) -> bool {
    matches!(result, Err(error) if error.is_of_disk())
}

/// What is known when a read begins.
struct Start {
    missing: Missing,
    queued: Vec<Option<BlockRef>>,
    checksums: Option<BlockRef>,
    generation: u64,
}

impl Io {
    fn start_read(&self, geometry: &Geometry, first: Pvbn, count: usize, last: Location) -> Start {
        let (queued, checksums, generation) = {
            let state = self.state.lock();
            let queued = (0..count as u64).map(|at| {
                let pvbn = first.offset(at);
                state.tetrises.get(&geometry.tetris_of(pvbn)?)?.queued(pvbn)
            });
            let tetris = last.tetris();
            let checksums = state.cache.get(tetris, last.disk);
            (queued.collect(), checksums, state.cache.generation(tetris))
        };
        // After that: what was on its way a moment ago is not asked of a disk that was there then,
        // and has not got it.
        // A disk may be rebuilt in some of the regions.
        let before = (count as u64 - 1).div_ceil(REGION_DATA_BLOCKS as u64);
        let to = last.tetris().region;
        let missing = self.members.missing_in(last.group, to.saturating_sub(before)..=to);
        Start { missing, queued, checksums, generation }
    }

    /// Remembers a checksum block that was read, unless it may have been overwritten since.
    fn cache_checksums(&self, location: Location, generation: u64, block: &BlockRef) {
        let mut state = self.state.lock();
        if state.cache.generation(location.tetris()) == generation {
            state.cache.insert_from_reader(location.tetris(), location.disk, Arc::clone(block));
        }
    }

    pub(crate) fn read(self: &Arc<Self>, read: BlockRead, done: ReadDone) {
        // One look for all: every read comes by.
        let layout = self.members.layout();
        let Some(location) = layout.geometry.locate(read.pvbn) else {
            done(Err(ReadFailure::OutOfRange { pvbn: read.pvbn }));
            return;
        };
        let start = self.start_read(&layout.geometry, read.pvbn, 1, location);
        if let Some(block) = start.queued.into_iter().flatten().next() {
            done(Ok(block));
            return;
        }
        let group = &layout.groups[location.group as usize];
        let Some(device) = group.device(group.code().member(location.disk), start.missing) else {
            self.reconstruct(read, location, done);
            return;
        };
        let disk = Arc::clone(device.disk());
        let rows = if read.proof.needs_identity() && start.checksums.is_none() {
            vec![location.row(), CHECKSUM_ROW]
        } else {
            vec![location.row()]
        };
        let io = Arc::clone(self);
        let parts = gather(rows.len(), move |results: Vec<Result<Vec<BlockRef>, DiskError>>| {
            io.note_gone(location, &device, results.iter());
            let mut blocks =
                results.into_iter().map(|result| result.ok().and_then(|b| b.into_iter().next()));
            let block = blocks.next().flatten();
            let checksums = match blocks.next().flatten() {
                Some(loaded) => {
                    io.cache_checksums(location, start.generation, &loaded);
                    Some(loaded)
                }
                None => start.checksums,
            };
            let row = location.row();
            let holds = |block: &BlockRef| {
                let _stage = stage::enter(Stage::Prove);
                read.proof.holds(read.pvbn, row, block, checksums.as_ref())
            };
            match block {
                Some(block) if holds(&block) => {
                    done(Ok(block));
                }
                _ => io.reconstruct(read, location, done),
            }
        });
        for (row, part) in rows.into_iter().zip(parts) {
            disk.read(layout.geometry.device_block(location.tetris(), row), 1, part);
        }
    }

    /// Gives up a disk that says it is gone.
    fn note_gone<'a>(
        self: &Arc<Self>,
        location: Location,
        device: &Arc<Device>,
        mut results: impl Iterator<Item = &'a Result<Vec<BlockRef>, DiskError>>,
    ) {
        if let Some(Err(error)) = results.find(|result| is_of_disk(result)) {
            let member = self.members.group(location.group).code().member(location.disk);
            let place = (location.group, member);
            self.members.fail_reading(place, device, error.clone().into());
        }
    }

    pub(crate) fn read_run(self: &Arc<Self>, first: Pvbn, proofs: RunProofs, done: RunDone) {
        if proofs.iter().all(Option::is_none) {
            done(Ok(Vec::new()));
            return;
        }
        let out_of_range = ReadFailure::OutOfRange { pvbn: first };
        let last = first.checked_offset(proofs.len() as u64 - 1);
        let layout = self.members.layout();
        let geometry = &layout.geometry;
        let ends = geometry.locate(first).zip(last.and_then(|last| geometry.locate(last)));
        let Some((from, to)) =
            ends.filter(|(from, to)| from.group == to.group && from.disk == to.disk)
        else {
            done(Err(out_of_range));
            return;
        };
        let start = self.start_read(geometry, first, proofs.len(), to);
        let mut wanted = proofs.iter().zip(&start.queued).filter(|(proof, _)| proof.is_some());
        let is_any_missing = wanted.any(|(_, queued)| queued.is_none());
        let group = &layout.groups[from.group as usize];
        let device = group.device(group.code().member(from.disk), start.missing);
        let Some(device) = device.filter(|_| is_any_missing) else {
            self.read_singly(first, proofs, done);
            return;
        };
        let begin = geometry.device_block(from.tetris(), from.row());
        // The checksum blocks between come along; the last only if it is needed.
        let needs_last = start.checksums.is_none()
            && proofs.iter().rev().take(to.row() + 1).flatten().any(Proof::needs_identity);
        let end_row = if needs_last { CHECKSUM_ROW } else { to.row() };
        let end = geometry.device_block(to.tetris(), end_row);
        let disk = Arc::clone(device.disk());
        let io = Arc::clone(self);
        let run =
            Run { io, layout: Arc::clone(&layout), device, first, from, proofs, start, begin };
        let count = (end - begin + 1) as usize;
        disk.read(begin, count, Box::new(move |result| run.finish(result, done)));
    }

    /// Block by block: in a degraded group, or when the run as a whole cannot be read.
    fn read_singly(self: &Arc<Self>, first: Pvbn, proofs: RunProofs, done: RunDone) {
        let wanted = (0..).zip(proofs).filter_map(|(at, proof)| Some((at, proof?)));
        let wanted: Vec<(u64, Proof)> = wanted.collect();
        let dones = gather(wanted.len(), move |results: Vec<Result<BlockRef, ReadFailure>>| {
            done(results.into_iter().collect());
        });
        for ((at, proof), part) in wanted.into_iter().zip(dones) {
            self.read(BlockRead { pvbn: first.offset(at), proof }, part);
        }
    }
}

/// A run of blocks under way.
struct Run {
    io: Arc<Io>,
    /// As it was when the read began: the group may be removed meanwhile.
    layout: Arc<Layout>,
    device: Arc<Device>,
    first: Pvbn,
    from: Location,
    proofs: RunProofs,
    start: Start,
    /// The device block that the request began with.
    begin: u64,
}

impl Run {
    fn finish(self, result: Result<Vec<BlockRef>, DiskError>, done: RunDone) {
        let Self { io, layout, device, first, from, proofs, start, begin } = self;
        let loaded = match result {
            Ok(loaded) => loaded,
            Err(error) => {
                io.note_gone(from, &device, std::iter::once(&Err(error)));
                io.read_singly(first, proofs, done);
                return;
            }
        };
        let wanted = proofs.into_iter().zip(start.queued).enumerate();
        let wanted = wanted.filter_map(|(index, (proof, queued))| Some((index, proof?, queued)));
        let wanted: Vec<(usize, Proof, Option<BlockRef>)> = wanted.collect();
        let dones = gather(wanted.len(), move |results: Vec<Result<BlockRef, ReadFailure>>| {
            done(results.into_iter().collect());
        });
        for ((index, proof, queued), part) in wanted.into_iter().zip(dones) {
            let location = Location { stripe: from.stripe.offset(index as u64), ..from };
            let at = |row| {
                let block = layout.geometry.device_block(location.tetris(), row);
                loaded.get((block - begin) as usize)
            };
            let pvbn = first.offset(index as u64);
            if let Some(block) = queued {
                part(Ok(block));
                continue;
            }
            let checksums = at(CHECKSUM_ROW).or(start.checksums.as_ref());
            let holds = |block: &BlockRef| {
                let _stage = stage::enter(Stage::Prove);
                proof.holds(pvbn, location.row(), block, checksums)
            };
            match at(location.row()) {
                Some(block) if holds(block) => {
                    part(Ok(Arc::clone(block)));
                }
                _ => io.reconstruct(BlockRead { pvbn, proof }, location, part),
            }
        }
    }
}
