//! A file's extended attributes, as its attributes inode holds them: a header, then each attribute
//! as a fixed structure, its name and its value, one after another without gaps.
//!
//! Invariants: names ascend strictly; `size` is the length of the whole; names have 1 to
//! [`XATTR_NAME_SIZE_MAX`] bytes, values at most [`XATTR_VALUE_SIZE_MAX`].
//!
//! Fails: [`parse`] and [`seek`] name the field that is wrong; no bytes panic.

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
    let mut reader = Reader::open(bytes, bytes.len() as u64)?;
    let mut attributes = Xattrs::new();
    while let Next::Attribute(name, value) = reader.next()? {
        attributes.insert(name.to_vec(), value.to_vec());
    }
    Ok(attributes)
}

/// What the first bytes of a list say of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought<'b> {
    /// The value of the attribute.
    Value(&'b [u8]),
    /// No attribute has the name.
    Missing,
    /// More of the list has to be read.
    Further,
}

/// Looks for an attribute in the first bytes of a list that has `size` bytes. Names ascend, so
/// what lies behind the attribute is neither needed nor checked.
///
/// # Errors
/// What is wrong with the bytes up to the attribute.
pub fn seek<'b>(bytes: &'b [u8], size: u64, name: &[u8]) -> Result<Sought<'b>, Damage> {
    let mut reader = Reader::open(bytes, size)?;
    loop {
        return Ok(match reader.next()? {
            Next::Attribute(found, _) if found < name => continue,
            Next::Attribute(found, value) if found == name => Sought::Value(value),
            Next::Attribute(..) | Next::End => Sought::Missing,
            Next::Cut => Sought::Further,
        });
    }
}

const fn wrong(field: &'static str) -> Damage {
    Damage::Field { structure: STRUCTURE, field }
}

/// What comes next in a list.
enum Next<'b> {
    /// A name and its value.
    Attribute(&'b [u8], &'b [u8]),
    /// The list ended.
    End,
    /// The bytes end within an attribute, and the list does not.
    Cut,
}

/// Reads a list from its first bytes on.
struct Reader<'b> {
    rest: &'b [u8],
    /// Bytes of the list behind `rest`.
    unseen_bytes: u64,
    attributes_left: u32,
    last_name: &'b [u8],
}

impl<'b> Reader<'b> {
    fn open(bytes: &'b [u8], size: u64) -> Result<Self, Damage> {
        let (header, rest) =
            XattrListHeader::read_from_prefix(bytes).map_err(|_| wrong("header"))?;
        if header.magic.get() != XATTR_MAGIC {
            return Err(wrong("magic"));
        }
        Damage::unless_read(STRUCTURE, header.version.get())?;
        Damage::unless_zero(STRUCTURE, &[header.reserved.as_bytes()])?;
        let unseen_bytes = size.checked_sub(bytes.len() as u64).ok_or(wrong("size"))?;
        if u64::from(header.size.get()) != size {
            return Err(wrong("size"));
        }
        let attributes_left = header.count.get();
        Ok(Self { rest, unseen_bytes, attributes_left, last_name: &[] })
    }

    fn next(&mut self) -> Result<Next<'b>, Damage> {
        if self.attributes_left == 0 {
            let is_end = self.rest.is_empty() && self.unseen_bytes == 0;
            return if is_end { Ok(Next::End) } else { Err(wrong("count")) };
        }
        let Ok((header, rest)) = XattrHeader::read_from_prefix(self.rest) else {
            return self.cut("attribute");
        };
        let (name_size, value_size) =
            (usize::from(header.name_size.get()), header.value_size.get() as usize);
        Damage::unless_zero(STRUCTURE, &[header.reserved.as_bytes()])?;
        if name_size == 0 || name_size > XATTR_NAME_SIZE_MAX {
            return Err(wrong("name_size"));
        }
        if value_size > XATTR_VALUE_SIZE_MAX {
            return Err(wrong("value_size"));
        }
        let Some((name, rest)) = rest.split_at_checked(name_size) else {
            return self.cut("name");
        };
        let Some((value, rest)) = rest.split_at_checked(value_size) else {
            return self.cut("value");
        };
        if self.last_name >= name {
            return Err(wrong("order"));
        }
        (self.rest, self.last_name) = (rest, name);
        self.attributes_left -= 1;
        Ok(Next::Attribute(name, value))
    }

    /// The bytes end within `field`: damage, unless the list goes on behind them.
    fn cut(&self, field: &'static str) -> Result<Next<'b>, Damage> {
        if self.unseen_bytes > 0 { Ok(Next::Cut) } else { Err(wrong(field)) }
    }
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
    fn one_attribute_is_found_in_the_first_bytes() {
        let list = sample();
        let bytes = encode(&list);
        let size = bytes.len() as u64;
        let names: [&[u8]; 6] =
            [b"a", b"trusted.b", b"trusted.c", b"user.a", b"user.empty", b"user.z"];
        for name in names {
            let expected = list.get(name).map_or(Sought::Missing, |value| Sought::Value(value));
            assert_eq!(seek(&bytes, size, name), Ok(expected), "{name:?}");
            // Fewer bytes say the same, or that more have to be read.
            for length in size_of::<XattrListHeader>()..bytes.len() {
                let found = seek(&bytes[..length], size, name).unwrap();
                assert!(found == expected || found == Sought::Further, "{name:?} {length}");
            }
        }
        // What lies behind it is not looked at.
        let first = size_of::<XattrListHeader>() + size_of::<XattrHeader>() + "trusted.b".len();
        let first = &bytes[..first + XATTR_VALUE_SIZE_MAX];
        assert!(matches!(seek(first, size, b"trusted.b"), Ok(Sought::Value(_))));
        assert_eq!(seek(first, size, b"user.a"), Ok(Sought::Further));
        assert!(seek(first, first.len() as u64, b"trusted.b").is_err(), "its size is wrong");
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
