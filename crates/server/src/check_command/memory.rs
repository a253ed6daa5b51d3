//! How much memory a check takes, and whether the machine has it.
//!
//! The reader remembers of each block in use where it lies and what it was proved to be. That grows
//! with the blocks in use, so it is asked before the check begins, not found out in the middle.
//!
//! Fails: `Failed`, with what is needed and what there is.

use super::subject::MESSAGE;
use admin_api::{AdminError, Code};
use units::ByteSize;

/// What the reader remembers of a block: 16 bytes for its place in the container map, four for its
/// proof, in chunks of 64 that may be a quarter full, and bits in a few sets.
const BYTES_PER_BLOCK: u64 = 48;
/// Caches of the reader, twice 64 MiB, and requests under way.
const FIXED_BYTES: u64 = 192 << 20;

/// Memory that a check of so many blocks takes at most.
pub(crate) const fn needed(used_blocks: u64) -> u64 {
    used_blocks.saturating_mul(BYTES_PER_BLOCK).saturating_add(FIXED_BYTES)
}

/// Whether a check of so many blocks may begin.
pub(crate) fn allow(
    name: &str,
    used_blocks: u64,
    allowed: Option<ByteSize>,
) -> Result<(), AdminError> {
    let needed = ByteSize(needed(used_blocks));
    let (bytes, whose) = match allowed {
        Some(allowed) => (allowed.0, "--memory allows"),
        None => match available() {
            Some(bytes) => (bytes, "the machine has available"),
            None => return Ok(()),
        },
    };
    if needed.0 <= bytes {
        return Ok(());
    }
    Err(AdminError::new(Code::Failed, MESSAGE, name)
        .because(format!("it needs up to {needed} of memory, {whose} {}", ByteSize(bytes)))
        .try_next(format!("stroop check aggr {name} --memory {} where there is as much", needed.0)))
}

/// What the kernel says that new programs can have.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_does_not_fit_is_refused_with_what_it_needs() {
        assert!(allow("a1", 0, Some(ByteSize(FIXED_BYTES))).is_ok());
        let error = allow("a1", 1 << 28, Some(ByteSize(1 << 30))).unwrap_err();
        assert_eq!(error.code, Code::Failed);
        assert!(error.to_string().contains(&ByteSize(needed(1 << 28)).to_string()), "{error}");
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
