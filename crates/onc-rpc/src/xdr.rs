//! XDR (RFC 4506) over byte slices: big-endian words of four bytes, everything padded to them.
//!
//! Invariants: a [`Reader`] never reads past its slice and never panics, whatever the bytes; every
//! variable length is checked against the limit that its caller names. A [`Writer`] keeps its
//! length a multiple of four after each item.
//!
//! Fails: [`XdrError`]. Bytes of padding need not be zero: some clients send others, and
//! nothing depends on them.

use thiserror::Error;

/// Why bytes are not the XDR that was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum XdrError {
    /// The bytes end before the item does.
    #[error("{needed} bytes needed, {left} left")]
    Truncated {
        /// Bytes that the item takes.
        needed: usize,
        /// Bytes that there were.
        left: usize,
    },
    /// A variable length is above its limit.
    #[error("length {length} above the limit of {length_max}")]
    TooLong {
        /// The length found.
        length: usize,
        /// The limit.
        length_max: usize,
    },
    /// A discriminant or boolean has a value that it cannot have.
    #[error("value {value} is not one of the type's")]
    BadValue {
        /// The value found.
        value: u32,
    },
}

/// The bytes of padding after `length` bytes.
#[must_use]
pub const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// `length` and its padding.
#[must_use]
pub const fn padded(length: usize) -> usize {
    length + padding(length)
}

/// Reads items off the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], XdrError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(XdrError::Truncated { needed: count, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(taken)
    }

    /// A fixed number of bytes that is a multiple of four (verifiers).
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        const { assert!(N.is_multiple_of(4)) };
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(XdrError::Truncated { needed: N, left: self.rest.len() });
        };
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned integer.
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        Ok(u32::from_be_bytes(self.fixed()?))
    }

    /// An unsigned hyper integer.
    ///
    /// # Errors
    /// [`XdrError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        Ok(u64::from_be_bytes(self.fixed()?))
    }

    /// A boolean.
    ///
    /// # Errors
    /// [`XdrError::BadValue`] for anything but 0 and 1.
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::BadValue { value }),
        }
    }

    /// Variable-length opaque data or a string, at most `length_max` bytes.
    ///
    /// # Errors
    /// [`XdrError::TooLong`], [`XdrError::Truncated`].
    pub fn opaque(&mut self, length_max: usize) -> Result<&'a [u8], XdrError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if length > length_max {
            return Err(XdrError::TooLong { length, length_max });
        }
        let data = self.take(length)?;
        // Some encoders leave the padding out where the message ends.
        self.rest = self.rest.get(padding(length)..).unwrap_or_default();
        Ok(data)
    }
}

/// Appends items to a buffer.
#[derive(Clone, Default, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer with room for `capacity` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    /// Bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What was written, as a vector.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// An unsigned integer.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Bytes of a fixed length that is a multiple of four, or bytes encoded already.
    pub fn fixed(&mut self, bytes: &[u8]) {
        assert!(bytes.len().is_multiple_of(4), "XDR is made of words, not of {}", bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Variable-length opaque data or a string.
    pub fn opaque(&mut self, data: &[u8]) {
        let Ok(length) = u32::try_from(data.len()) else {
            unreachable!("a reply of 4 GiB is above every limit");
        };
        self.u32(length);
        self.bytes.extend_from_slice(data);
        self.bytes.extend_from_slice([0; 3].get(..padding(data.len())).unwrap_or_default());
    }

    /// Writes `value` over the word at `at`, which was written before.
    pub fn overwrite_u32(&mut self, at: usize, value: u32) {
        let Some(word) = self.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>())
        else {
            unreachable!("the word at {at} was written before");
        };
        *word = value.to_be_bytes();
    }

    /// Forgets what was written after the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, PartialEq, Debug)]
    enum Item {
        Word(u32),
        Long(u64),
        Flag(bool),
        Data(Vec<u8>),
        Verifier([u8; 8]),
    }

    fn item() -> impl Strategy<Value = Item> {
        prop_oneof![
            any::<u32>().prop_map(Item::Word),
            any::<u64>().prop_map(Item::Long),
            any::<bool>().prop_map(Item::Flag),
            prop::collection::vec(any::<u8>(), 0..70).prop_map(Item::Data),
            any::<[u8; 8]>().prop_map(Item::Verifier),
        ]
    }

    proptest! {
        #[test]
        fn items_survive_the_wire(items in prop::collection::vec(item(), 0..20)) {
            let mut writer = Writer::default();
            for item in &items {
                match item {
                    Item::Word(value) => writer.u32(*value),
                    Item::Long(value) => writer.u64(*value),
                    Item::Flag(value) => writer.bool(*value),
                    Item::Data(value) => writer.opaque(value),
                    Item::Verifier(value) => writer.fixed(value),
                }
                prop_assert_eq!(writer.len() % 4, 0);
            }
            let mut reader = Reader::new(writer.bytes());
            for item in &items {
                let read = match item {
                    Item::Word(_) => Item::Word(reader.u32().unwrap()),
                    Item::Long(_) => Item::Long(reader.u64().unwrap()),
                    Item::Flag(_) => Item::Flag(reader.bool().unwrap()),
                    Item::Data(_) => Item::Data(reader.opaque(70).unwrap().to_vec()),
                    Item::Verifier(_) => Item::Verifier(reader.fixed().unwrap()),
                };
                prop_assert_eq!(&read, item);
            }
            prop_assert!(reader.rest().is_empty());
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            kinds in prop::collection::vec((0..5_u8, 0..80_usize), 0..12),
        ) {
            let mut reader = Reader::new(&bytes);
            for (kind, length_max) in kinds {
                let before = reader.rest().len();
                match kind {
                    0 => drop(reader.u32()),
                    1 => drop(reader.u64()),
                    2 => drop(reader.bool()),
                    3 => if let Ok(data) = reader.opaque(length_max) {
                        prop_assert!(data.len() <= length_max);
                    },
                    _ => drop(reader.fixed::<8>()),
                }
                prop_assert!(reader.rest().len() <= before);
            }
        }
    }

    #[test]
    fn limits_and_values_are_checked() {
        assert_eq!(Reader::new(&[0, 0]).u32(), Err(XdrError::Truncated { needed: 4, left: 2 }));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(XdrError::BadValue { value: 2 }));
        let bytes = [0, 0, 0, 5, 1, 2, 3, 4, 5];
        let long = Err(XdrError::TooLong { length: 5, length_max: 4 });
        assert_eq!(Reader::new(&bytes).opaque(4), long);
        assert_eq!(Reader::new(&bytes).opaque(5), Ok(&bytes[4..]));
        let huge = [0xff; 8];
        assert!(Reader::new(&huge).opaque(usize::MAX).is_err());
    }
}
