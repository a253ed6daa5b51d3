//! Delayed frees of a volume over a real aggregate, beside the naive model.
//!
//! Rules, beside those of [`super::twin`], while files are written over at random:
//!
//! - A number that no image has is free in the aggregate too, or its free is delayed: nothing is
//!   freed twice, and nothing leaks.
//! - A delayed number is given to nobody until its page is cleared, and its block is not given
//!   before the commit of that.
//! - A start knows what is delayed as the last commit had it.
//! - When more is delayed than may be, consistency points clear it without anything else to do.
//! - When all files are gone, everything that is not delayed is free again, and a volume that is
//!   deleted leaves nothing at all.

use super::twin::{Change, Twin};
use crate::SnapshotRequest;
use aggregate::Tuning;
use ondisk::label::RaidKind;
use units::{InodeNumber, VolumeId};

const GROUPS: [(RaidKind, usize); 1] = [(RaidKind::Raid4, 3)];
const FILE_BLOCKS: u64 = 1800;
const ROUNDS: usize = 20;
const SEEDS: u64 = 3;

fn tuning() -> Tuning {
    Tuning { delayed_permille: 60, ..Tuning::default() }
}

fn write(twin: &Twin, volume: VolumeId, file: InodeNumber, (first, count): (u64, u64)) {
    let change = Change::Write { file, first, count, step: 1 };
    assert_eq!(twin.change(volume, change), Ok(()), "there is room");
}

/// How many delayed frees were seen, over all looks.
fn run(seed: u64) -> u64 {
    let mut twin = Twin::new(seed, &GROUPS, tuning());
    let volume = twin.create("home", 3000).expect("there is room");
    twin.change(volume, Change::Create).expect("there is room");
    let file = twin.some_file(volume).expect("it was made");
    for first in (0..FILE_BLOCKS).step_by(200) {
        write(&twin, volume, file, (first, 200));
    }
    twin.commit();
    twin.check();
    let mut seen = 0;
    for round in 0..ROUNDS {
        for _ in 0..1 + twin.choose(30) {
            write(&twin, volume, file, (twin.choose(FILE_BLOCKS), 1));
        }
        match twin.choose(10) {
            0 => twin.cut_after(twin.choose(300)),
            1 => {
                let name = format!("round {round}");
                twin.request(volume, SnapshotRequest::Create(name)).expect("there is room");
            }
            2 => {
                let snapshots = &twin.model.volumes()[&volume].snapshots;
                if let Some(name) = snapshots.keys().next() {
                    let request = SnapshotRequest::Delete(name.clone());
                    twin.request(volume, request).expect("it is there");
                }
            }
            _ => {}
        }
        twin.commit();
        twin.check();
        let delayed = twin.volumes[&volume].delayed_blocks();
        if twin.choose(3) == 0 {
            twin.cut_after(0);
            assert_eq!(twin.volumes[&volume].delayed_blocks(), delayed, "a start knows them");
            twin.check();
        }
        seen += delayed;
    }
    let names: Vec<String> = twin.model.volumes()[&volume].snapshots.keys().cloned().collect();
    for name in names {
        twin.request(volume, SnapshotRequest::Delete(name)).expect("it is there");
    }
    if seed.is_multiple_of(2) {
        twin.change(volume, Change::Remove { file }).expect("frees find room");
        twin.commit();
        twin.check();
    }
    twin.delete(volume);
    twin.commit();
    twin.check();
    let used = twin.rig().on_side(|side, _| Ok(side.space.used_blocks));
    assert!(used < 40, "{used} blocks are in use of an aggregate without volumes");
    seen
}

#[test]
fn delayed_frees_are_given_to_nobody_and_come_back() {
    let seen: u64 = (0..SEEDS).map(run).sum();
    assert!(seen > 100, "{seen} were delayed");
}
