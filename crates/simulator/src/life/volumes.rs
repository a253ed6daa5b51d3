//! Volumes that come and go during a life.
//!
//! Invariants: one change is under way at a time. After a crash it has happened or not; everything
//! else is as it was.

use super::Life;
use crate::machine::AGGREGATE;
use crate::machine::logs::is_neighbours;
use crate::plan::VolumePlan;
use crate::seed::finding::Finding;
use crate::seed::reduction::Calm;
use crate::tenant::subject::snapshot_name;
use crate::tenant::{Base, Tenant};
use aggregate::AggregateError;
use dblade::{
    AutogrowMax, CloneRequest, EngineError, Guarantee, SnapshotAutodelete, VolumeChange,
    VolumeRequest, room_blocks_max,
};
use model_fs::Image;
use platform::completion::{Promise, promise};

/// Volumes that there may be at a time.
const VOLUMES_MAX: usize = 4;
/// Mode of a flexible volume's root: everyone may make files in it.
const ROOT_MODE: u16 = 0o777;
/// Mode of the root of a traditional volume, which the engine chooses.
const TRADITIONAL_ROOT_MODE: u32 = 0o755;

/// A change of the set of volumes that was asked for.
pub(crate) enum Change {
    Create(String, VolumePlan, Promise<Result<(), EngineError>>),
    Clone(Box<NewClone>, Promise<Result<(), EngineError>>),
    Delete(String, Promise<Result<(), EngineError>>),
}

/// A clone that was asked for.
pub(crate) struct NewClone {
    name: String,
    plan: VolumePlan,
    parent: String,
    snapshot: u8,
    /// What the snapshot has.
    image: Image,
}

impl Change {
    /// In words, behind other words.
    pub fn describe(&self) -> String {
        match self {
            Self::Create(name, ..) => format!("; create volume {name}"),
            Self::Clone(clone, _) => format!("; create clone {}", clone.name),
            Self::Delete(name, _) => format!("; delete volume {name}"),
        }
    }

    /// The volume that it deletes, if it deletes one.
    pub fn deleted(&self) -> Option<&str> {
        match self {
            Self::Delete(name, _) => Some(name),
            Self::Create(..) | Self::Clone(..) => None,
        }
    }

    /// Whether it deletes this volume.
    pub fn deletes(&self, name: &str) -> bool {
        self.deleted() == Some(name)
    }
}

impl Life<'_> {
    /// The volume that a traditional aggregate is.
    pub fn tenants_of_aggregate(&mut self) -> Result<(), Finding> {
        let Some(plan) = self.machine.plan.volumes.first().copied() else { return Ok(()) };
        if self.machine.plan.is_traditional && self.tenants.is_empty() {
            self.add_tenant(AGGREGATE.to_owned(), plan, TRADITIONAL_ROOT_MODE)?;
        }
        Ok(())
    }

    /// Makes the volumes that there are from the start, as far as they are missing.
    pub fn make_volumes(&mut self) -> Result<(), Finding> {
        let volumes = self.machine.plan.volumes.clone();
        for plan in volumes.into_iter().skip(self.tenants.len()) {
            self.request_volume(plan);
            self.machine.drive_until("create volume", |_| {
                self.change.as_ref().is_none_or(Change::is_answered)
            })?;
            self.poll_change()?;
        }
        Ok(())
    }

    fn request_volume(&mut self, plan: VolumePlan) {
        let name = format!("v{}", self.next_name);
        // Every other volume learns that it grows once it is full.
        let grows = self.next_name.is_multiple_of(2);
        self.next_name += 1;
        let request = VolumeRequest {
            // The others have snapshots of schedules, which go by themselves.
            autodelete: match grows {
                true => SnapshotAutodelete::Off,
                false => SnapshotAutodelete::Scheduled,
            },
            root: (0, 0, ROOT_MODE),
            autogrow_max: AutogrowMax(if grows { plan.autogrow_max_blocks } else { 0 }),
            guarantee: self.guarantee(plan.size_blocks),
            ..VolumeRequest::new(&name, AGGREGATE, plan.size_blocks)
        };
        self.machine.trace.note(format!("create volume {name} of {} blocks", plan.size_blocks));
        let engine = &self.machine.engine;
        let promise = promise(|done| engine.create_volumes(request, done));
        self.change = Some(Change::Create(name, plan, promise));
    }

    /// What a volume of this size may be guaranteed: nothing that would leave the others without.
    fn guarantee(&mut self, size_blocks: u64) -> Guarantee {
        let Some(aggregate) = self.machine.aggregate() else { return Guarantee::None };
        let free = aggregate.parts.shared.budget.free_blocks();
        let has_room = room_blocks_max(size_blocks) <= free / 4 * 3;
        match self.machine.plan.guarantees && has_room && self.events.chance(70) {
            true => {
                self.machine.trace.meet("guarantees: a new volume has one");
                Guarantee::Volume
            }
            false => Guarantee::None,
        }
    }

    /// An administrator gives a volume a guarantee, or takes it away.
    fn change_guarantee(&mut self) {
        let index = self.events.index(self.tenants.len());
        let Some(tenant) = self.tenants.get(index) else { return };
        let engine = &self.machine.engine;
        let Some(served) = engine.volume_named(&tenant.name) else { return };
        let guarantee = match served.guarantee() {
            Guarantee::None => Guarantee::Volume,
            Guarantee::Volume => Guarantee::None,
        };
        let change = VolumeChange { guarantee: Some(guarantee), ..VolumeChange::default() };
        // It is refused where there is no room.
        engine.change_volume(&tenant.name, change, Box::new(drop));
        self.machine.trace.meet("guarantees: one is given or taken away");
    }

    fn add_tenant(&mut self, name: String, plan: VolumePlan, mode: u32) -> Result<(), Finding> {
        let tenant = Tenant::new(&mut self.machine, name.clone(), plan, mode);
        if matches!(tenant, Err(Finding::Refused { .. })) && self.machine.has_damaged(&name) {
            // It is listed, and nobody works on it.
            self.machine.trace.meet("damage: a new volume cannot be loaded");
            return Ok(());
        }
        let mut tenant = tenant?;
        tenant.is_damaged |= self.machine.has_damaged(&tenant.name);
        tenant.has_schedule = true;
        self.tenants.push(tenant);
        Ok(())
    }

    /// Makes or deletes a volume now and then.
    pub fn change_volumes(&mut self) {
        let is_calm = self.reduction.is_calm(Calm::Changes);
        if self.change.is_some() || self.machine.plan.is_traditional || is_calm {
            return;
        }
        if self.machine.plan.guarantees && self.events.chance(50) {
            return self.change_guarantee();
        }
        if self.tenants.len() < VOLUMES_MAX && self.events.chance(60) {
            if self.events.chance(60) && self.request_clone() {
                return;
            }
            let plan = self.machine.plan.another_volume(&mut self.events);
            self.request_volume(plan);
        } else if self.tenants.len() > 1 {
            let index = self.events.index(self.tenants.len());
            let Self { tenants, machine, .. } = self;
            let Some(tenant) = tenants.get_mut(index).filter(|tenant| tenant.is_idle()) else {
                return;
            };
            if !tenant.bases.is_empty() {
                if tenant.bases.iter().any(|base| base.is_certain) {
                    tenant.ask_to_delete(machine);
                }
                return;
            }
            let name = tenant.name.clone();
            self.machine.trace.note(format!("delete volume {name}"));
            self.bases_of(&name).for_each(|base| base.is_certain = false);
            let engine = &self.machine.engine;
            let promise = promise(|done| engine.delete_volume(&name, done));
            self.change = Some(Change::Delete(name, promise));
        }
    }

    /// Asks for a clone of a snapshot, if there is one in a volume that nothing is asked of now.
    fn request_clone(&mut self) -> bool {
        let index = self.events.index(self.tenants.len());
        // What damage to shared blocks may cost is not known here.
        if self.machine.plan.is_damaged {
            return false;
        }
        let Some(tenant) = self.tenants.get_mut(index).filter(|tenant| tenant.is_idle()) else {
            return false;
        };
        if tenant.snapshots.is_empty() || tenant.is_damaged {
            return false;
        }
        let snapshot = self.events.pick(&tenant.snapshots);
        let Some(image) = tenant.model.subject.snapshot_image(snapshot).cloned() else {
            return false;
        };
        let name = format!("v{}", self.next_name);
        self.next_name += 1;
        // From now on the snapshot stays, or there is no clone.
        tenant.bases.push(Base { snapshot, clone: name.clone(), is_certain: false });
        let parent = tenant.name.clone();
        let plan = self.machine.plan.another_volume(&mut self.events);
        let plan = VolumePlan { durability: plan.durability, ..tenant.plan };
        self.machine.trace.note(format!("clone {parent} at {} as {name}", snapshot_name(snapshot)));
        let engine = &self.machine.engine;
        let request = CloneRequest {
            names: vec![name.clone()],
            volume: parent.clone(),
            snapshot: snapshot_name(snapshot),
            guarantee: None,
            exports: Vec::new(),
        };
        let promise = promise(|done| engine.create_clones(request, done));
        let clone = NewClone { name, plan, parent, snapshot, image };
        self.change = Some(Change::Clone(Box::new(clone), promise));
        true
    }

    /// A volume that is there. The change is not over before clients can work on it, through
    /// power cuts.
    fn add_volume(
        &mut self,
        name: String,
        plan: VolumePlan,
        promise: Promise<Result<(), EngineError>>,
    ) -> Result<(), Finding> {
        let added = self.add_tenant(name.clone(), plan, u32::from(ROOT_MODE));
        if added.is_err() {
            self.change = Some(Change::Create(name, plan, promise));
        }
        added
    }

    /// A clone that is there: it has what the snapshot has. The change is not over before that is
    /// known, through power cuts.
    fn add_clone(
        &mut self,
        clone: Box<NewClone>,
        promise: Promise<Result<(), EngineError>>,
    ) -> Result<(), Finding> {
        let NewClone { name, plan, image, snapshot, .. } = &*clone;
        let tenant = Tenant::new(&mut self.machine, name.clone(), *plan, u32::from(ROOT_MODE));
        let tenant = tenant.and_then(|mut tenant| {
            tenant.begin_as_clone(&mut self.machine, (*snapshot, image))?;
            tenant.has_schedule = true;
            Ok(tenant)
        });
        match tenant {
            Ok(tenant) => self.tenants.push(tenant),
            Err(finding) => {
                self.change = Some(Change::Clone(clone, promise));
                return Err(finding);
            }
        }
        self.bases_of(name).for_each(|base| base.is_certain = true);
        Ok(())
    }

    fn bases_of(&mut self, clone: &str) -> impl Iterator<Item = &mut Base> {
        let all = self.tenants.iter_mut().flat_map(|tenant| &mut tenant.bases);
        all.filter(move |base| base.clone == clone)
    }

    /// A clone is gone, or was not made: its parent's snapshot may go.
    fn unpin(&mut self, clone: &str) {
        for tenant in &mut self.tenants {
            tenant.bases.retain(|base| base.clone != clone);
        }
    }

    /// Takes in the end of a change.
    pub fn poll_change(&mut self) -> Result<(), Finding> {
        let outcome = self.change.as_ref().and_then(|change| change.promise().lock().take());
        let Some(outcome) = outcome else { return Ok(()) };
        let change = self.change.take();
        let is_full = match &outcome {
            Err(EngineError::Aggregate(AggregateError::Full)) => true,
            // Room that there was when the volume was asked for.
            Err(EngineError::Aggregate(AggregateError::Refused(text))) => {
                self.machine.plan.guarantees && text.contains("would be guaranteed")
            }
            _ => false,
        };
        if is_full && matches!(change, Some(Change::Create(..) | Change::Clone(..))) {
            self.machine.trace.meet("no space for a volume");
            if let Some(Change::Clone(clone, _)) = change {
                self.unpin(&clone.name);
            }
            return Ok(());
        }
        if let Err(error) = &outcome {
            let request = change.as_ref().map(Change::describe).unwrap_or_default();
            let request = request.trim_start_matches("; ").to_owned();
            let refused = self.machine.refused(&request, &error.to_string());
            // What was refused because the power goes may have happened all the same.
            self.change = change.filter(|_| matches!(refused, Finding::PowerCut | Finding::Outage));
            return Err(refused);
        }
        match change {
            Some(Change::Create(name, plan, promise)) => {
                self.machine.trace.meet("volume created");
                self.add_volume(name, plan, promise)
            }
            Some(Change::Clone(clone, promise)) => {
                let parent = self.tenants.iter().find(|tenant| tenant.name == clone.parent);
                let is_second = parent.is_some_and(|parent| parent.is_clone);
                self.machine.trace.meet("clone created");
                if is_second {
                    self.machine.trace.meet("clone of a clone created");
                }
                self.add_clone(clone, promise)
            }
            Some(Change::Delete(name, _)) => {
                self.machine.trace.meet("volume deleted");
                self.tenants.retain(|tenant| tenant.name != name);
                self.unpin(&name);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Which volumes there are: those that there were, and those of a change under way as it likes.
    pub fn recover_volumes(&mut self) -> Result<(), Finding> {
        let volumes = self.machine.engine.volumes();
        let ours = volumes.iter().filter(|served| !is_neighbours(&served.name()));
        let mut found: Vec<String> = ours.map(|served| served.name()).collect();
        match self.change.take() {
            Some(Change::Create(name, plan, promise)) if found.contains(&name) => {
                self.machine.trace.meet("crash: while a volume is created");
                self.add_volume(name, plan, promise)?;
            }
            Some(Change::Create(..)) => {
                self.machine.trace.meet("crash: before a volume is created");
            }
            Some(Change::Clone(clone, promise)) if found.contains(&clone.name) => {
                self.machine.trace.meet("crash: while a clone is created");
                self.add_clone(clone, promise)?;
            }
            Some(Change::Clone(clone, _)) => {
                self.machine.trace.meet("crash: before a clone is created");
                self.unpin(&clone.name);
            }
            Some(Change::Delete(name, _)) if !found.contains(&name) => {
                self.machine.trace.meet("crash: while a volume is deleted");
                self.tenants.retain(|tenant| tenant.name != name);
                self.unpin(&name);
            }
            _ => {}
        }
        for base in self.tenants.iter_mut().flat_map(|tenant| &mut tenant.bases) {
            base.is_certain = true; // no change of volumes is under way
        }
        let mut expected: Vec<String> =
            self.tenants.iter().map(|tenant| tenant.name.clone()).collect();
        expected.sort();
        found.retain(|name| expected.contains(name) || !self.machine.has_damaged(name));
        if expected == found {
            return Ok(());
        }
        Err(Finding::Listing {
            what: "volumes".to_owned(),
            expected: format!("{expected:?}"),
            found: format!("{found:?}"),
        })
    }
}

impl Change {
    const fn promise(&self) -> &Promise<Result<(), EngineError>> {
        match self {
            Self::Create(_, _, promise) | Self::Clone(_, promise) | Self::Delete(_, promise) => {
                promise
            }
        }
    }

    fn is_answered(&self) -> bool {
        self.promise().lock().is_some()
    }
}
