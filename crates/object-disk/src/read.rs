//! Reads: what is in memory first, the rest from the store.
//!
//! Invariants: where each block is to be found is decided in one look at what is in memory, and a
//! block leaves memory only after it is in the store; so a read sees every write that completed
//! before it. Consecutive blocks of an object are one request.
//!
//! Fails: an object that is shorter or longer than its blocks is an error; one that is not there
//! reads as zeros.

use crate::disk::Shared;
use crate::error::RequestError;
use crate::geometry::{Extent, ObjectId};
use crate::pending::Found;
use platform::DiskError;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, zero_block};

/// Consecutive blocks of a read.
enum Piece {
    Here(Vec<BlockRef>),
    Stored(Extent),
}

impl Shared {
    /// Reads blocks that are on the disk.
    pub(crate) async fn read_blocks(
        &self,
        block: u64,
        count: usize,
    ) -> Result<Vec<BlockRef>, DiskError> {
        let pieces = self.pieces(block, count as u64);
        let parts = pieces.into_iter().map(|piece| self.read_piece(piece));
        let parts = futures_util::future::join_all(parts).await;
        let mut blocks = Vec::with_capacity(count);
        for part in parts {
            blocks.extend(part?);
        }
        assert_eq!(blocks.len(), count, "a read gives what was asked for");
        Ok(blocks)
    }

    fn pieces(&self, block: u64, count: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let pending = self.pending.lock();
        for extent in self.geometry.extents(block, count) {
            for within in extent.within.clone() {
                let here = match pending.look(extent.object, within) {
                    Found::Block(block) => block,
                    Found::Zeros => zero_block(),
                    Found::Stored => {
                        self.extend_stored(&mut pieces, extent.object, within);
                        continue;
                    }
                };
                match pieces.last_mut() {
                    Some(Piece::Here(blocks)) => blocks.push(here),
                    _ => pieces.push(Piece::Here(vec![here])),
                }
            }
        }
        pieces
    }

    fn extend_stored(&self, pieces: &mut Vec<Piece>, object: ObjectId, within: u32) {
        match pieces.last_mut() {
            Some(Piece::Stored(last)) if last.object == object && last.within.end == within => {
                last.within.end += 1;
            }
            _ => {
                let block = self.geometry.block(object, within);
                pieces.push(Piece::Stored(Extent { object, block, within: within..within + 1 }));
            }
        }
    }

    async fn read_piece(&self, piece: Piece) -> Result<Vec<BlockRef>, DiskError> {
        let extent = match piece {
            Piece::Here(blocks) => return Ok(blocks),
            Piece::Stored(extent) => extent,
        };
        let failed = |error: RequestError| self.disk_error(extent.object, extent.block, &error);
        let Ok(_turn) = self.reads.acquire().await else {
            unreachable!("the semaphore is never closed")
        };
        let start = u64::from(extent.within.start) * BLOCK_SIZE_U64;
        let end = u64::from(extent.within.end) * BLOCK_SIZE_U64;
        let got = self.requests.get(&extent.object.key(), Some(start..end)).await;
        let count = extent.within.len();
        let Some(content) = got.map_err(failed)? else {
            return Ok(vec![zero_block(); count]);
        };
        let expected_bytes = self.geometry.bytes_of(extent.object);
        let found_bytes = content.object_bytes;
        if found_bytes != expected_bytes {
            return Err(failed(RequestError::Length { found_bytes, expected_bytes }));
        }
        Ok(content.bytes.chunks(BLOCK_SIZE).map(Block::shared).collect())
    }
}
