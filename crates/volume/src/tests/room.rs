//! Room beside the naive model: volumes that are full, in an aggregate that is full.
//!
//! Rules, beside those of [`super::twin`]:
//!
//! - A write that was promised room is a write that fits: no consistency point ever fails for want
//!   of it, whatever was promised beside, and all that was promised is there afterwards.
//! - A volume never has more blocks of files than its size says.
//! - Frees find room in a full volume and in a full aggregate, and what they free can be written
//!   again.
//! - What is refused has changed nothing.

use super::twin::{Change, NoRoom, Twin};
use crate::SnapshotRequest;
use aggregate::{AggregateError, Tuning};
use ondisk::label::RaidKind;
use units::VolumeId;

/// 3,969 blocks, of which more than half are the reserve, maps and the like.
const GROUPS: [(RaidKind, usize); 1] = [(RaidKind::None, 1)];
const SEEDS: u64 = 6;
const STEPS: usize = 80;

/// Two volumes that together promise their users more than there is.
fn volumes(twin: &mut Twin) -> [VolumeId; 2] {
    let sizes = [[600, 2500], [3000, 3500], [4000, 1500]][twin.choose(3) as usize];
    ["one", "other"].map(|name| {
        let size_blocks = sizes[usize::from(name == "other")];
        let volume = twin.create(name, size_blocks).expect("there is room for little");
        twin.change(volume, Change::Create).expect("there is room for little");
        volume
    })
}

/// A client writes, or frees; if it was refused whether the aggregate is full, or the volume.
fn change(twin: &Twin) -> Option<bool> {
    let volume = twin.some_volume().expect("there are two");
    let frees = twin.choose(14) == 0;
    let change = match twin.some_file(volume) {
        None => Change::Create,
        Some(file) if frees && twin.choose(2) == 0 => Change::Remove { file },
        Some(file) if frees => Change::Truncate { file, from: twin.choose(1000) },
        Some(file) => {
            let step = [1, 1, 1, 900][twin.choose(4) as usize];
            let count = 1 + twin.choose(if step == 1 { 400 } else { 20 });
            Change::Write { file, first: twin.choose(2400), count, step }
        }
    };
    let before = twin.model.volumes();
    let outcome = twin.change(volume, change);
    assert!(outcome.is_ok() || !frees, "frees find room");
    let after = twin.model.volumes();
    if outcome == Err(NoRoom) {
        assert_eq!(before[&volume].files, after[&volume].files, "what is refused changes nothing");
    }
    let naive = &after[&volume];
    assert!(naive.blocks() <= naive.size_blocks, "it has more than it can have");
    let shared = &twin.volumes[&volume].front.shared;
    let is_of_aggregate = shared.budget.free_blocks() > 450;
    outcome.err().map(|NoRoom| is_of_aggregate)
}

/// How often a write was refused that a volume, and that the aggregate had no room for.
fn run(seed: u64) -> [usize; 2] {
    let mut twin = Twin::new(seed, &GROUPS, Tuning { delayed_permille: 60, ..Tuning::default() });
    let volumes = volumes(&mut twin);
    let mut refused = [0, 0];
    for step in 0..STEPS {
        match twin.choose(12) {
            0..9 => {
                if let Some(is_of_aggregate) = change(&twin) {
                    refused[usize::from(is_of_aggregate)] += 1;
                }
                continue;
            }
            9 => {
                let name = format!("step {step}");
                let made = twin.request(volumes[step % 2], SnapshotRequest::Create(name));
                let is_full = |error: &AggregateError| {
                    matches!(error, AggregateError::Full | AggregateError::VolumeFull)
                };
                assert!(made.as_ref().err().is_none_or(is_full), "{made:?}");
            }
            10 => {
                let volume = volumes[step % 2];
                let name = twin.model.volumes()[&volume].snapshots.keys().next().cloned();
                if let Some(name) = name {
                    twin.request(volume, SnapshotRequest::Delete(name)).expect("it makes room");
                }
            }
            _ => twin.cut_after(twin.choose(200)),
        }
        twin.commit();
        twin.check();
    }
    give_back(&mut twin, volumes);
    refused
}

/// All is deleted, and as much can be written as at first.
fn give_back(twin: &mut Twin, volumes: [VolumeId; 2]) {
    for volume in volumes {
        let naive = twin.model.volumes()[&volume].clone();
        for file in naive.files.into_keys() {
            assert_eq!(twin.change(volume, Change::Remove { file }), Ok(()), "frees find room");
        }
        for name in naive.snapshots.into_keys() {
            twin.request(volume, SnapshotRequest::Delete(name)).expect("it makes room");
        }
    }
    twin.commit();
    twin.check();
    for volume in volumes {
        assert_eq!(twin.change(volume, Change::Create), Ok(()));
        let file = twin.some_file(volume).expect("it was made");
        let write = Change::Write { file, first: 0, count: 200, step: 1 };
        assert_eq!(twin.change(volume, write), Ok(()), "there is room again");
    }
    twin.commit();
    twin.check();
}

#[test]
fn a_promised_write_is_a_write_that_fits() {
    let refused: Vec<[usize; 2]> = (0..SEEDS).map(run).collect();
    for which in [0, 1] {
        let count: usize = refused.iter().map(|one| one[which]).sum();
        assert!(count > 5, "refused by volumes, and by the aggregate: {refused:?}");
    }
}
