//! The stripe journal of an aggregate: notes go into its log (brief, "Write hole").
//!
//! The store is put together before the log is open, so the journal learns of the log later.
//!
//! Invariants: no partial stripe is written before its note is durable in the log. A note belongs
//! to the consistency point that writes the stripes, and is forgotten when that has committed.

use nvlog::Log;
use ondisk::damage::Damage;
use ondisk::log::{KeptBlockRecord, LOG_KIND_STRIPE_NOTE, StripeNoteRecord};
use platform::{DiskError, WriteDone};
use raid::{KeptBlock, StripeJournal, StripeNote, TetrisId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use units::{BLOCK_SIZE, Block, CpNumber};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// See the module.
#[derive(Default)]
pub struct LateJournal {
    log: OnceLock<Arc<Log>>,
    cp: AtomicU64,
}

impl LateJournal {
    /// The log is open.
    pub fn set_log(&self, log: Arc<Log>) {
        let _ = self.log.set(log);
    }

    /// The consistency point that writes from now on.
    pub fn set_cp(&self, cp: CpNumber) {
        self.cp.store(cp.get(), Ordering::Release);
    }
}

impl StripeJournal for LateJournal {
    fn note(&self, notes: Vec<StripeNote>, done: WriteDone) {
        let failed = |kind: String| DiskError::Io { disk: "log".to_owned(), block: 0, kind };
        let Some(log) = self.log.get() else {
            return done(Err(failed("the log is not open".to_owned())));
        };
        let cp = CpNumber(self.cp.load(Ordering::Acquire));
        let mut last = None;
        for note in &notes {
            match log.append(cp, LOG_KIND_STRIPE_NOTE, &[&encode(note)]) {
                Ok(position) => last = Some(position),
                Err(full) => return done(Err(failed(full.to_string()))),
            }
        }
        match last {
            None => done(Ok(())),
            Some(position) => log.when_durable(
                position,
                Box::new(move |outcome| {
                    done(outcome.map_err(|error| failed(error.to_string())));
                }),
            ),
        }
    }
}

fn encode(note: &StripeNote) -> Vec<u8> {
    let header = StripeNoteRecord {
        group: U32::new(note.tetris.group),
        kept_count: U32::new(note.kept.len() as u32),
        tetris: U64::new(note.tetris.region),
        rows: U64::new(note.rows),
    };
    let mut bytes = header.as_bytes().to_vec();
    for kept in &note.kept {
        let place = KeptBlockRecord {
            disk: U16::new(kept.disk as u16),
            row: U16::new(kept.row as u16),
            reserved: U32::ZERO,
        };
        bytes.extend_from_slice(place.as_bytes());
        bytes.extend_from_slice(kept.block.bytes());
    }
    bytes
}

/// The note in a record of the log.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<StripeNote, Damage> {
    let wrong = |field| Damage::Field { structure: "stripe note", field };
    let (header, mut rest) =
        StripeNoteRecord::read_from_prefix(bytes).map_err(|_| wrong("header"))?;
    let mut kept = Vec::new();
    for _ in 0..header.kept_count.get() {
        let (place, after) =
            KeptBlockRecord::read_from_prefix(rest).map_err(|_| wrong("kept block"))?;
        let content = after.get(..BLOCK_SIZE).ok_or_else(|| wrong("kept block"))?;
        kept.push(KeptBlock {
            disk: usize::from(place.disk.get()),
            row: usize::from(place.row.get()),
            block: Arc::new(Block::from_prefix(content)),
        });
        rest = after.get(BLOCK_SIZE..).ok_or_else(|| wrong("kept block"))?;
    }
    if !rest.is_empty() {
        return Err(wrong("size"));
    }
    let tetris = TetrisId { group: header.group.get(), region: header.tetris.get() };
    Ok(StripeNote { tetris, rows: header.rows.get(), kept })
}
