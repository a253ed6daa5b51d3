//! Where the log of an aggregate may be found, where it should be, and where a new one is made: on
//! the aggregate's own disks, or where the configuration says ([`LogProvider`]).
//!
//! Invariants: a log is looked for in every place where it may be, so that a change of the
//! configuration loses none. On the aggregate's own disks it has one copy more than disks of a
//! group may fail.
//!
//! Fails: never; what cannot be opened is told by whoever opens it.

use crate::engine::{Engine, LogPlace, LogProvider};
use aggregate::Aggregate;
use media::Profile;
use ondisk::identity::REGION_BLOCKS;
use ondisk::log_copies::LOG_COPIES_MAX;
use platform::Disk;
use platform::mutation::{self, Rule};
use raid::ManagedStore;
use std::sync::Arc;
use units::AggregateUuid;

/// A place where a copy of a log should be.
pub(crate) struct WantedPlace {
    /// The name of its disk.
    pub name: String,
    pub kind: PlaceKind,
}

pub(crate) enum PlaceKind {
    /// On a disk of the aggregate, which nobody else uses.
    OnDisk(Arc<dyn Disk>),
    /// Where the configuration says.
    Outside(Arc<dyn LogProvider>),
}

/// The places outside of the aggregate where its log may be.
pub(crate) fn outside(engine: &Engine, aggregate: AggregateUuid) -> Vec<Arc<dyn LogProvider>> {
    let logs = &engine.configuration.logs;
    let places = logs.places(aggregate);
    if places.is_empty() {
        return vec![Arc::clone(logs)];
    }
    places.into_iter().map(|place| place.provider).collect()
}

/// Whether a copy of the log may be on the aggregate's own disks.
pub(crate) fn has_room(store: &dyn ManagedStore) -> bool {
    store.geometry().groups().iter().any(|group| group.log_regions > 0)
}

/// Whether a log is in one place outside, and never had another.
pub(crate) fn is_alone(
    engine: &Engine,
    store: &dyn ManagedStore,
    aggregate: AggregateUuid,
) -> bool {
    let places = engine.configuration.logs.places(aggregate).len();
    places < 2 && !has_room(store) && store.log_copies().whole() == [0]
}

/// A place for a new log.
pub(crate) fn for_a_new_one(
    engine: &Engine,
    store: &dyn ManagedStore,
    aggregate: AggregateUuid,
) -> Result<Arc<dyn Disk>, String> {
    let logs = &engine.configuration.logs;
    let mut lasting = store.log_places().into_iter().filter(|place| place.is_lasting);
    let on_disk = logs.is_on_disks().then(|| lasting.next()).flatten();
    on_disk.map_or_else(|| logs.create(aggregate), |place| Ok(place.disk))
}

/// The places where an aggregate's log should be, and how many of them should have a copy.
pub(crate) fn wanted(engine: &Engine, aggregate: &Aggregate) -> (Vec<WantedPlace>, usize) {
    let logs = &engine.configuration.logs;
    if logs.is_on_disks() {
        let places = on_disks(aggregate);
        if !places.is_empty() {
            let groups = aggregate.parts.store.geometry();
            let failing = groups.groups().iter().map(|group| group.kind.parity_disks()).max();
            let spared = usize::from(mutation::broken(Rule::LogCopyLacking));
            let copies = (failing.unwrap_or(0) + 1 - spared).clamp(1, LOG_COPIES_MAX);
            let copies = copies.min(places.len());
            return (places, copies);
        }
    }
    let places = logs.places(aggregate.parts.identity.aggregate).into_iter();
    let wanted =
        |LogPlace { name, provider }| WantedPlace { name, kind: PlaceKind::Outside(provider) };
    let places: Vec<WantedPlace> = places.map(wanted).collect();
    let count = places.len();
    (places, count)
}

/// The places on disks that stay. The log leaves a group that leaves, for as many copies as the
/// other groups have disks for: it survives what these survive, and they have all that is new.
fn on_disks(aggregate: &Aggregate) -> Vec<WantedPlace> {
    let leaving = aggregate.evacuation().map(|leaving| leaving.group);
    let places = aggregate.parts.store.log_places().into_iter();
    let stays = |place: &raid::LogPlace| {
        Some(place.place.group) != leaving || mutation::broken(Rule::LogStaysInGroup)
    };
    let staying = places.filter(|place| place.is_lasting && stays(place));
    let wanted = |place: raid::LogPlace| WantedPlace {
        name: place.disk.name().to_owned(),
        kind: PlaceKind::OnDisk(place.disk),
    };
    staying.map(wanted).collect()
}

/// Whether a copy of an aggregate's log is on its own disks.
pub(crate) fn is_on_disks(aggregate: &Aggregate) -> bool {
    let copies = aggregate.parts.log.copies();
    let places = aggregate.parts.store.log_places();
    places.iter().any(|place| copies.iter().any(|copy| copy.disk == place.disk.name()))
}

/// Regions of each of these disks that a new aggregate keeps for its log.
pub(crate) fn regions_for_log(
    logs: &dyn LogProvider,
    disks: &[Arc<dyn Disk>],
    media: Option<Profile>,
) -> u64 {
    let is_object =
        |disk: &Arc<dyn Disk>| media.unwrap_or_else(|| Profile::of(&**disk)) == Profile::Object;
    if !logs.is_on_disks() || disks.iter().any(is_object) {
        return 0;
    }
    let smallest = disks.iter().map(|disk| disk.size_blocks()).min().unwrap_or(0);
    logs.blocks_on_disks(smallest) / REGION_BLOCKS as u64
}
