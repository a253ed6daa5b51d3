//! Aggregates that are made.
//!
//! Invariants: a dry run opens and looks, and writes nothing.

use crate::aggregates::growth;
use crate::aggregates::requested::{given_media, stored_kind};
use crate::aggregates::room::Aggregates;
use crate::aggregates::taking::Consent;
use crate::aggregates::view::empty;
use crate::exports;
use crate::refusals::taken;
use admin_api::{AdminError, AggregateCreate, AggregateInfo, AggregateState, Protection, SpareAdd};
use dblade::CreateAggregate;

const CREATE: &str = "cannot create aggregate";

impl Aggregates {
    pub(crate) fn create_aggregate(
        &self,
        wanted: &AggregateCreate,
    ) -> Result<AggregateInfo, AdminError> {
        let _turn = self.node.turn();
        let is_known = self.aggregate_list().iter().any(|known| known.name == wanted.name);
        if is_known && !self.is_remainder_erased(wanted) {
            return Err(self.taken_by_remainder(&wanted.name));
        }
        if wanted.traditional && self.node.engine.volume_named(&wanted.name).is_some() {
            return Err(taken("volume", &wanted.name));
        }
        let object = (CREATE, wanted.name.as_str());
        let media = given_media(object, wanted.media.as_deref())?;
        // All at once, so that none is named twice.
        let mut disks = self.disks.open_free(&[&*wanted.disks, &*wanted.spares].concat())?;
        let for_spares = disks.split_off(wanted.disks.len());
        let log_regions = self.node.engine.log_regions_of_new(&disks, media);
        let shape = (wanted.raid, wanted.group_size, 0);
        let mut planned = growth::plan(object, shape, &disks, |_, _| log_regions)?;
        planned.set_media(media);
        // All that is left of an aggregate of this name is erased, or the name is refused above.
        let abandoned = [wanted.abandoned.as_slice(), std::slice::from_ref(&wanted.name)].concat();
        let consent = Consent { force: wanted.force, abandoned: &abandoned };
        self.check_takable(object, consent, &disks)?;
        let spares = SpareAdd {
            aggregate: wanted.name.clone(),
            disks: wanted.spares.clone(),
            force: wanted.force,
            abandoned,
            dry_run: wanted.dry_run,
        };
        self.check_spares(&spares, &for_spares)?;
        // They are opened again when the aggregate is there.
        drop(for_spares);
        if wanted.dry_run {
            return Ok(AggregateInfo {
                raid: wanted.raid,
                protection: Protection::of(&planned.disks),
                traditional: wanted.traditional,
                state: AggregateState::Online,
                size_bytes: planned.size_bytes,
                free_bytes: planned.size_bytes,
                data_disks: planned.data_disks,
                parity_disks: planned.parity_disks,
                groups: planned.groups,
                disks: planned.disks,
                ..empty(&wanted.name)
            });
        }
        let create = CreateAggregate {
            name: wanted.name.clone(),
            disks: disks.clone(),
            kind: stored_kind(wanted.raid),
            group_size: growth::disks_of_group(wanted.group_size),
            force: wanted.force,
            traditional: wanted.traditional,
            media,
        };
        let engine = &self.node.engine;
        let made = self
            .node
            .waits
            .request(CREATE, &wanted.name, |done| engine.create_aggregate(create, done));
        if let Err(error) = made {
            drop(disks);
            // What was begun is taken back by now, or as soon as a disk or a journal that hangs
            // answers.
            self.node.waits.await_closing(|| !engine.is_closing());
            return Err(error);
        }
        self.disks.hold(&wanted.name, &disks);
        self.forget_offline(&disks);
        if let Some(volume) = engine.volume_named(&wanted.name).filter(|_| wanted.traditional) {
            exports::publish(&*self.node.front_ends, &volume);
        }
        tracing::info!(aggregate = wanted.name, disks = wanted.disks.len(), "aggregate created");
        if !spares.disks.is_empty() {
            self.add_spares_in_turn(&spares).map_err(|error| without_spares(error, wanted))?;
        }
        self.aggregate(&wanted.name)
    }
}

/// What went wrong with spares, of an aggregate that was made.
fn without_spares(error: AdminError, wanted: &AggregateCreate) -> AdminError {
    let name = &wanted.name;
    error
        .because(format!("aggregate {name} was made, and is in service without this spare"))
        .try_next(format!("stroop disk list, and stroop disk spare add DISK --aggr {name}"))
}
