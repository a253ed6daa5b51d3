//! The life of volumes beside a naive model: volumes come and go, files in them are made, grow,
//! shrink and go, snapshots are made and deleted, and the power goes.
//!
//! The model ([`super::model`]) is a map from volumes to files. Rules, beside those of
//! [`super::twin`], after every consistency point and after every start:
//!
//! - A volume that was made is there with its name and size; one that was deleted is not, and its
//!   blocks are free when the background is done.
//! - What is refused (a name that is taken, a size that no volume has, or that is less than what
//!   the volume uses) has changed nothing, and nothing is promised for it.
//! - After a power cut all volumes are as one consistency point had them: the last one that
//!   committed, or the one after it.

use super::twin::{Change, Twin};
use crate::SnapshotRequest;
use aggregate::{AggregateError, Tuning};
use ondisk::label::RaidKind;

const GROUPS: [(RaidKind, usize); 2] = [(RaidKind::None, 1), (RaidKind::Raid4, 3)];
const STEPS: usize = 60;
const SEEDS: u64 = 10;
const NAMES: [&str; 4] = ["home", "mail", "src", "tmp"];
const SNAPSHOTS: [&str; 3] = ["hourly", "daily", "weekly"];

/// What a client does to some volume; there is room.
fn change(twin: &Twin) {
    let Some(volume) = twin.some_volume() else { return };
    let file = twin.some_file(volume);
    let change = match (twin.choose(8), file) {
        (0, _) | (_, None) => Change::Create,
        (1, Some(file)) => Change::Remove { file },
        (2, Some(file)) => Change::Truncate { file, from: twin.choose(40) },
        (_, Some(file)) => Change::Write {
            file,
            first: twin.choose(40),
            count: 1 + twin.choose(20),
            step: [1, 1, 3, 700][twin.choose(4) as usize],
        },
    };
    assert_eq!(twin.change(volume, change), Ok(()), "there is room");
}

/// Makes a volume, if it may be.
fn create(twin: &mut Twin) {
    let name = NAMES[twin.choose(4) as usize];
    let size_blocks = [100, 256, 1500, 2000][twin.choose(4) as usize];
    let is_taken = twin.model.volumes().values().any(|volume| volume.name == name);
    match twin.create(name, size_blocks) {
        Ok(_) => assert!(!is_taken && size_blocks >= 256, "{name} {size_blocks}"),
        // The name of one that is being deleted is free.
        Err(AggregateError::Refused(_)) => assert!(is_taken || size_blocks < 256, "{name}"),
        Err(other) => panic!("{other}"),
    }
}

/// Gives a volume another size, if it may have it.
fn resize(twin: &Twin) {
    let Some(volume) = twin.some_volume() else { return };
    let size_blocks = [100, 1500, 2000, 70_000][twin.choose(4) as usize];
    let is_fit = size_blocks >= 256 && twin.least_size_blocks(volume) <= size_blocks;
    assert_eq!(twin.resize(volume, size_blocks).is_ok(), is_fit, "{size_blocks}");
}

/// Makes a snapshot of a volume, or deletes one.
fn snapshot(twin: &Twin) {
    let Some(volume) = twin.some_volume() else { return };
    let name = SNAPSHOTS[twin.choose(3) as usize].to_owned();
    let is_there = twin.model.volumes()[&volume].snapshots.contains_key(&name);
    let creates = twin.choose(3) > 0;
    let request = if creates { SnapshotRequest::Create } else { SnapshotRequest::Delete };
    let outcome = twin.request(volume, request(name));
    assert_eq!(outcome.is_ok(), creates != is_there, "{outcome:?}");
}

fn run(seed: u64) {
    let mut twin = Twin::new(seed, &GROUPS, Tuning { delayed_permille: 200, ..Tuning::default() });
    create(&mut twin);
    for _ in 0..STEPS {
        match twin.choose(21) {
            0..11 => {
                change(&twin);
                continue;
            }
            11..14 => twin.commit(),
            14 => {
                create(&mut twin);
                twin.commit();
            }
            15 => {
                if let Some(volume) = twin.some_volume() {
                    twin.delete(volume);
                }
                twin.commit();
            }
            16..18 => {
                snapshot(&twin);
                twin.commit();
            }
            18 => {
                resize(&twin);
                twin.commit();
            }
            19 => {
                let steps = twin.choose(300);
                twin.cut_after(steps);
                twin.commit();
            }
            _ => {
                twin.commit();
                twin.cut_after(0);
            }
        }
        twin.check();
    }
}

#[test]
fn volumes_are_what_a_naive_model_is() {
    (0..SEEDS).for_each(run);
}
