//! What deleted volumes are called in the recovery queue: `NAME~NUMBER`, which is no other volume's
//! name.

/// Stands between the name and the number.
pub(crate) const SEPARATOR: char = '~';

/// Whether a volume is called so in the recovery queue. No other is.
#[must_use]
pub fn is_queue_name(name: &str) -> bool {
    name.contains(SEPARATOR)
}
