//! The comparison against services that are wrong on purpose: each must be caught, the right one
//! never.
//!
//! A mutant is the memory backend behind a wrapper that falsifies one kind of call. A wrapper that
//! answers late shows that nobody relies on an answer before the call returns.

mod wrapper;

use crate::build::Translation;
use crate::{
    Mismatch, Mix, Model, Operation, PlainSubject, Runner, SnapshotAction, Subject, Tolerance,
    compare_images, compare_run, compare_step, operation_strategy,
};
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{Durability, FileHandle, FileService, FsError};
use platform::Clock;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use units::Timestamp;
use wrapper::{Bug, Wrapper};

/// A clock that ticks otherwise than the model's.
struct OtherClock(AtomicI64);

impl Clock for OtherClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(12_345, Ordering::Relaxed))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

fn memory() -> Arc<MemoryFileSystem> {
    let clock = Arc::new(OtherClock(AtomicI64::new(1_700_000_000_000_000_000)));
    let service = MemoryFileSystem::new(clock);
    let options = VolumeOptions { root_mode: 0o777, ..VolumeOptions::default() };
    // Other inode numbers than the model's, and another volume.
    service.add_volume("first", options).unwrap();
    service.add_volume("vol", options).unwrap();
    Arc::new(service)
}

fn plain(service: Arc<dyn FileService>) -> PlainSubject {
    PlainSubject { service, volume: "vol".to_owned() }
}

fn model() -> Runner<Model> {
    Runner::model(Model::with_own_limits(0o777), Durability::Logged)
}

fn compare(
    service: Arc<dyn FileService>,
    operations: &[Operation],
    drive: &mut dyn FnMut(),
) -> Result<(), Mismatch> {
    let mut model = model();
    let mut subject = Runner::new(plain(service), Durability::Logged, drive).unwrap();
    let result = compare_run(&mut model, &mut subject, operations, (Tolerance::STRICT, 100), drive);
    model.subject.verify();
    result
}

#[test]
fn a_right_service_agrees() {
    for (seed, mix) in (0..24).zip([Mix::EVERYTHING, Mix::NAMES, Mix::DATA].into_iter().cycle()) {
        let operations = mix.operations(seed, 600);
        compare(memory(), &operations, &mut || {}).unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

#[test]
fn the_mix_reaches_every_operation_and_mostly_succeeds() {
    let mut model = model();
    let (mut kinds, mut done) = (std::collections::BTreeMap::<String, [u32; 2]>::new(), 0);
    let operations = Mix::WITH_SNAPSHOTS.operations(7, 20_000);
    for operation in &operations {
        let kind = format!("{operation:?}");
        let kind = kind.split([' ', '(']).next().unwrap().to_owned();
        let success = model.run(operation, &mut || {}).is_success();
        kinds.entry(kind).or_default()[usize::from(success)] += 1;
        done += usize::from(success);
    }
    assert_eq!(kinds.len(), 27, "{kinds:?}");
    for (kind, [refused, done]) in &kinds {
        let never_refused = ["Statistics", "Hold", "Release", "Attributes", "Access"];
        let may_be_rare = never_refused.contains(&kind.as_str()) || *refused > 10;
        assert!(*done > 5 && may_be_rare, "{kind}: {refused} refused, {done} done");
    }
    assert!(done * 3 > operations.len(), "{done} done: {kinds:?}");
}

#[test]
fn every_mutant_is_caught() {
    for bug in Bug::ALL {
        let caught = (0..40).find_map(|seed| {
            let mix = [Mix::EVERYTHING, Mix::NAMES, Mix::DATA][seed as usize % 3];
            let service = Arc::new(Wrapper::new(memory(), Some(bug)));
            compare(service, &mix.operations(seed, 500), &mut || {}).err()
        });
        let caught = caught.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        assert!(caught.to_string().lines().count() >= 1);
    }
}

#[test]
fn answers_may_come_later() {
    for seed in 0..4 {
        let service = Arc::new(Wrapper::new(memory(), None));
        let late = Arc::clone(&service);
        late.answer_late();
        let mut turns = 0_u32;
        let mut drive = || {
            turns += 1;
            late.answer_one();
        };
        let operations = Mix::EVERYTHING.operations(seed, 300);
        compare(service, &operations, &mut drive).unwrap_or_else(|mismatch| panic!("{mismatch}"));
        assert!(turns > 200);
    }
}

#[test]
fn a_service_without_room_is_tolerated() {
    let clock = Arc::new(OtherClock(AtomicI64::new(1_700_000_000_000_000_000)));
    let service = MemoryFileSystem::new(clock);
    let options = VolumeOptions { blocks_max: 40, files_max: 12, root_mode: 0o777 };
    service.add_volume("vol", options).unwrap();
    let (mut model, mut refused) = (model(), 0);
    let subject = plain(Arc::new(service));
    let mut subject = Runner::new(subject, Durability::Logged, &mut || {}).unwrap();
    for step in Mix::EVERYTHING.operations(3, 1500).iter().enumerate() {
        let seen = compare_step(&mut model, &mut subject, step, Tolerance::WIDE, &mut || {});
        let no_space = crate::Observation::Failed(FsError::NoSpace);
        refused += u32::from(seen.unwrap_or_else(|mismatch| panic!("{mismatch}")) == no_space);
    }
    compare_images(&model, &subject, 1500, &mut || {}).unwrap();
    assert!(refused > 20, "{refused}");
}

/// The model as a subject: it has snapshots, and shows them by their images.
struct ModelSubject(Model);

impl Subject for ModelSubject {
    fn service(&self) -> Arc<dyn FileService> {
        self.0.service()
    }

    fn volume(&self) -> &str {
        self.0.volume()
    }

    fn snapshot(
        &mut self,
        action: SnapshotAction,
        drive: &mut dyn FnMut(),
    ) -> Result<Translation, FsError> {
        self.0.snapshot(action, drive)
    }

    fn snapshot_root(&self, _: u8, _: &mut dyn FnMut()) -> Option<FileHandle> {
        None
    }
}

#[test]
fn snapshots_and_restores_agree() {
    for seed in 0..8 {
        let mut model = model();
        let subject = ModelSubject(Model::with_own_limits(0o777));
        let mut subject = Runner::new(subject, Durability::Logged, &mut || {}).unwrap();
        let operations = Mix::WITH_SNAPSHOTS.operations(seed, 600);
        let how = (Tolerance::STRICT, 50);
        compare_run(&mut model, &mut subject, &operations, how, &mut || {})
            .unwrap_or_else(|mismatch| panic!("{mismatch}"));
    }
}

#[test]
fn a_restore_brings_the_tree_back() {
    let mut model = model();
    let before = Mix::EVERYTHING.operations(11, 400);
    before.iter().for_each(|operation| drop(model.run(operation, &mut || {})));
    model.run(&Operation::Snapshot(SnapshotAction::Create(0)), &mut || {});
    let image = model.image(&mut || {}).unwrap();
    assert!(image.nodes.len() > 10, "{} files", image.nodes.len());
    let after = Mix::EVERYTHING.operations(12, 400);
    after.iter().for_each(|operation| drop(model.run(operation, &mut || {})));
    assert_ne!(image.difference(&model.image(&mut || {}).unwrap()), []);
    model.run(&Operation::Snapshot(SnapshotAction::Restore(0)), &mut || {});
    assert_eq!(image.difference(&model.image(&mut || {}).unwrap()), []);
}

#[test]
fn the_model_follows_a_service_over_a_restart() {
    for seed in 0..12 {
        let mut model = model();
        let service = memory();
        let mut subject =
            Runner::new(plain(service.clone()), Durability::Logged, &mut || {}).unwrap();
        let how = (Tolerance::STRICT, 100);
        for epoch in 0..4 {
            let operations = Mix::EVERYTHING.operations(seed * 10 + epoch, 200);
            // What is held would outlive a real restart no more than here.
            let holds = |one: &Operation| {
                let makes = matches!(one, Operation::CreateUnnamed { .. });
                makes || matches!(one, Operation::Hold { .. } | Operation::Release { .. })
            };
            let operations: Vec<_> = operations.into_iter().filter(|one| !holds(one)).collect();
            compare_run(&mut model, &mut subject, &operations, how, &mut || {})
                .unwrap_or_else(|mismatch| panic!("epoch {epoch}: {mismatch}"));
            subject.executor.restarted(service.clone());
            let found = subject.image(&mut || {}).unwrap();
            model.follow(&subject, &found);
            compare_images(&model, &subject, 0, &mut || {}).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_strategy_agrees_as_well(
        operations in prop::collection::vec(operation_strategy(Mix::EVERYTHING), 1..150),
    ) {
        compare(memory(), &operations, &mut || {}).map_err(|mismatch| {
            TestCaseError::fail(mismatch.to_string())
        })?;
    }
}
