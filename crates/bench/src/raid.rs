//! The RAID layer on file-backed disks: parity beside memory, the share of full stripes under load,
//! their rate and a rebuild's beside the bare disk, and what a read costs when disks are lost.

use crate::latency::Latencies;
use crate::machine::Machine;
use crate::node::{BenchError, wait};
use crate::numbers::Numbers;
use crate::raw::RawFile;
use crate::summary::{Beside, Report, Role, Row, Series, Unit};
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::label::RaidKind;
use platform::disk::DiskOpener;
use platform::linux::{IoEngineKind, SystemClock, SystemEntropy, create_file_disk};
use platform::sync::{Condvar, Mutex};
use platform::{Clock, Disk};
use raid::{
    BlockRead, BlockStore, BlockWrite, ChecksumMemory, CreateRequest, DiskAdministration,
    DiskPlace, GroupRequest, NoPartialParityLog, Proof, Store, TetrisId,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use units::{
    BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, ByteSize, CpNumber, Fbn, InodeNumber, Pvbn,
    Timestamp, VolumeId, Vvbn, zero_block,
};

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct RaidBench {
    /// A directory for disks, which are removed.
    pub directory: PathBuf,
    /// The size of each disk.
    pub disk: ByteSize,
    /// Rounds of each load.
    pub rounds: usize,
}

const KINDS: [RaidKind; 3] = [RaidKind::Raid4, RaidKind::Dp, RaidKind::Tp];
const DATA_DISKS: usize = 6;
/// Rows that parity is computed for in a round; they do not fit the processor's caches.
const PARITY_ROWS: usize = 2048;
/// Reads of a round.
const READS: u64 = 4_000;
/// Blocks of a region, and of a write to the bare disk.
const REGION_BLOCKS: usize = 64;
const DATA_ROWS: u64 = 63;
/// How often a rebuild is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Runs the bench; `progress` is told the name of each load.
///
/// # Errors
/// [`BenchError`].
pub fn raid(bench: &RaidBench, progress: &mut dyn FnMut(&str)) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mut rows = Vec::new();
    progress("parity");
    rows.extend(parity(bench));
    progress("full stripes under load");
    rows.extend(crate::stripes::stripes(bench)?);
    for kind in KINDS {
        progress(&format!("{kind}: full stripes, reads, rebuild"));
        rows.extend(of_kind(bench, kind)?);
    }
    Ok(Report { machine, rows, notes: Vec::new(), spans: Vec::new() })
}

fn row(load: String, unit: Unit, series: Series, beside: Option<Beside>) -> Row {
    Row { load, unit, ours: series, beside: beside.into_iter().collect() }
}

fn seconds_since(begin: u64) -> f64 {
    (SystemClock.monotonic_nanoseconds() - begin) as f64 / 1e9
}

fn content(number: u64) -> BlockRef {
    let mut numbers = Numbers::new(number);
    let words: Vec<u8> =
        (0..BLOCK_SIZE / 8).flat_map(|_| numbers.next(u64::MAX).to_le_bytes()).collect();
    Block::shared(&words)
}

/// Parity of rows in memory, beside copying their data.
fn parity(bench: &RaidBench) -> Vec<Row> {
    let blocks: Vec<BlockRef> =
        (0..PARITY_ROWS * DATA_DISKS).map(|at| content(at as u64)).collect();
    let bytes = (blocks.len() * BLOCK_SIZE) as f64;
    let mut copies = vec![0_u8; blocks.len() * BLOCK_SIZE];
    let mut rounds = vec![Vec::new(); KINDS.len() + 1];
    for _ in 0..bench.rounds {
        let begin = SystemClock.monotonic_nanoseconds();
        for (into, block) in copies.chunks_exact_mut(BLOCK_SIZE).zip(&blocks) {
            into.copy_from_slice(block.bytes());
        }
        std::hint::black_box(&mut copies);
        rounds[KINDS.len()].push(bytes / seconds_since(begin));
        for (kind, rounds) in KINDS.iter().zip(&mut rounds) {
            let begin = SystemClock.monotonic_nanoseconds();
            for row in blocks.chunks_exact(DATA_DISKS) {
                std::hint::black_box(raid::parity_of_row(*kind, row));
            }
            rounds.push(bytes / seconds_since(begin));
        }
    }
    let Some(copied) = rounds.pop() else { unreachable!("one of each kind and the copies") };
    let copied =
        Beside { name: "memcpy".to_owned(), role: Role::Limit, series: Series::of(copied) };
    let name = |kind| format!("parity {kind} {DATA_DISKS}+{}", RaidKind::parity_disks(kind));
    let rows = KINDS.into_iter().zip(rounds);
    rows.map(|(kind, rounds)| {
        row(name(kind), Unit::Bytes, Series::of(rounds), Some(copied.clone()))
    })
    .collect()
}

/// A store on disks in the directory.
struct Rig<'a> {
    bench: &'a RaidBench,
    opener: Arc<platform::linux::DiskOpener>,
    store: Store,
    checksums: Vec<u32>,
    disks_made: usize,
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        for disk in 0..self.disks_made {
            let _ =
                std::fs::remove_file(self.bench.directory.join(format!("bench-raid{disk}.img")));
        }
    }
}

fn of_kind(bench: &RaidBench, kind: RaidKind) -> Result<Vec<Row>, BenchError> {
    let mut rig = Rig::new(bench, kind)?;
    let (mut stripes, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        bare.push(bare_disk(bench)?);
        stripes.push(rig.fill()?);
    }
    let bare =
        |role| Beside { name: "bare disk".to_owned(), role, series: Series::of(bare.clone()) };
    let load = |what: &str| format!("{what} {kind} {DATA_DISKS}+{}", kind.parity_disks());
    let mut rows = vec![row(
        load("full stripes"),
        Unit::Bytes,
        Series::of(stripes),
        Some(bare(Role::Orientation)),
    )];
    let healthy = rig.reads(DATA_DISKS)?;
    for lost in 0..kind.parity_disks() {
        // The first data disks, which are read.
        rig.fail(kind.parity_disks() + lost)?;
        let beside =
            Beside { name: "no disk lost".to_owned(), role: Role::Limit, series: healthy.clone() };
        let name = load(&format!("read 4K, {} lost,", lost + 1));
        rows.push(row(name, Unit::Operations, rig.reads(lost + 1)?, Some(beside)));
    }
    let mut rebuilds = Vec::new();
    for _ in 0..bench.rounds {
        rebuilds.push(rig.rebuild()?);
    }
    rows.push(row(load("rebuild"), Unit::Bytes, Series::of(rebuilds), Some(bare(Role::Limit))));
    Ok(rows)
}

/// As much as a disk holds, written to one file in requests of a region, and flushed: bytes a
/// second.
fn bare_disk(bench: &RaidBench) -> Result<f64, BenchError> {
    let mut file = RawFile::create(&bench.directory)?;
    let bytes = vec![7; REGION_BLOCKS * BLOCK_SIZE];
    let count = bench.disk.0 / bytes.len() as u64;
    let begin = SystemClock.monotonic_nanoseconds();
    for _ in 1..count {
        file.write(&bytes)?;
    }
    file.append(&bytes)?;
    Ok(bench.disk.0 as f64 / seconds_since(begin))
}

impl<'a> Rig<'a> {
    fn new(bench: &'a RaidBench, kind: RaidKind) -> Result<Self, BenchError> {
        let system = |what| move |error| BenchError::System { what, error };
        std::fs::create_dir_all(&bench.directory).map_err(system("cannot make the directory"))?;
        let opener = platform::linux::DiskOpener::new(IoEngineKind::Automatic);
        let opener = Arc::new(opener.map_err(system("cannot start disk I/O"))?);
        let count = DATA_DISKS + kind.parity_disks();
        let disks: Result<Vec<_>, _> = (0..count).map(|at| make_disk(bench, &opener, at)).collect();
        let request = CreateRequest {
            name: "bench".to_owned(),
            groups: vec![GroupRequest { kind, disks: disks? }],
            created: Timestamp(0),
            force: true,
            media: None,
            log_regions: 0,
        };
        let made =
            wait(|done| raid::create(request, &SystemEntropy, Arc::new(NoPartialParityLog), done));
        let store = made.map_err(failed("make the group"))?;
        store.share_checksum_memory(&Arc::new(ChecksumMemory::new(usize::MAX)));
        Ok(Self { bench, opener, store, checksums: Vec::new(), disks_made: count })
    }

    fn per_disk(&self) -> u64 {
        self.store.geometry().group(0).blocks_per_disk()
    }

    /// Writes all stripes: bytes of data a second.
    fn fill(&mut self) -> Result<f64, BenchError> {
        let per_disk = self.per_disk();
        let blocks: Vec<BlockRef> = (0..997).map(content).collect();
        let checksums: Vec<u32> = blocks.iter().map(|block| crc32c(block)).collect();
        let places = per_disk * DATA_DISKS as u64;
        let which = |pvbn: u64| (pvbn % blocks.len() as u64) as usize;
        self.checksums = (0..places).map(|pvbn| checksums[which(pvbn)]).collect();
        let begin = SystemClock.monotonic_nanoseconds();
        for region in 0..per_disk / DATA_ROWS {
            let tetris = TetrisId { group: 0, region };
            // PVBN 0 is never a block.
            let is_first = u32::from(region == 0);
            let expected = DATA_DISKS as u32 * DATA_ROWS as u32 - is_first;
            self.store.open_tetris(tetris, expected);
            for disk in 0..DATA_DISKS as u64 {
                let first = disk * per_disk + region * DATA_ROWS;
                for pvbn in (first..first + DATA_ROWS).filter(|pvbn| *pvbn > 0) {
                    let (block, checksum) = (&blocks[which(pvbn)], checksums[which(pvbn)]);
                    let (pvbn, block, owner) = (Pvbn(pvbn), Arc::clone(block), owner(pvbn));
                    self.store.write(BlockWrite { pvbn, block, owner, checksum });
                }
            }
        }
        wait(|done| self.store.sync(done)).map_err(failed("write stripes"))?;
        Ok(places as f64 * BLOCK_SIZE_U64 as f64 / seconds_since(begin))
    }

    /// Single blocks of the first disks, one after the other.
    fn reads(&self, disks: usize) -> Result<Series, BenchError> {
        let mut numbers = Numbers::new(7);
        let mut latencies = Latencies::default();
        let mut rounds = Vec::new();
        for _ in 0..self.bench.rounds {
            let begin = SystemClock.monotonic_nanoseconds();
            for _ in 0..READS {
                let disk = numbers.next(disks as u64);
                let pvbn = disk * self.per_disk() + 1 + numbers.next(self.per_disk() - 1);
                let checksum = self.checksums[pvbn as usize];
                let proof = Proof::Content(Box::new(move |block| crc32c(block) == checksum));
                let read = BlockRead { pvbn: Pvbn(pvbn), proof };
                let begin = SystemClock.monotonic_nanoseconds();
                wait(|done| self.store.read(read, done)).map_err(failed("read"))?;
                latencies.record(SystemClock.monotonic_nanoseconds() - begin);
            }
            rounds.push(READS as f64 / seconds_since(begin));
        }
        Ok(Series { rounds, latencies, ..Series::default() })
    }

    fn fail(&self, member: usize) -> Result<(), BenchError> {
        let place = DiskPlace { group: 0, member };
        wait(|done| self.store.fail_disk(place, done)).map_err(failed("fail a disk"))
    }

    /// Replaces the first disk, until it is whole: bytes of it a second. Then it fails again.
    fn rebuild(&mut self) -> Result<f64, BenchError> {
        let disk = make_disk(self.bench, &self.opener, self.disks_made)?;
        self.disks_made += 1;
        let member = self.store.geometry().group(0).member(0);
        let place = DiskPlace { group: 0, member };
        let identity = units::DiskUuid([self.disks_made as u8; 16]);
        let begin = SystemClock.monotonic_nanoseconds();
        wait(|done| self.store.replace_disk(place, disk, identity, None, done))
            .map_err(failed("replace a disk"))?;
        // As a consistency point does: a disk is not whole without.
        wait(|done| self.store.write_superblock(0, zero_block(), done))
            .map_err(failed("write a superblock"))?;
        let (never, lock) = (Condvar::new(), Mutex::new(()));
        while self.store.status().groups[0].members[member].state != raid::MemberState::Online {
            // Nothing tells the end; it takes seconds.
            let _ = never.wait_for(&mut lock.lock(), LOOK_AGAIN);
        }
        let seconds = seconds_since(begin);
        self.fail(member)?;
        let regions = self.store.geometry().group(0).regions;
        Ok((regions * REGION_BLOCKS as u64 * BLOCK_SIZE_U64) as f64 / seconds)
    }
}

fn make_disk(
    bench: &RaidBench,
    opener: &platform::linux::DiskOpener,
    number: usize,
) -> Result<Arc<dyn Disk>, BenchError> {
    let path = bench.directory.join(format!("bench-raid{number}.img"));
    create_file_disk(&path, bench.disk.0)?;
    Ok(opener.open(&path.display().to_string())?)
}

fn owner(pvbn: u64) -> BlockOwner {
    let place = (VolumeId(3), Vvbn(pvbn));
    BlockOwner::new((1, 0), place, (InodeNumber(64), Fbn(pvbn)), CpNumber(1))
}

fn failed<E: std::fmt::Display>(load: &'static str) -> impl Fn(E) -> BenchError {
    move |error| BenchError::Load {
        load: load.to_owned(),
        target: "raid".to_owned(),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_runs_and_leaves_nothing() {
        let name = format!("stroop-bench-raid-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let bench = RaidBench { directory: directory.clone(), disk: ByteSize(16 << 20), rounds: 1 };
        let report = raid(&bench, &mut |_| ()).unwrap();
        // Parity; stripes, rebuild, and reads with one disk lost and more; two shares.
        let expected: usize = KINDS.iter().map(|kind| 3 + kind.parity_disks()).sum();
        assert_eq!(report.rows.len(), expected + 2);
        let rates = report.rows.iter().filter(|row| row.unit != Unit::Percent);
        assert!(
            rates.map(|row| &row.ours).all(|ours| ours.median().is_some_and(|rate| rate > 0.0))
        );
        let share = report.rows.iter().find(|row| row.unit == Unit::Percent).unwrap();
        assert!(share.ours.median().is_some_and(|share| share > 50.0), "sequential writes");
        std::fs::remove_dir(&directory).unwrap();
    }
}
