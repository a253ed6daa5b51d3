//! The loads of all figures: fill, age, measure.
//!
//! Invariants: files of a rig are equally large, one in each volume; the same loads ask the same of
//! any variant; a span ends with a consistency point, so that it has in it all that it caused.

use crate::flight::Flight;
use crate::freespace::rig::Rig;
use crate::freespace::span::Span;
use crate::memory::COMMON_BYTE;
use crate::node::BenchError;
use crate::numbers::Numbers;
use bytes::Bytes;
use file_service::{Caller, FileHandle, FileService, FsError, Stability, WriteResult, calls};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Operations in flight.
const DEPTH: usize = 64;
/// A random overwrite (FreeSpace section 4.1).
const SMALL_BYTES: u64 = 8 << 10;
/// A sequential write, if the engine's memory is large enough for that.
const LARGE_BYTES_MAX: u64 = 1 << 20;
/// Block numbers of all volumes, in hundredths of the aggregate's: volumes are thin, and at 55 % in
/// the aggregate 61 % of theirs are free (FreeSpace section 4.1.2).
const VOLUME_PERCENT: u64 = 141;

/// A rig with files.
pub(super) struct Loads {
    pub rig: Rig,
    files: Vec<FileHandle>,
    file_bytes: u64,
    /// A sequential write.
    large_bytes: u64,
    numbers: Numbers,
}

/// A write: to which file, and where.
pub(super) type Place = (FileHandle, u64);

impl Loads {
    /// Empty files, each in a volume of its own.
    pub fn new(rig: Rig, volumes: usize) -> Result<Self, BenchError> {
        let all = rig.aggregate().size_blocks() * VOLUME_PERCENT / 100;
        let file = |number| rig.new_file(&format!("volume{number}"), all / volumes as u64);
        let files = (0..volumes).map(file).collect::<Result<_, _>>()?;
        let large_bytes = u64::from(rig.service.limits().transfer_bytes_max).min(LARGE_BYTES_MAX);
        Ok(Self { rig, files, file_bytes: 0, large_bytes, numbers: Numbers::new(11) })
    }

    /// Files that fill so many hundredths of the aggregate, overwritten so many times.
    pub fn aged(rig: Rig, volumes: usize, percent: u64, times: u64) -> Result<Self, BenchError> {
        let mut loads = Self::new(rig, volumes)?;
        loads.fill(percent)?;
        loads.overwrite(times * loads.bytes() / SMALL_BYTES)?;
        Ok(loads)
    }

    /// What all files hold.
    pub fn bytes(&self) -> u64 {
        self.file_bytes * self.files.len() as u64
    }

    /// Bytes of so many hundredths of the aggregate.
    pub fn share(&self, percent: u64) -> u64 {
        self.rig.aggregate().size_blocks() * BLOCK_SIZE_U64 / 100 * percent
    }

    /// Writes files until so many hundredths of the aggregate are in use, metadata included.
    pub fn fill(&mut self, percent: u64) -> Result<(), BenchError> {
        loop {
            self.rig.commit()?;
            let used = self.rig.aggregate().used_blocks() * BLOCK_SIZE_U64;
            let missing = self.share(percent).saturating_sub(used);
            if missing < self.large_bytes * self.files.len() as u64 {
                return Ok(());
            }
            self.extend(missing)?;
        }
    }

    /// Writes at the files' ends, `bytes` of all in whole sequential writes; how many.
    fn extend(&mut self, bytes: u64) -> Result<u64, BenchError> {
        let (large, writes) =
            (self.large_bytes, bytes / self.large_bytes / self.files.len() as u64);
        let offsets = (0..writes).map(|number| self.file_bytes + number * large);
        let places = offsets.flat_map(|offset| self.files.iter().map(move |file| (*file, offset)));
        write(&self.rig, places, large)?;
        self.file_bytes += writes * large;
        Ok(writes * self.files.len() as u64)
    }

    /// Overwrites at random. All calls draw from one sequence: a sequence for each, called by a
    /// number of another, would be that other one's rest, and overwrite the same places.
    fn overwrite(&mut self, count: u64) -> Result<(), BenchError> {
        let Self { rig, files, file_bytes, numbers, .. } = self;
        let of_file = *file_bytes / SMALL_BYTES;
        let places = (0..count).map(|_| {
            let number = numbers.next(of_file * files.len() as u64);
            (files[(number / of_file) as usize], number % of_file * SMALL_BYTES)
        });
        write(rig, places, SMALL_BYTES)
    }

    /// Measures overwrites of so many bytes.
    pub fn measure_overwrites(&mut self, bytes: u64) -> Result<Span, BenchError> {
        let count = (bytes / SMALL_BYTES).max(1);
        self.rig.commit()?;
        let start = self.rig.begin();
        self.overwrite(count)?;
        self.rig.commit()?;
        Ok(self.rig.end(&start, count, count * SMALL_BYTES))
    }

    /// Measures so many consistency points, each of so many overwrites.
    pub fn measure_points(&mut self, points: u64, operations: u64) -> Result<Span, BenchError> {
        self.rig.commit()?;
        let start = self.rig.begin();
        for _ in 0..points {
            self.overwrite(operations)?;
            self.rig.commit()?;
        }
        let count = points * operations;
        Ok(self.rig.end(&start, count, count * SMALL_BYTES))
    }

    /// Measures sequential writes of so many bytes behind what there is.
    pub fn measure_extension(&mut self, bytes: u64) -> Result<Span, BenchError> {
        self.rig.commit()?;
        let start = self.rig.begin();
        let count = self.extend(bytes)?;
        self.rig.commit()?;
        Ok(self.rig.end(&start, count, count * self.large_bytes))
    }
}

/// Writes so many bytes in each place.
pub(super) fn write(
    rig: &Rig,
    places: impl Iterator<Item = Place>,
    io_bytes: u64,
) -> Result<(), BenchError> {
    let (flight, caller) = (Arc::new(Flight::default()), Caller::root());
    let data = Bytes::from(vec![COMMON_BYTE; io_bytes as usize]);
    for (file, offset) in places {
        flight.enter(DEPTH);
        let same = Arc::clone(&flight);
        let done = Box::new(move |outcome: Result<WriteResult, FsError>| {
            let is_short =
                outcome.as_ref().is_ok_and(|written| u64::from(written.count) < io_bytes);
            same.leave(if is_short { Err(FsError::Io) } else { outcome }, 0);
        });
        let stability = Stability::Unstable;
        rig.service.write(
            &caller,
            calls::Write { file, offset, data: data.clone(), stability },
            done,
        );
    }
    let drained = flight.drain().map(|_| ());
    drained.map_err(|error| BenchError::Operation { load: "write", error })
}
