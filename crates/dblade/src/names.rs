//! Names of volumes that two aggregates of a node have.
//!
//! A node makes no two volumes of one name, but disks of another node may come, or those of an
//! aggregate that could not be opened when the other volume was made.
//!
//! Invariants: each volume is served under a name that no other has; one that was in service finds
//! its name again. Handles name the identity, so that clients of both notice nothing.

use crate::engine::Engine;
use ondisk::records::{NAME_SIZE_MAX, VolumeRecord};
use std::iter;
use units::AggregateUuid;

/// The name under which a volume is served: its own, unless a volume of another aggregate has
/// that. Then its aggregate's name follows, and a number if need be.
pub(crate) fn served_name(
    engine: &Engine,
    record: &VolumeRecord,
    aggregate: (AggregateUuid, &str),
) -> String {
    let is_free = |name: &String| {
        let other = engine.volume_named(name);
        other.is_none_or(|other| other.environment.identity == record.identity)
            && engine.away_with_name(name).is_none_or(|away| away == aggregate.0)
    };
    let own = iter::once(record.name().to_owned());
    let derived = (1..).map(|number| derived(record.name(), aggregate.1, number));
    let Some(name) = own.chain(derived).find(is_free) else {
        unreachable!("a node has fewer volumes than there are numbers")
    };
    name
}

/// The names of a volume and its aggregate and a number, with as much of both as a name has room
/// for.
fn derived(volume: &str, aggregate: &str, number: u64) -> String {
    let number = if number == 1 { String::new() } else { format!("-{number}") };
    let room = NAME_SIZE_MAX - 1 - number.len();
    let of_aggregate = aggregate.len().min(room - volume.len().min(room / 2));
    let of_volume = volume.len().min(room - of_aggregate);
    let part = |text: &str, count: usize| text.chars().take(count).collect::<String>();
    format!("{}.{}{number}", part(volume, of_volume), part(aggregate, of_aggregate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_name_fits_and_tells_as_much_as_it_can() {
        assert_eq!(derived("home", "a1", 1), "home.a1");
        assert_eq!(derived("home", "a1", 3), "home.a1-3");
        let (long, longest) = ("v".repeat(40), "a".repeat(64));
        for (volume, aggregate) in [(&long, &longest), (&longest, &long), (&longest, &longest)] {
            let name = derived(volume, aggregate, 10);
            assert_eq!(name.len(), NAME_SIZE_MAX, "{name}");
            let (one, other) = name.split_once('.').unwrap();
            assert!(one.len() >= 30 && other.len() >= 30, "{name}");
        }
    }
}
