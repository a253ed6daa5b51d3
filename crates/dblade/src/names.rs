//! Names of volumes: how one gets another, and what becomes of names that two aggregates of a node
//! have.
//!
//! A new name is durable before it is answered and before clients find the volume under it.
//!
//! A node makes no two volumes of one name, but disks of another node may come, or those of an
//! aggregate that could not be opened when the other volume was made.
//!
//! Invariants: each volume is served under a name that no other has; one that was in service finds
//! its name again. Handles name the identity, so that clients of both notice nothing.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::{ServedVolume, VolumeNames};
use aggregate::{Acted, AggregateError, FreezeScope};
use ondisk::records::{NAME_SIZE_MAX, QUEUE_SEPARATOR};
use std::iter;
use std::sync::Arc;
use units::{AggregateUuid, VolumeUuid};
use volume::lifecycle;

/// The name under which a volume is served: its own, unless a volume of another aggregate has
/// that. Then its aggregate's name follows, and a number if need be.
pub(crate) fn served_name(
    engine: &Engine,
    (given, identity): (&str, VolumeUuid),
    aggregate: (AggregateUuid, &str),
) -> String {
    let is_free = |name: &String| {
        let other = engine.volume_named(name);
        other.is_none_or(|other| other.environment.identity == identity)
            && engine.away_with_name(name).is_none_or(|away| away == aggregate.0)
    };
    let own = iter::once(given.to_owned());
    let derived = (1..).map(|number| match given.contains(QUEUE_SEPARATOR) {
        // The name of a volume in the recovery queue must keep its `~` and number. It is on no
        // disk, so it may be long.
        true if number == 1 => format!("{given}.{}", aggregate.1),
        true => format!("{given}.{}-{number}", aggregate.1),
        false => derived(given, aggregate.1, number),
    });
    let Some(name) = own.chain(derived).find(is_free) else {
        unreachable!("a node has fewer volumes than there are numbers")
    };
    name
}

/// # Errors
/// A volume has one of these names, be it in service or away: it is to find its name when it is
/// back.
pub(crate) fn check_free(engine: &Engine, names: &[String]) -> Result<(), EngineError> {
    let is_taken = |name: &&String| {
        engine.volume_named(name).is_some() || engine.away_with_name(name).is_some()
    };
    match names.iter().find(is_taken) {
        Some(name) => Err(EngineError::Exists { kind: "volume", name: name.clone() }),
        None => Ok(()),
    }
}

/// See [`Engine::rename_volume`].
pub(crate) fn rename(engine: &Arc<Engine>, volume: &str, name: &str, done: Done<()>) {
    let Some(served) = engine.volume_named(volume) else {
        return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
    };
    let (number, identity) = (served.environment.volume, served.environment.identity);
    let is_another = |other: Arc<ServedVolume>| other.environment.identity != identity;
    // One that is away is to find its name when it is back.
    if engine.volume_named(name).is_some_and(is_another) || engine.away_with_name(name).is_some() {
        return done(Err(EngineError::Exists { kind: "volume", name: name.to_owned() }));
    }
    let aggregate = Arc::clone(&served.aggregate);
    let (given, wanted, same) = (name.to_owned(), name.to_owned(), Arc::clone(&served));
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        same.check_there()?;
        lifecycle::rename(scope, number, &wanted)?;
        Ok(Acted::Done)
    };
    let engine = Arc::clone(engine);
    let committed = move |outcome: Result<(), AggregateError>| {
        if outcome.is_ok() {
            let of = &served.aggregate.parts.identity;
            // Another may have come into service with this name meanwhile.
            let found = served_name(&engine, (&given, identity), (of.aggregate, &of.name));
            engine.rename_served(&served, VolumeNames { served: found, given });
        }
        done(outcome.map_err(EngineError::from));
    };
    aggregate.request_action(Box::new(action), Box::new(committed));
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
