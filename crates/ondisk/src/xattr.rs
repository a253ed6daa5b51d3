//! A file's extended attributes, as its attributes inode holds them: a header, then each attribute
//! as a fixed structure, its name and its value, one after another without gaps.
//!
//! Invariants: names ascend strictly; `size` is the length of the whole; names have 1 to
//! [`XATTR_NAME_SIZE_MAX`] bytes, values at most [`XATTR_VALUE_SIZE_MAX`].
//!
//! Fails: [`parse`] names the field that is wrong; no bytes panic.

use crate::damage::Damage;
use crate::versions::FORMAT_VERSION;
use std::collections::BTreeMap;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of a list.
pub const XATTR_MAGIC: u32 = u32::from_le_bytes(*b"XATR");
const STRUCTURE: &str = "extended attributes";

/// Longest name.
pub const XATTR_NAME_SIZE_MAX: usize = 255;
/// Longest value.
pub const XATTR_VALUE_SIZE_MAX: usize = 64 << 10;

/// The beginning of a list.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrListHeader {
    /// [`XATTR_MAGIC`].
    pub magic: U32,
    /// The version of the format ([`crate::versions`]).
    pub version: U16,
    /// Reserved; zero.
    pub reserved: U16,
    /// Attributes that follow.
    pub count: U32,
    /// Bytes of the whole list, this header included.
    pub size: U32,
}

/// The beginning of an attribute.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct XattrHeader {
    /// Bytes of the name.
    pub name_size: U16,
    /// Reserved; zero.
    pub reserved: U16,
    /// Bytes of the value.
    pub value_size: U32,
}

const _: () = {
    assert!(size_of::<XattrListHeader>() == 16);
    assert!(size_of::<XattrHeader>() == 8);
};

/// Attributes by name.
pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes that a list takes.
#[must_use]
pub fn encoded_size(attributes: &Xattrs) -> usize {
    let each =
        |(name, value): (&Vec<u8>, &Vec<u8>)| size_of::<XattrHeader>() + name.len() + value.len();
    size_of::<XattrListHeader>() + attributes.iter().map(each).sum::<usize>()
}

/// The bytes of a list.
///
/// # Panics
/// If a name, a value or the whole is longer than the format allows: the caller checked.
#[must_use]
pub fn encode(attributes: &Xattrs) -> Vec<u8> {
    let size = encoded_size(attributes);
    assert!(size <= u32::MAX as usize, "extended attributes of {size} bytes");
    let header = XattrListHeader {
        magic: U32::new(XATTR_MAGIC),
        version: U16::new(FORMAT_VERSION),
        reserved: U16::new(0),
        count: U32::new(attributes.len() as u32),
        size: U32::new(size as u32),
    };
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(header.as_bytes());
    for (name, value) in attributes {
        assert!((1..=XATTR_NAME_SIZE_MAX).contains(&name.len()));
        assert!(value.len() <= XATTR_VALUE_SIZE_MAX);
        let header = XattrHeader {
            name_size: U16::new(name.len() as u16),
            reserved: U16::new(0),
            value_size: U32::new(value.len() as u32),
        };
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes
}

/// The list in `bytes`, which is exactly as long as the list.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Xattrs, Damage> {
    let wrong = |field| Damage::Field { structure: STRUCTURE, field };
    let (header, mut rest) =
        XattrListHeader::read_from_prefix(bytes).map_err(|_| wrong("header"))?;
    if header.magic.get() != XATTR_MAGIC {
        return Err(wrong("magic"));
    }
    Damage::unless_read(STRUCTURE, header.version.get())?;
    Damage::unless_zero(STRUCTURE, &[header.reserved.as_bytes()])?;
    if header.size.get() as usize != bytes.len() {
        return Err(wrong("size"));
    }
    let mut attributes = Xattrs::new();
    for _ in 0..header.count.get() {
        let (attribute, after) =
            XattrHeader::read_from_prefix(rest).map_err(|_| wrong("attribute"))?;
        let (name_size, value_size) =
            (usize::from(attribute.name_size.get()), attribute.value_size.get() as usize);
        Damage::unless_zero(STRUCTURE, &[attribute.reserved.as_bytes()])?;
        if name_size == 0 || name_size > XATTR_NAME_SIZE_MAX {
            return Err(wrong("name_size"));
        }
        if value_size > XATTR_VALUE_SIZE_MAX {
            return Err(wrong("value_size"));
        }
        let (name, after) = after.split_at_checked(name_size).ok_or(wrong("name"))?;
        let (value, after) = after.split_at_checked(value_size).ok_or(wrong("value"))?;
        if attributes.last_key_value().is_some_and(|(last, _)| last.as_slice() >= name) {
            return Err(wrong("order"));
        }
        attributes.insert(name.to_vec(), value.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok(attributes) } else { Err(wrong("count")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Xattrs {
        let mut list = Xattrs::new();
        list.insert(b"user.a".to_vec(), b"value".to_vec());
        list.insert(b"user.empty".to_vec(), Vec::new());
        list.insert(b"trusted.b".to_vec(), vec![7; XATTR_VALUE_SIZE_MAX]);
        list
    }

    #[test]
    fn lists_survive() {
        for list in [Xattrs::new(), sample()] {
            let bytes = encode(&list);
            assert_eq!(bytes.len(), encoded_size(&list));
            assert_eq!(parse(&bytes), Ok(list));
        }
    }

    #[test]
    fn damage_is_seen_and_never_panics() {
        let mut list = sample();
        list.remove(b"trusted.b".as_slice());
        let bytes = encode(&list);
        for length in 0..bytes.len() {
            assert!(parse(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                // A changed letter is another list; everything else is damage.
                if let Ok(other) = parse(&changed) {
                    assert_eq!(encoded_size(&other), bytes.len());
                }
            }
        }
    }
}
