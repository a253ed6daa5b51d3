//! What a file may hold, as its one client may expect it (RFC 1813 sections 3.3.7 and 3.3.21).
//!
//! The client writes ranges, and never has two calls for one range under way. So of each range
//! there is a sequence of values that were answered. While the server lives the range holds the
//! last of them: a copy of an earlier WRITE that is done late would show. After a power cut or an
//! outage it may hold an earlier one, but none from before the last that the client was told is
//! stable: by a WRITE with `FILE_SYNC`, or by a COMMIT with the verifier of the WRITE.
//!
//! Invariants: kept by pieces, one for each block that a range touches, because a COMMIT that was
//! not answered may have made some blocks of an unstable WRITE durable and others not.

use units::BLOCK_SIZE_U64;

/// The ranges: first byte and end. They share blocks, and one is large, so that few of them fill
/// the memory for dirty blocks.
pub(super) const RANGES: [(u64, u64); 5] =
    [(0, 3000), (3000, 8192), (8192, 16_384), (20_000, 20_300), (65_536, 165_536)];

/// A value of a piece.
#[derive(Clone, Copy, Debug)]
struct Version {
    value: u64,
    /// Of the answer to the WRITE, if it was unstable.
    verifier: u64,
    /// When it was answered.
    answered: u64,
}

/// A part of a range within one block.
struct Piece {
    range: usize,
    start: u64,
    end: u64,
    /// The last that is stable, and those after it.
    versions: Vec<Version>,
    /// Unstable values may have been lost since the last answer.
    may_have_lost: bool,
}

/// See the module.
pub(super) struct Content {
    pieces: Vec<Piece>,
}

/// The bytes that a value is, at a place in the file. Zero is a hole.
pub(super) fn bytes_of(value: u64, start: u64, end: u64) -> Vec<u8> {
    let word = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let byte = |at: u64| match value {
        0 => 0,
        _ => word[(at % 8) as usize] ^ (at / 8) as u8,
    };
    (start..end).map(byte).collect()
}

impl Content {
    /// Nothing was written.
    pub(super) fn new() -> Self {
        let mut pieces = Vec::new();
        for (range, (first, last)) in RANGES.into_iter().enumerate() {
            let mut start = first;
            while start < last {
                let end = ((start / BLOCK_SIZE_U64 + 1) * BLOCK_SIZE_U64).min(last);
                let hole = Version { value: 0, verifier: 0, answered: 0 };
                let versions = vec![hole];
                pieces.push(Piece { range, start, end, versions, may_have_lost: false });
                start = end;
            }
        }
        Self { pieces }
    }

    fn of_range(&mut self, range: usize) -> impl Iterator<Item = &mut Piece> {
        self.pieces.iter_mut().filter(move |piece| piece.range == range)
    }

    /// A WRITE of a range was answered; with a verifier if it is not stable.
    pub(super) fn written(
        &mut self,
        range: usize,
        value: u64,
        verifier: Option<u64>,
        answered: u64,
    ) {
        for piece in self.of_range(range) {
            if verifier.is_none() {
                piece.versions.clear();
            }
            let verifier = verifier.unwrap_or_default();
            piece.versions.push(Version { value, verifier, answered });
            piece.may_have_lost = false;
        }
    }

    /// The file was cut to nothing.
    pub(super) fn truncated(&mut self, answered: u64) {
        (0..RANGES.len()).for_each(|range| self.written(range, 0, None, answered));
    }

    /// A COMMIT was answered that was sent when `sent` was the moment of the last answer.
    pub(super) fn committed(&mut self, verifier: u64, sent: u64) {
        for piece in &mut self.pieces {
            let is_covered = |one: &Version| one.answered <= sent && one.verifier == verifier;
            if let Some(last) = piece.versions.iter().rposition(is_covered) {
                piece.versions.drain(..last);
            }
        }
    }

    /// Whether a range has values that may be lost.
    pub(super) fn is_unstable(&self, range: usize) -> bool {
        let mut pieces = self.pieces.iter();
        pieces.any(|piece| piece.range == range && piece.versions.len() > 1)
    }

    /// The power went, or the disks did.
    pub(super) fn lose(&mut self) {
        for piece in &mut self.pieces {
            piece.may_have_lost |= piece.versions.len() > 1;
        }
    }

    /// A READ of a range found this. What it found is what is there from now on, unless `is_old`:
    /// it may have been done before the disks went.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn read(&mut self, range: usize, data: &[u8], is_old: bool) -> Result<(), String> {
        let (first, last) = RANGES[range];
        if data.len() as u64 > last - first {
            return Err(format!("{} bytes of {first}..{last}", data.len()));
        }
        // What is beyond the end of the file is as a hole is.
        let mut padded = data.to_vec();
        padded.resize((last - first) as usize, 0);
        for piece in self.of_range(range) {
            let (start, end) = (piece.start, piece.end);
            let found = &padded[(start - first) as usize..(end - first) as usize];
            let is_found = |one: &Version| bytes_of(one.value, start, end) == found;
            let allowed = if piece.may_have_lost { 0 } else { piece.versions.len() - 1 };
            match piece.versions[allowed..].iter().rposition(is_found) {
                Some(place) if piece.may_have_lost && !is_old => {
                    piece.versions = vec![piece.versions[place]];
                    piece.may_have_lost = false;
                }
                Some(_) => {}
                None => {
                    let allowed: Vec<u64> =
                        piece.versions[allowed..].iter().map(|one| one.value).collect();
                    let head = &found[..found.len().min(16)];
                    return Err(format!(
                        "bytes {start}..{end} begin with {head:02x?}, and may be the values \
                         {allowed:?} only"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(range: usize, value: u64) -> Vec<u8> {
        bytes_of(value, RANGES[range].0, RANGES[range].1)
    }

    #[test]
    fn while_the_server_lives_the_last_value_is_there() {
        let mut content = Content::new();
        assert_eq!(content.read(0, &[], false), Ok(()), "nothing was written");
        content.written(0, 1, Some(9), 1);
        content.written(0, 2, Some(9), 2);
        assert_eq!(content.read(0, &data(0, 2), false), Ok(()));
        assert!(content.read(0, &data(0, 1), false).is_err(), "an earlier WRITE came late");
        assert!(content.read(0, &data(0, 2)[1..], false).is_err());
        assert_eq!(content.read(1, &[], false), Ok(()));
    }

    #[test]
    fn after_a_loss_what_was_stable_is_there() {
        let mut content = Content::new();
        content.written(0, 1, None, 1);
        content.written(0, 2, Some(9), 2);
        content.written(0, 3, Some(9), 4);
        content.committed(9, 3);
        content.lose();
        assert!(content.read(0, &data(0, 1), false).is_err(), "2 was committed");
        assert_eq!(content.read(0, &data(0, 2), false), Ok(()));
        assert!(content.read(0, &data(0, 3), false).is_err(), "2 was found");
        content.written(0, 4, Some(9), 5);
        content.committed(8, 6);
        content.lose();
        assert_eq!(content.read(0, &data(0, 2), false), Ok(()), "the verifier was another one");
    }

    #[test]
    fn a_large_write_may_be_lost_in_part() {
        let mut content = Content::new();
        content.written(4, 1, Some(9), 1);
        content.lose();
        let mut mixed = data(4, 1);
        mixed[..4096].fill(0);
        assert_eq!(content.read(4, &mixed, false), Ok(()));
        assert!(content.read(4, &data(4, 1), false).is_err(), "it was found otherwise");
        content.written(4, 2, Some(9), 2);
        content.lose();
        assert_eq!(content.read(4, &data(4, 2), true), Ok(()), "it was there before");
        assert_eq!(content.read(4, &mixed, false), Ok(()), "and may have gone since");
        mixed[5000] ^= 1;
        assert!(content.read(4, &mixed, false).is_err());
    }
}
