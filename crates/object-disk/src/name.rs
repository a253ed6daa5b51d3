//! How an operator names an object range: `s3://BUCKET/PREFIX` or `object:/DIRECTORY`, in the
//! configuration with `?size=SIZE` behind it where the range may have to be made.
//!
//! Invariants: the name of the disk is the place without the size; two ways to write one place are
//! one name (no empty parts, no slash at the end); nothing in a name is a credential.
//!
//! Fails: [`NameError`], which repeats nothing of a text that may hold a secret.

use ondisk::object_range::OBJECT_RANGE_BLOCKS_MAX;
use thiserror::Error;
use units::{BLOCK_SIZE_U64, ByteSize};

const S3: &str = "s3://";
const DIRECTORY: &str = "object:";
/// What S3 allows for a bucket.
const BUCKET_BYTES: std::ops::RangeInclusive<usize> = 3..=63;
/// What S3 allows for a key, less what we append.
const PREFIX_BYTES_MAX: usize = 900;

/// Where a range lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In a bucket, below a prefix.
    S3 { bucket: String, prefix: String },
    /// In a directory.
    Directory { path: String },
}

/// The name of an object range, and how large to make it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RangeName {
    pub(crate) place: Place,
    pub(crate) size_blocks: Option<u64>,
}

/// What is wrong with a name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NameError {
    /// Neither kind of place.
    #[error("an object range is s3://BUCKET/PREFIX or object:/DIRECTORY")]
    Kind,
    /// A bucket that S3 does not allow; the text is not repeated, for it may hold a secret.
    #[error(
        "a bucket is 3 to 63 small letters, digits, '-' and '.'; credentials go into the environment"
    )]
    Bucket,
    /// A prefix that is empty, too long, or has other characters.
    #[error(
        "a prefix is one or more parts of letters, digits, '-', '_' and '.' with '/' between them"
    )]
    Prefix,
    /// A directory that is not absolute.
    #[error("the directory of an object range is an absolute path without '?'")]
    Directory,
    /// Something else than a size.
    #[error("behind '?' stands size=SIZE, such as ?size=1TiB")]
    Option,
    /// A size that cannot be.
    #[error("an object range is {minimum} to {maximum}")]
    Size {
        /// The smallest.
        minimum: ByteSize,
        /// The largest.
        maximum: ByteSize,
    },
}

/// Whether a text is meant to name an object range, right or wrong.
#[must_use]
pub fn is_range_name(text: &str) -> bool {
    text.starts_with(S3) || text.starts_with(DIRECTORY)
}

impl RangeName {
    /// The same range, which is not made if it is not there.
    #[must_use]
    pub fn existing(&self) -> Self {
        Self { size_blocks: None, ..self.clone() }
    }

    /// The name in a text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (place, option) = match text.split_once('?') {
            Some((place, option)) => (place, Some(option)),
            None => (text, None),
        };
        let place = if let Some(rest) = place.strip_prefix(S3) {
            s3(rest)?
        } else if let Some(path) = place.strip_prefix(DIRECTORY) {
            directory(path)?
        } else {
            return Err(NameError::Kind);
        };
        Ok(Self { place, size_blocks: option.map(size_blocks).transpose()? })
    }

    /// What the disk is called: the place without the size.
    #[must_use]
    pub fn disk(&self) -> String {
        match &self.place {
            Place::S3 { bucket, prefix } => format!("{S3}{bucket}/{prefix}"),
            Place::Directory { path } => format!("{DIRECTORY}{path}"),
        }
    }

    /// How large to make it if it is not there, in blocks.
    #[must_use]
    pub const fn size_blocks(&self) -> Option<u64> {
        self.size_blocks
    }
}

fn s3(rest: &str) -> Result<Place, NameError> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    if !BUCKET_BYTES.contains(&bucket.len()) || !bucket.bytes().all(allowed) {
        return Err(NameError::Bucket);
    }
    let prefix = prefix.trim_end_matches('/');
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(allowed);
    if prefix.len() > PREFIX_BYTES_MAX || !prefix.split('/').all(is_part) {
        return Err(NameError::Prefix);
    }
    Ok(Place::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
}

fn directory(path: &str) -> Result<Place, NameError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if !path.starts_with('/') || parts.is_empty() || parts.contains(&"..") {
        return Err(NameError::Directory);
    }
    Ok(Place::Directory { path: format!("/{}", parts.join("/")) })
}

fn size_blocks(option: &str) -> Result<u64, NameError> {
    let text = option.strip_prefix("size=").ok_or(NameError::Option)?;
    let size: ByteSize = text.parse().map_err(|_| NameError::Option)?;
    let blocks = size.0 / BLOCK_SIZE_U64;
    if (media::DISK_BLOCKS_MIN..=OBJECT_RANGE_BLOCKS_MAX).contains(&blocks) {
        return Ok(blocks);
    }
    Err(NameError::Size {
        minimum: ByteSize(media::DISK_BLOCKS_MIN * BLOCK_SIZE_U64),
        maximum: ByteSize(OBJECT_RANGE_BLOCKS_MAX * BLOCK_SIZE_U64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(text: &str) -> String {
        RangeName::parse(text).unwrap().disk()
    }

    #[test]
    fn one_place_has_one_name() {
        assert_eq!(disk("s3://bucket-1/a/b_2/?size=1TiB"), "s3://bucket-1/a/b_2");
        assert_eq!(disk("object:/srv//range/./x/"), "object:/srv/range/x");
        let sized = RangeName::parse("object:/srv/range?size=1G").unwrap();
        assert_eq!(sized.size_blocks(), Some(262_144));
        assert_eq!(RangeName::parse("object:/srv/range").unwrap().size_blocks(), None);
        assert!(is_range_name("s3://x") && is_range_name("object:x"));
        assert!(!is_range_name("/dev/sda") && !is_range_name("file:/x"));
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for (text, expected) in [
            ("/dev/sda", NameError::Kind),
            ("s3://ab/prefix", NameError::Bucket),
            ("s3://key:secret@bucket/prefix", NameError::Bucket),
            ("s3://bucket", NameError::Prefix),
            ("s3://bucket/", NameError::Prefix),
            ("s3://bucket/a//b", NameError::Prefix),
            ("s3://bucket/a/../b", NameError::Prefix),
            ("s3://bucket/a#b", NameError::Prefix),
            ("object:relative", NameError::Directory),
            ("object:/", NameError::Directory),
            ("object:/a/../b", NameError::Directory),
            ("object:/a?sise=1G", NameError::Option),
            ("object:/a?size=lots", NameError::Option),
        ] {
            assert_eq!(RangeName::parse(text), Err(expected), "{text}");
        }
        for size in ["1M", "8EiB"] {
            let refused = RangeName::parse(&format!("object:/a?size={size}"));
            assert!(matches!(refused, Err(NameError::Size { .. })), "{size}");
        }
        let refused = RangeName::parse("s3://key:secret@bucket/prefix").unwrap_err();
        assert!(!refused.to_string().contains("secret"));
    }
}
