//! How quantities are worded.

/// `used` of `size` in whole percent, rounded up, so that 100 means full.
pub(crate) fn percent(used: u64, size: u64) -> String {
    if size == 0 {
        return "-".to_owned();
    }
    let ratio = (u128::from(used) * 100).div_ceil(u128::from(size));
    format!("{ratio}%")
}

/// "1 disk", "2 disks".
pub(crate) fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
