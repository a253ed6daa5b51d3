//! Container maps beside a naive one.
//!
//! The model ([`super::host`]) is a map from block numbers of volumes to blocks. Rules, beside
//! those of [`super::twin`], after every consistency point and after every start:
//!
//! - After a power cut at any step the image is the last one that committed, or the one after it.
//! - A deleted volume gives all its blocks back, part by part.

use super::twin::Twin;
use crate::Tuning;
use ondisk::label::RaidKind;

const GROUPS: [(RaidKind, usize); 2] = [(RaidKind::None, 1), (RaidKind::Raid4, 3)];
const STEPS: usize = 40;
const SEEDS: u64 = 24;

fn run(seed: u64) {
    let mut twin = Twin::new(seed, &GROUPS, Tuning::default());
    for _ in 0..STEPS {
        match twin.choose(12) {
            0..6 => {
                twin.change();
                continue;
            }
            6..9 => twin.commit(),
            9 => {
                let steps = twin.choose(150);
                twin.cut_after(steps);
            }
            10 => {
                twin.commit();
                twin.cut_after(0);
            }
            _ => {
                twin.commit();
                twin.replace_volume();
                twin.commit();
            }
        }
        twin.check();
    }
}

#[test]
fn container_maps_are_what_a_naive_map_is() {
    (0..SEEDS).for_each(run);
}
