//! The operations against the memory backend, by `model-fs`: random sequences, with consistency
//! points between and amid them, every block waited for, snapshots, and crashes with replay.

mod acls;
mod big;
mod cases;
mod engine;
mod service;
mod unnamed;
mod verify;

use file_service::{Caller, Durability, FileHandle, FileService, FsError, calls};
use model_fs::answer::Answer;
use model_fs::build::Translation;
use model_fs::crash::Journal;
use model_fs::{
    Image, Mix, Model, Operation, Runner, SnapshotAction, Subject, Tolerance, compare_images,
    compare_run, compare_step,
};
use platform::Seeded;
use service::{Behaviour, Service};
use std::sync::Arc;

struct Volume(Arc<Service>);

impl Subject for Volume {
    fn service(&self) -> Arc<dyn FileService> {
        self.0.clone()
    }

    fn volume(&self) -> &str {
        "volume"
    }

    fn snapshot(
        &mut self,
        action: SnapshotAction,
        drive: &mut dyn FnMut(),
    ) -> Result<Translation, FsError> {
        let mut state = self.0.state.lock();
        let find = |state: &mut engine::State, number: u8| {
            let snapshots = &state.logical.get_mut().snapshots;
            snapshots.iter().position(|snapshot| snapshot.name == number.to_string())
        };
        match action {
            SnapshotAction::Create(number) if find(&mut state, number).is_some() => {
                return Err(FsError::Exists);
            }
            SnapshotAction::Create(number) => {
                drop(state);
                // The model's snapshot is an image, made by reading everything: times of last
                // read move.
                let root = Answer::to(|done| {
                    self.0.root(&Caller::root(), calls::Root { name: "volume".to_owned() }, done)
                })
                .wait(drive);
                let root = root.ok_or(FsError::TryLater)??.handle;
                Image::capture(&*self.0, root, drive).map_err(|_| FsError::Io)?;
                self.0.state.lock().make_snapshot(&number.to_string());
            }
            SnapshotAction::Delete(number) => {
                let at = find(&mut state, number).ok_or(FsError::NotFound)?;
                state.logical.get_mut().snapshots.remove(at);
            }
            SnapshotAction::Restore(_) => return Err(FsError::NotSupported),
        }
        Ok(Translation::Identity)
    }

    fn snapshot_root(&self, snapshot: u8, drive: &mut dyn FnMut()) -> Option<FileHandle> {
        let caller = file_service::Caller::root();
        let root = Answer::to(|done| {
            self.0.root(&Caller::root(), calls::Root { name: "volume".to_owned() }, done)
        })
        .wait(drive)?
        .ok()?;
        let lookup = |directory, name: &[u8], drive: &mut dyn FnMut()| {
            Answer::to(|done| {
                self.0.lookup(&caller, calls::Lookup { directory, name: name.to_vec() }, done)
            })
            .wait(drive)?
            .ok()
        };
        let snapshots = lookup(root.handle, b".snapshot", drive)?;
        let found = lookup(snapshots.handle, snapshot.to_string().as_bytes(), drive)?;
        Some(found.handle)
    }
}

fn runners(behaviour: Behaviour) -> (Runner<Model>, Runner<Volume>) {
    let model = Runner::model(Model::with_own_limits(0o777), Durability::Logged);
    let volume = Volume(Service::new(behaviour));
    let subject = Runner::new(volume, Durability::Logged, &mut || {}).unwrap();
    (model, subject)
}

fn compare(behaviour: Behaviour, operations: &[Operation], tolerance: Tolerance) -> u64 {
    let (mut model, mut subject) = runners(behaviour);
    let ran = compare_run(&mut model, &mut subject, operations, (tolerance, 200), &mut || {});
    ran.unwrap_or_else(|mismatch| panic!("{behaviour:?}: {mismatch}"));
    let mut state = subject.subject.0.state.lock();
    state.verify();
    state.in_stripe
}

/// `count` seeds from `first`; as many times more as `OPERATIONS_ROUNDS` says, for a long run.
fn seeds(first: u64, count: u64) -> std::ops::Range<u64> {
    let rounds = std::env::var("OPERATIONS_ROUNDS").ok().and_then(|text| text.parse().ok());
    first..first + count * rounds.unwrap_or(1)
}

const MIXES: [Mix; 3] = [Mix::EVERYTHING, Mix::NAMES, Mix::DATA];
/// A tiny file of zeros lies in its inode like a hole.
const LOOSE: Tolerance = Tolerance { no_space: false, seek: true };

#[test]
fn operations_answer_as_the_memory_backend_does() {
    for (seed, mix) in seeds(0, 12).zip(MIXES.into_iter().cycle()) {
        let behaviour = Behaviour { stripes: false, calls_between: 0 };
        compare(behaviour, &mix.operations(seed, 600), Tolerance::STRICT);
    }
}

#[test]
fn consistency_points_between_and_amid_change_nothing() {
    for (seed, mix) in seeds(100, 24).zip(MIXES.into_iter().cycle()) {
        let behaviour = Behaviour { stripes: false, calls_between: 2 + seed % 9 };
        compare(behaviour, &mix.operations(seed, 600), LOOSE);
    }
}

#[test]
fn stripes_do_what_the_whole_does() {
    let mut in_stripe = 0;
    for (seed, mix) in seeds(200, 24).zip([Mix::DATA, Mix::EVERYTHING].into_iter().cycle()) {
        let behaviour = Behaviour { stripes: true, calls_between: seed % 7 };
        in_stripe += compare(behaviour, &mix.operations(seed, 600), LOOSE);
    }
    assert!(in_stripe > 1_000, "{in_stripe}");
}

#[test]
fn snapshots_keep_what_was() {
    for seed in seeds(300, 12) {
        let behaviour = Behaviour { stripes: seed % 2 == 0, calls_between: 5 + seed % 40 };
        compare(behaviour, &Mix::WITH_SNAPSHOTS.operations(seed, 1_000), LOOSE);
    }
}

fn crash(seed: u64, mix: Mix, behaviour: Behaviour) {
    let (mut model, mut subject) = runners(behaviour);
    let mut seeded = Seeded::new(seed ^ 0xc0ffee);
    for round in 0..6 {
        let mut journal = Journal::new(&model).unwrap();
        let count = 1 + (seeded.number() % 120) as usize;
        for (index, operation) in mix.operations(seed * 100 + round, count).iter().enumerate() {
            let step = (index, operation);
            let seen = compare_step(&mut model, &mut subject, step, LOOSE, &mut || {});
            let seen = seen.unwrap_or_else(|mismatch| panic!("{seed} {round}: {mismatch}"));
            journal.answered(operation.clone(), seen, true);
            if seeded.number().is_multiple_of(40) {
                subject.subject.0.state.lock().consistency_point();
                journal.barrier();
            }
        }
        {
            let mut state = subject.subject.0.state.lock();
            state.restart();
            if seeded.number().is_multiple_of(2) {
                state.restart();
            }
            state.reap_orphans();
            assert!(state.logical.get_mut().orphans.is_empty());
            state.verify();
        }
        let service = subject.subject.service();
        subject.executor.restarted(service);
        let found = subject.image(&mut || {}).unwrap();
        let verdict = journal.check(&found);
        verdict.unwrap_or_else(|violation| panic!("{seed} {round} {behaviour:?}: {violation}"));
        // What is there after a restart lasts from now on.
        subject.subject.0.state.lock().consistency_point();
        model.follow(&subject, &found);
        compare_images(&model, &subject, count, &mut || {}).unwrap();
    }
}

#[test]
fn replay_brings_back_what_was_answered() {
    for (seed, mix) in seeds(0, 24).zip(MIXES.into_iter().cycle()) {
        let stripes = seed % 2 == 0;
        crash(seed, mix, Behaviour { stripes, calls_between: [0, 7, 31][seed as usize % 3] });
    }
}
