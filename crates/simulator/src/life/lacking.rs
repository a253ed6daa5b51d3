//! Features that the build lacks, at the end of a life: a newer build seems to have written a disk
//! label, a superblock, the log's header or a volume's record, with one bit more in the features
//! and a checksum that is right. Then the node starts.
//!
//! | a feature of | that is | what must hold |
//! | --- | --- | --- |
//! | a label, a superblock, the log's header | incompatible, read-only compatible | the start is refused by the feature's name, and no byte of any disk changes |
//! | a volume | incompatible | the volume is out of service, and its record stays |
//! | a volume | read-only compatible | its content is served, changes are refused, its record stays |
//! | any of them | compatible | everything works, and the bit is there after consistency points |
//!
//! With the bit gone everything is there. Of a label and a superblock one copy has the bit or all
//! have; before the start the node was stopped or the power went under load.
//!
//! Invariants: such a life has no faults of disks, so that what is refused is refused for the
//! feature. The choices are their own, and begin when everything else of the life has ended.

use super::Life;
use crate::machine::cut::Cut;
use crate::machine::disks::{is_joined_disk, is_own_disk};
use crate::machine::logs::LOG_DISK;
use crate::machine::{AGGREGATE, Machine};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::tenant::{Tenant, listed_snapshots};
use aggregate::{Acted, AggregateError, FreezeScope};
use dblade::{EngineError, Reallocation, Tiering, VolumeChange};
use file_service::{Caller, CreateMode, FileService, FsError, SetAttributes, calls};
use media::{SUPERBLOCK_BLOCK, SUPERBLOCK_SLOTS};
use ondisk::features::{FEATURE_NAME_BYTES_MAX, FeatureClass, FeatureName, FeatureScope};
use ondisk::label::DiskLabel;
use ondisk::log::{LOG_HEADER_BLOCKS, LogHeader};
use ondisk::newer::with_feature;
use ondisk::records::VolumeRecord;
use ondisk::root::Superblock;
use platform::Disk;
use platform::completion::promise;
use platform::simulated::Fate;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{Block, BlockRef};
use volume::VolumeDamage;

/// The bit and the name of the feature.
const LATER: (u8, &str) = (40, "later");
/// A byte of a record of which this build knows nothing.
const FEATURE_BYTE: usize = 9;
/// Operations before and after starts.
const OPERATIONS_MAX: u64 = 12;

/// What is known of one block: its disk, its number and what it holds.
type Found = (Arc<str>, u64, Option<BlockRef>);

impl Life<'_> {
    /// Whether nothing else may have a start refused, or a volume read-only.
    fn is_faultless(&self) -> bool {
        let plan = &self.machine.plan;
        let is_whole = plan.fault.is_none() && plan.lost_disks.is_empty() && !plan.has_outages;
        let is_well = !self.machine.damages.is_any()
            && !self.log_faults.is_any()
            && !self.log_copies.is_any()
            && !self.log_on_disks.is_any();
        is_whole && is_well && !self.neighbours.is_any() && !self.removals.has_begun
    }

    /// The end of a life with features that the build lacks, if it is one.
    pub(super) fn lack(&mut self) -> Result<(), Finding> {
        let is_faultless = self.is_faultless();
        let Some(mut choices) = self.lacking.0.take().filter(|_| is_faultless) else {
            return Ok(());
        };
        self.machine.arm(None);
        self.quotas.end();
        self.rest()?;
        // Records of volumes stay as they are from now on.
        self.tenants.iter_mut().for_each(|tenant| tenant.plan.autogrow_max_blocks = 0);
        let scopes = [
            FeatureScope::Disk,
            FeatureScope::Aggregate,
            FeatureScope::Log,
            FeatureScope::Volume,
            FeatureScope::Volume,
        ];
        let scope = choices.pick(&scopes);
        let may_lack = !self.machine.plan.is_traditional && !self.tenants.is_empty();
        for class in FeatureClass::ALL {
            match (scope, class) {
                (FeatureScope::Volume, _) if may_lack => self.volume_lacks(class, &mut choices)?,
                (FeatureScope::Volume, _) => {}
                (_, FeatureClass::Compatible) => self.feature_is_kept(scope, &mut choices)?,
                _ => self.start_is_refused((scope, class), &mut choices)?,
            }
        }
        Ok(())
    }

    /// The structures of a scope that a start takes for whole, by disk and block; those of disks
    /// that joined the aggregate, or were about to when the power went, if `joined`.
    fn copies(&self, scope: FeatureScope, joined: bool) -> Vec<(Arc<str>, u64)> {
        let world = &self.machine.world;
        let is_whole = |(name, block): &(Arc<str>, u64)| {
            let Some(block) = world.read_block(name, *block) else { return false };
            match scope {
                FeatureScope::Disk => DiskLabel::from_block(&block).is_ok(),
                FeatureScope::Aggregate => superblock(&block).is_some(),
                FeatureScope::Log => LogHeader::from_block(&block).is_ok(),
                FeatureScope::Volume => false,
            }
        };
        let names = world.disk_names().into_iter();
        let of_disk = |name: Arc<str>| {
            let end = world.disk(&name).map_or(0, |disk| disk.size_blocks());
            let blocks: Vec<u64> = match scope {
                FeatureScope::Log if &*name == LOG_DISK => (0..LOG_HEADER_BLOCKS).collect(),
                FeatureScope::Disk if is_own_disk(&name) => vec![0, end - 1],
                FeatureScope::Aggregate
                    if is_own_disk(&name) || joined && is_joined_disk(&name) =>
                {
                    (SUPERBLOCK_BLOCK..SUPERBLOCK_BLOCK + SUPERBLOCK_SLOTS as u64).collect()
                }
                _ => Vec::new(),
            };
            blocks.into_iter().map(move |block| (Arc::clone(&name), block)).collect::<Vec<_>>()
        };
        names.flat_map(of_disk).filter(is_whole).collect()
    }

    /// A newer build gives these structures the feature.
    fn give(&self, (scope, class): (FeatureScope, FeatureClass), to: &[(Arc<str>, u64)]) {
        let world = &self.machine.world;
        for (disk, block) in to {
            if let Some(mut old) = world.read_block(disk, *block) {
                if scope == FeatureScope::Aggregate
                    && let Some(superblock) = superblock(&old)
                {
                    old = Arc::new(superblock.to_block());
                }
                world.write_block(disk, *block, &with_feature(&old, scope, class, LATER));
            }
        }
    }

    /// What all disks hold.
    fn content(&self) -> Vec<Found> {
        let world = &self.machine.world;
        let all = world.disk_names().into_iter().flat_map(|name| {
            let end = world.disk(&name).map_or(0, |disk| disk.size_blocks());
            (0..end).map(move |block| (Arc::clone(&name), block))
        });
        let found = |(name, block): (Arc<str>, u64)| {
            let content = world.read_block(&name, block);
            (name, block, content)
        };
        all.map(found).collect()
    }

    /// An incompatible feature of a label, a superblock or the log refuses the start.
    fn start_is_refused(
        &mut self,
        (scope, class): (FeatureScope, FeatureClass),
        choices: &mut Choices,
    ) -> Result<(), Finding> {
        self.end_under_load(choices)?;
        let left = self.machine.world.snapshot();
        let mut copies = self.copies(scope, false);
        if choices.chance(60) {
            let only = copies.swap_remove(choices.index(copies.len()));
            copies = vec![only];
        }
        self.machine.trace.note(format!("a newer build gives {copies:?} a feature: {class}"));
        self.give((scope, class), &copies);
        let before = self.content();
        self.machine.start();
        let opened = self.machine.open_aggregate();
        let outcome = self.machine.wait("open aggregate", &opened)?;
        let told = outcome.map_or_else(|error| error.to_string(), |_| "opened".to_owned());
        if !told.contains(LATER.1) {
            return Err(Finding::Listing {
                what: format!("start of a build that lacks a feature ({class}) of the {scope}"),
                expected: "refused by the feature's name".to_owned(),
                found: told,
            });
        }
        // Whatever the start has begun comes to its end.
        self.machine.settle()?;
        self.machine.power_cut(Fate::AllKept);
        let after = self.content();
        let is_changed = |(old, new): &(Found, Found)| old != new;
        let changed = before.into_iter().zip(after).find(is_changed);
        if let Some(((disk, block, _), _)) = changed {
            let what = format!("block {block} of {disk} has changed");
            return Err(Finding::Media(format!("a start that was refused for {scope}: {what}")));
        }
        self.machine.world.restore(&left);
        self.open_again()?;
        self.check_recovered()?;
        self.machine.trace.meet(match scope {
            FeatureScope::Disk => "lacking: a label refuses the start",
            FeatureScope::Aggregate => "lacking: a superblock refuses the start",
            FeatureScope::Log => "lacking: the log refuses the start",
            FeatureScope::Volume => "lacking: a volume",
        });
        Ok(())
    }

    /// A compatible feature changes nothing, and stays.
    fn feature_is_kept(
        &mut self,
        scope: FeatureScope,
        choices: &mut Choices,
    ) -> Result<(), Finding> {
        self.end_under_load(choices)?;
        let copies = self.copies(scope, true);
        self.machine.trace.note(format!("a newer build gives all of {scope} a feature"));
        self.give((scope, FeatureClass::Compatible), &copies);
        self.open_again()?;
        self.check_recovered()?;
        self.exercise(choices.below(OPERATIONS_MAX), None)?;
        self.rest()?;
        let has_it = |(disk, block): &&(Arc<str>, u64)| {
            let Some(block) = self.machine.world.read_block(disk, *block) else { return false };
            let features = match scope {
                FeatureScope::Disk => DiskLabel::from_block(&block).map(|found| found.features),
                FeatureScope::Aggregate => {
                    Superblock::from_block(&block).map(|found| found.features)
                }
                _ => LogHeader::from_block(&block).map(|found| found.features),
            };
            features.is_ok_and(|features| features.compatible.get() >> LATER.0 & 1 == 1)
        };
        let copies = self.copies(scope, true);
        if let Some((disk, block)) = copies.iter().find(|copy| !has_it(copy)) {
            return Err(Finding::Listing {
                what: format!("compatible feature in block {block} of {disk}, of the {scope}"),
                expected: "kept".to_owned(),
                found: "dropped".to_owned(),
            });
        }
        self.machine.trace.meet("lacking: a compatible feature is kept");
        Ok(())
    }

    /// A volume has a feature that the build lacks; the others notice nothing.
    fn volume_lacks(&mut self, class: FeatureClass, choices: &mut Choices) -> Result<(), Finding> {
        let index = choices.index(self.tenants.len());
        let Some(name) = self.tenants.get(index).map(|tenant| tenant.name.clone()) else {
            return Ok(());
        };
        self.machine.trace.note(format!("a newer build gives {name} a feature: {class}"));
        let before = self.change_record(&name, move |record| {
            record.features.set_named(class, LATER.0, LATER.1);
            record.padding[FEATURE_BYTE] = 1;
        })?;
        self.stop_cleanly(choices)?;
        self.open_again()?;
        let is_served = class == FeatureClass::Compatible;
        let left_out = (!is_served).then_some(name.as_str());
        self.recover_others(&name, class)?;
        self.check_lacking(&name, class)?;
        self.exercise(OPERATIONS_MAX, left_out)?;
        self.machine.consistency_point()?;
        let is_stopped = choices.chance(50);
        self.tenants.iter_mut().for_each(Tenant::all_durable);
        if is_stopped {
            self.stop_cleanly(choices)?
        } else {
            self.cut(choices)
        }
        self.open_again()?;
        self.recover_others(&name, class)?;
        self.check_lacking(&name, class)?;
        let after = self.change_record(&name, move |record| {
            take_back(record, class);
        })?;
        check_record(&name, class, (before, after))?;
        self.stop_cleanly(choices)?;
        self.open_again()?;
        self.check_recovered()?;
        self.exercise(choices.below(OPERATIONS_MAX), None)?;
        self.machine.trace.meet(match class {
            FeatureClass::Compatible => "lacking: a volume with a compatible feature",
            FeatureClass::ReadOnlyCompatible => "lacking: a volume is read-only",
            FeatureClass::Incompatible => "lacking: a volume is out of service",
        });
        self.rest()
    }

    /// What the engine says of a volume, and whether it refuses to change it.
    fn check_lacking(&mut self, name: &str, class: FeatureClass) -> Result<(), Finding> {
        let Some(served) = self.machine.engine.volume_named(name) else {
            return Err(Finding::Open(format!("volume {name} is not there")));
        };
        let wrong = |expected: &str, found: String| {
            let what = format!("volume {name}, which has a feature that is {class}");
            Err(Finding::Listing { what, expected: expected.to_owned(), found })
        };
        let (damage, is_unreadable) = (served.damage(), served.is_unreadable());
        let is_told = matches!(damage, Some(VolumeDamage::Feature(_)));
        let is_right = match class {
            FeatureClass::Compatible => damage.is_none(),
            FeatureClass::ReadOnlyCompatible => is_told && !is_unreadable,
            FeatureClass::Incompatible => is_told && is_unreadable,
        };
        if !is_right {
            return wrong("what its class allows", format!("{damage:?}, {is_unreadable}"));
        }
        if class == FeatureClass::Compatible {
            return Ok(());
        }
        let refused = |outcome: Result<(), EngineError>| match outcome {
            Err(EngineError::Aggregate(AggregateError::NotUnderstood { .. })) => Ok(()),
            outcome => wrong("its record is not changed", format!("{outcome:?}")),
        };
        let engine = Arc::clone(&self.machine.engine);
        let asked = promise(|done| engine.set_exports(name, Vec::new(), done));
        refused(self.machine.wait("export rules", &asked)?)?;
        let asked = promise(|done| engine.set_tiering(name, Tiering::default(), done));
        refused(self.machine.wait("tiering", &asked)?)?;
        let off = Some(Reallocation::Off);
        let change = VolumeChange { reallocation: off, ..VolumeChange::default() };
        let asked = promise(|done| engine.change_volume(name, change, done));
        refused(self.machine.wait("reallocation", &asked)?)?;
        match (class, create_file(&mut self.machine, name)?) {
            (FeatureClass::ReadOnlyCompatible, Err(FsError::ReadOnly)) => Ok(()),
            (FeatureClass::Incompatible, Err(_)) => Ok(()),
            (_, outcome) => wrong("changes are refused", format!("{outcome:?}")),
        }
    }

    /// What is served is as it was: all volumes but one that is out of service.
    fn recover_others(&mut self, name: &str, class: FeatureClass) -> Result<(), Finding> {
        self.recover_volumes()?;
        let is_out = class == FeatureClass::Incompatible;
        let Self { machine, tenants, .. } = self;
        for tenant in tenants.iter_mut().filter(|tenant| !is_out || tenant.name != name) {
            let listed = listed_snapshots(machine, &tenant.name)?;
            tenant.recover(machine, &listed)?;
        }
        machine.settle()
    }

    /// Changes the record of a volume as a newer build would, durably; the record then.
    fn change_record(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut VolumeRecord) + Send + 'static,
    ) -> Result<VolumeRecord, Finding> {
        let Some(aggregate) = self.machine.aggregate() else {
            return Err(Finding::Open("the aggregate is not open".to_owned()));
        };
        let changed: Arc<Mutex<Option<VolumeRecord>>> = Arc::default();
        let (slot, name, mut change) = (Arc::clone(&changed), name.to_owned(), Some(change));
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            let side = scope.block_side();
            let found = side.table.iter().position(|slot| slot.record.name() == name);
            if let (Some(at), Some(change)) = (found, change.take()) {
                let record = &mut side.table[at].record;
                *slot.lock() = Some(*record);
                change(record);
                side.dirty_slots.insert(at);
            }
            Ok(Acted::Done)
        };
        let committed = promise(|done| aggregate.request_action(Box::new(action), done));
        let outcome = self.machine.wait("change a record", &committed)?;
        outcome.map_err(|error| self.machine.refused("change a record", &error.to_string()))?;
        let before = changed.lock().take();
        before.ok_or_else(|| Finding::Open(format!("{AGGREGATE} has no such record")))
    }

    /// Operations on all volumes, or on all but one, until they are answered.
    fn exercise(&mut self, count: u64, except: Option<&str>) -> Result<(), Finding> {
        let (mut left, mut idle) = (count, 0);
        loop {
            let number = self.next_operation;
            let mut choices = Choices::of(self.seed, Purpose::Operation, number);
            let Self { machine, tenants, .. } = self;
            let index = choices.index(tenants.len().max(1));
            if let Some(tenant) = tenants.get_mut(index).filter(|_| left > 0) {
                let is_passed = except == Some(tenant.name.as_str());
                if is_passed || tenant.start_operation(machine, number, choices)? {
                    left -= 1;
                    self.next_operation += 1;
                }
            }
            if self.machine.step() {
                idle = 0;
            } else {
                self.machine.pass_time();
                idle += 1;
            }
            let served = |tenant: &&mut Tenant| except != Some(tenant.name.as_str());
            for tenant in self.tenants.iter_mut().filter(served) {
                tenant.poll(&mut self.machine)?;
            }
            if (left == 0 || self.tenants.is_empty()) && self.tenants.iter().all(Tenant::is_idle) {
                return Ok(());
            }
            let waiting = || "operations beside a feature that is lacking".to_owned();
            self.machine.check_progress(idle / 8, waiting)?;
        }
    }

    /// Operations, and then the node is stopped, or the power goes at a moment of them.
    fn end_under_load(&mut self, choices: &mut Choices) -> Result<(), Finding> {
        let is_crash = choices.chance(60);
        let cut = is_crash.then(|| Cut::choose(choices, self.machine.trace.step));
        self.machine.arm(cut);
        let done = self.exercise(1 + choices.below(OPERATIONS_MAX), None);
        let done = done.and_then(|()| self.machine.consistency_point());
        self.machine.arm(None);
        match done {
            Err(Finding::PowerCut) => self.cut(choices),
            Ok(()) if is_crash => self.cut(choices),
            Ok(()) => self.stop_cleanly(choices)?,
            Err(finding) => return Err(finding),
        }
        Ok(())
    }

    /// A clean stop.
    fn stop_cleanly(&mut self, choices: &mut Choices) -> Result<(), Finding> {
        let engine = &self.machine.engine;
        let stopped = promise(|done| engine.stop(done));
        let stopped = self.machine.wait("stop", &stopped)?;
        stopped.map_err(|error| self.machine.refused("stop", &error.to_string()))?;
        self.cut(choices);
        Ok(())
    }

    fn cut(&mut self, choices: &mut Choices) {
        self.machine.cut_power(choices);
        self.forget_requests();
    }

    fn open_again(&mut self) -> Result<(), Finding> {
        self.machine.start();
        self.online_check.forget();
        let opened = self.machine.open_aggregate();
        let outcome = self.machine.wait("open aggregate", &opened)?;
        outcome.map(drop).map_err(|error| Finding::Open(error.to_string()))
    }
}

/// The superblock that a start finds in a block: also one of which a sector was torn that holds
/// nothing but one of its two numbers.
fn superblock(block: &Block) -> Option<Superblock> {
    Superblock::from_block(block).or_else(|_| Superblock::mended(block)).ok()
}

/// The feature is gone, as if the build that has it had given it up.
fn take_back(record: &mut VolumeRecord, class: FeatureClass) {
    let features = &mut record.features;
    let word = match class {
        FeatureClass::Compatible => &mut features.compatible,
        FeatureClass::ReadOnlyCompatible => &mut features.read_only_compatible,
        FeatureClass::Incompatible => &mut features.incompatible,
    };
    word.set(word.get() & !(1 << LATER.0));
    let is_it = |name: &&mut FeatureName| (name.class, name.bit) == (class.number(), LATER.0);
    if let Some(name) = features.names.iter_mut().find(is_it) {
        *name = FeatureName { class: 0, bit: 0, name: [0; FEATURE_NAME_BYTES_MAX] };
    }
    record.padding[FEATURE_BYTE] = 0;
}

/// What a build that lacks the feature must have left of a record. `before` is from before the
/// feature. Where blocks lie, and that they were moved, is the aggregate's to note.
fn check_record(
    name: &str,
    class: FeatureClass,
    (before, after): (VolumeRecord, VolumeRecord),
) -> Result<(), Finding> {
    let mut expected = before;
    expected.features = after.features;
    expected.object_blocks = after.object_blocks;
    if class == FeatureClass::Compatible {
        // Its blocks cool as before.
        expected.scan_started = after.scan_started;
        expected.scan_next = after.scan_next;
        // An administrator may choose another, and a full volume grows.
        expected.guarantee = after.guarantee;
        let sizes = before.size_blocks.get()..=before.autogrow_max_blocks.get();
        if sizes.contains(&after.size_blocks.get()) {
            expected.size_blocks = after.size_blocks;
        }
    }
    expected.padding[FEATURE_BYTE] = 1;
    let word = match class {
        FeatureClass::Compatible => after.features.compatible,
        FeatureClass::ReadOnlyCompatible => after.features.read_only_compatible,
        FeatureClass::Incompatible => after.features.incompatible,
    };
    let is_kept = word.get() >> LATER.0 & 1 == 1;
    let (expected, after) = (expected.to_block(), after.to_block());
    if is_kept && expected == after {
        return Ok(());
    }
    let bytes = expected.bytes().iter().zip(after.bytes());
    let first = bytes.enumerate().find(|(_, (one, other))| one != other).map(|(at, _)| at);
    Err(Finding::Listing {
        what: format!("record of {name}, which has a feature that is {class}"),
        expected: "as the newer build wrote it".to_owned(),
        found: format!("changed at byte {first:?}; the bit is kept: {is_kept}"),
    })
}

/// Asks for a file in the root of a volume.
fn create_file(machine: &mut Machine<'_>, name: &str) -> Result<Result<(), FsError>, Finding> {
    let (service, caller) = (Arc::clone(&machine.service), Caller::root());
    let root = promise(|done| service.root(&caller, calls::Root { name: name.to_owned() }, done));
    let directory = match machine.wait("root", &root)? {
        Ok(root) => root.handle,
        Err(error) => return Ok(Err(error)),
    };
    let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
    let create = calls::Create { directory, name: b"lacking".to_vec(), mode, set };
    let created = promise(|done| service.create(&caller, create, done));
    Ok(machine.wait("create", &created)?.map(drop))
}
