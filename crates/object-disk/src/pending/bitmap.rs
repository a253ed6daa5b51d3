//! A set of an object's blocks.

const BITS: u32 = u64::BITS;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    size: u32,
    count: u32,
}

impl Bitmap {
    /// None of so many blocks.
    pub(crate) fn new(size: u32) -> Self {
        Self { words: vec![0; size.div_ceil(BITS) as usize], size, count: 0 }
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.words.get((index / BITS) as usize).is_some_and(|word| word >> (index % BITS) & 1 == 1)
    }

    pub(crate) fn set(&mut self, index: u32) {
        assert!(index < self.size, "block {index} of {}", self.size);
        if !self.has(index) {
            self.words[(index / BITS) as usize] |= 1 << (index % BITS);
            self.count += 1;
        }
    }

    pub(crate) fn clear(&mut self, index: u32) {
        if self.has(index) {
            self.words[(index / BITS) as usize] &= !(1 << (index % BITS));
            self.count -= 1;
        }
    }

    /// Whether all are in it.
    pub(crate) const fn is_full(&self) -> bool {
        self.count == self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_each_block_once() {
        let mut bitmap = Bitmap::new(65);
        for index in (0..65).chain([3, 64]) {
            assert!(!bitmap.is_full() || index == 3 || index == 64);
            bitmap.set(index);
        }
        assert!(bitmap.is_full() && bitmap.has(64) && !bitmap.has(65));
        bitmap.clear(64);
        bitmap.clear(64);
        assert!(!bitmap.is_full() && !bitmap.has(64));
    }
}
