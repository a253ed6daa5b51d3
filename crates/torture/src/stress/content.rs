//! What a file of a client's own must hold, to the unit of 512 bytes, and what it may hold after a
//! crash.
//!
//! Invariants: every unit of every write has a word of its own, so that a unit that is stale, from
//! elsewhere or half written shows. A file's length is a whole number of units.

use std::collections::BTreeSet;

/// What is written whole: less than a block, so that blocks are written in part.
pub const UNIT: usize = 512;
/// Units of the longest file.
pub const UNITS_MAX: usize = 512;

/// The word that fills a unit of a write with this number.
#[must_use]
pub fn word(write: u64, unit: usize) -> u64 {
    let mut mixed = write.rotate_left(20) ^ (unit as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)) | 1
}

/// The bytes of these units of a write.
#[must_use]
pub fn bytes(write: u64, first: usize, count: usize) -> Vec<u8> {
    let words = (first..first + count).map(|unit| word(write, unit).to_le_bytes());
    words.flat_map(|word| word.repeat(UNIT / size_of::<u64>())).collect()
}

/// The words of what was read.
///
/// # Errors
/// Which unit is not all of one word.
pub fn words(data: &[u8]) -> Result<Vec<u64>, String> {
    let (units, rest) = data.as_chunks::<UNIT>();
    if !rest.is_empty() {
        return Err(format!("{} bytes are no whole units", data.len()));
    }
    let word_of = |(number, unit): (usize, &[u8; UNIT])| {
        let (words, _) = unit.as_chunks::<8>();
        let is_one = words.iter().all(|word| *word == words[0]);
        is_one.then(|| u64::from_le_bytes(words[0])).ok_or(format!("unit {number} is torn"))
    };
    units.iter().enumerate().map(word_of).collect()
}

/// A unit: what it holds, and what a crash may put in its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Unit {
    now: u64,
    /// Since the last stable write of it or the last commit.
    older: Vec<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    units: Vec<Unit>,
    /// Lengths that a crash may leave, in units, besides the present one.
    lengths: BTreeSet<usize>,
}

impl Content {
    /// What was found, and is durable.
    #[must_use]
    pub fn found(words: Vec<u64>) -> Self {
        let units = words.into_iter().map(|now| Unit { now, older: Vec::new() }).collect();
        Self { units, lengths: BTreeSet::new() }
    }

    /// Its length in units.
    #[must_use]
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// What its units hold now.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        self.units.iter().map(|unit| unit.now).collect()
    }

    /// A write of `count` units from `first` on was done, or may have been.
    pub fn write(&mut self, write: u64, (first, count): (usize, usize), is_stable: bool) {
        let end = first + count;
        if end > self.len() {
            if is_stable {
                self.lengths = self.lengths.iter().map(|length| end.max(*length)).collect();
            } else {
                self.lengths.insert(self.len());
            }
            self.units.resize(end, Unit::default());
        } else if is_stable {
            self.lengths = self.lengths.iter().map(|length| end.max(*length)).collect();
        }
        for (number, unit) in self.units.iter_mut().enumerate().take(end).skip(first) {
            let old = std::mem::replace(&mut unit.now, word(write, number));
            if is_stable {
                unit.older.clear();
            } else if !unit.older.contains(&old) {
                unit.older.push(old);
            }
        }
    }

    /// The file was cut or made longer, durably.
    pub fn set_length(&mut self, length: usize) {
        // A crash may lose what grew the file before, and finds zeros there then.
        let shortest = self.lengths.iter().min().copied().unwrap_or(usize::MAX).min(length);
        self.units.resize(length, Unit::default());
        for unit in &mut self.units[shortest..] {
            if unit.now != 0 && !unit.older.contains(&0) {
                unit.older.push(0);
            }
        }
        self.lengths.clear();
    }

    /// All of it is durable.
    pub fn commit(&mut self) {
        self.lengths.clear();
        self.units.iter_mut().for_each(|unit| unit.older.clear());
    }

    /// Whether this is what a read of units from `first` on gives now.
    ///
    /// # Errors
    /// What differs.
    pub fn check_now(&self, first: usize, found: &[u64]) -> Result<(), String> {
        for (number, found) in (first..).zip(found) {
            match self.units.get(number) {
                Some(unit) if unit.now == *found => {}
                Some(unit) => {
                    return Err(format!(
                        "unit {number} holds {found:#x}, and not {:#x} (before: {:x?})",
                        unit.now, unit.older
                    ));
                }
                None => return Err(format!("unit {number} is behind the end")),
            }
        }
        Ok(())
    }

    /// Whether a crash may leave this.
    ///
    /// # Errors
    /// What it may not.
    pub fn check_crash(&self, found: &[u64]) -> Result<(), String> {
        if found.len() != self.len() && !self.lengths.contains(&found.len()) {
            let (now, may) = (self.len(), &self.lengths);
            return Err(format!("{} units, and not {now} (or {may:?})", found.len()));
        }
        for (number, (unit, found)) in self.units.iter().zip(found).enumerate() {
            if unit.now != *found && !unit.older.contains(found) {
                return Err(format!(
                    "unit {number} holds {found:#x}, and not {:#x} (or {:x?})",
                    unit.now, unit.older
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_may_lose_what_is_not_stable_and_nothing_else() {
        let mut content = Content::default();
        content.write(1, (0, 4), true);
        content.write(2, (2, 4), false);
        let old: Vec<u64> = (0..4).map(|unit| word(1, unit)).collect();
        assert!(content.check_crash(&old).is_ok());
        let mut mixed = old.clone();
        mixed[3] = word(2, 3);
        assert!(content.check_crash(&mixed).is_ok(), "units are lost each by itself");
        assert!(content.check_crash(&old[..3]).is_err(), "it was never so short");
        content.commit();
        assert!(content.check_crash(&old).is_err());
        let new: Vec<u64> = (0..6).map(|unit| word(if unit < 2 { 1 } else { 2 }, unit)).collect();
        assert!(content.check_crash(&new).is_ok());
        assert!(content.check_now(0, &new).is_ok());
        assert!(content.check_now(1, &new[1..]).is_ok());
        assert!(content.check_now(0, &old).is_err());
        content.set_length(3);
        content.set_length(6);
        assert!(content.check_now(0, &new).is_err(), "what was cut off is gone");
    }

    #[test]
    fn words_tell_torn_units_from_whole_ones() {
        let mut data = bytes(7, 3, 2);
        assert_eq!(words(&data).unwrap(), vec![word(7, 3), word(7, 4)]);
        data[UNIT + 9] ^= 1;
        assert!(words(&data).is_err());
    }
}
