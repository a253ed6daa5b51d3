//! The stripe journal of an aggregate: notes go into its log (decision 32).
//!
//! The store is put together before the log is open, so the journal learns of the log later.
//!
//! Invariants: no partial stripe is written before its note is durable in the log. A note belongs
//! to the consistency point that writes the stripes, and counts for nothing when that is complete.

use nvlog::{Found, Log};
use ondisk::damage::Damage;
use ondisk::label::GROUP_DISKS_MAX;
use ondisk::log::PartialParityRecord;
use platform::{DiskError, WriteDone};
use raid::{PartialParityLog, PartialParityNote, TetrisId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use units::CpNumber;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// See the module.
pub struct LateJournal {
    log: OnceLock<Arc<Log>>,
    cp: AtomicU64,
    epoch_blocks_max: AtomicU64,
}

impl Default for LateJournal {
    fn default() -> Self {
        let (log, cp) = (OnceLock::new(), AtomicU64::default());
        Self { log, cp, epoch_blocks_max: AtomicU64::new(u64::MAX) }
    }
}

impl LateJournal {
    /// The log is open.
    pub fn set_log(&self, log: Arc<Log>) {
        let _ = self.log.set(log);
    }

    /// Notes of one epoch take no more than this, if the log has room for more.
    pub(crate) fn limit_epochs(&self, blocks_max: u64) {
        self.epoch_blocks_max.store(blocks_max, Ordering::Relaxed);
    }

    /// The consistency point that writes from now on.
    pub fn set_cp(&self, cp: CpNumber) {
        self.cp.store(cp.get(), Ordering::Release);
    }
}

impl PartialParityLog for LateJournal {
    fn capacity_blocks(&self) -> u64 {
        let capacity_blocks = self.log.get().map_or(0, |log| log.notes().capacity_blocks());
        capacity_blocks.min(self.epoch_blocks_max.load(Ordering::Relaxed))
    }

    fn note(&self, epoch: u64, note: PartialParityNote, done: WriteDone) {
        let Some(log) = self.log.get() else {
            let kind = "the log is not open".to_owned();
            return done(Err(DiskError::Io { disk: "log".to_owned(), block: 0, kind }));
        };
        let cp = CpNumber(self.cp.load(Ordering::Acquire));
        let bytes = encode(&note);
        log.notes().append((epoch, cp), bytes, note.parity, done);
    }
}

/// All of a note but its parity.
fn encode(note: &PartialParityNote) -> Vec<u8> {
    let header = PartialParityRecord {
        group: U32::new(note.tetris.group),
        disk_count: U32::new(note.written.len() as u32),
        tetris: U64::new(note.tetris.region),
        rows: U64::new(note.rows),
    };
    let mut bytes = header.as_bytes().to_vec();
    note.written.iter().for_each(|rows| bytes.extend_from_slice(&rows.to_le_bytes()));
    bytes
}

/// The note that was found in the log.
///
/// # Errors
/// What is wrong with it.
pub fn decode(found: Found) -> Result<PartialParityNote, Damage> {
    let wrong = |field| Damage::Field { structure: "stripe note", field };
    let (header, words) =
        PartialParityRecord::read_from_prefix(&found.bytes).map_err(|_| wrong("header"))?;
    let (words, rest) = words.as_chunks();
    let is_whole = rest.is_empty() && words.len() == header.disk_count.get() as usize;
    if !is_whole || words.len() > GROUP_DISKS_MAX {
        return Err(wrong("disk_count"));
    }
    let tetris = TetrisId { group: header.group.get(), region: header.tetris.get() };
    let written = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    Ok(PartialParityNote { tetris, rows: header.rows.get(), written, parity: found.blocks })
}
