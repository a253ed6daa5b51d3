//! Each figure on small disks, and what a rig is trusted with.

use super::*;
use crate::freespace::drive::Model;
use crate::freespace::loads::Loads;
use crate::freespace::rig::{Rig, Shape};
use crate::freespace::span::Metric;
use crate::freespace::variant::AS_IT_IS;
use crate::summary::{Row, Unit};
use device_models::HddConfiguration;
use ondisk::label::RaidKind;
use units::ByteSize;

fn small() -> FreespaceBench {
    let (disk, over_provisioning_percent) = (ByteSize(32 << 20), 28);
    FreespaceBench { disk, data_disks: 3, age: 1, over_provisioning_percent, rounds: 2 }
}

fn run(figure: FreespaceFigure) -> Report {
    freespace(&small(), &[figure], &mut |_| ()).unwrap()
}

#[test]
fn every_figure_runs() {
    for figure in FreespaceFigure::ALL {
        let report = run(figure);
        assert!(!report.rows.is_empty() && report.notes.len() == 1, "{figure:?}");
        let ratios = report.rows.iter().filter(|row| row.unit == Unit::Ratio);
        for ratio in ratios {
            let at_least_one = ratio.ours.median().is_some_and(|ratio| ratio >= 1e6);
            assert!(at_least_one, "{figure:?}: {ratio:?}");
        }
        let rates = report.rows.iter().filter(|row| row.unit == Unit::Operations);
        for rate in rates {
            assert!(rate.ours.median().is_some_and(|rate| rate > 0.0), "{figure:?}: {rate:?}");
        }
    }
}

#[test]
fn a_new_aggregate_fills_as_far_as_was_asked_in_full_stripes_one_tetris_at_a_time() {
    let shape = small().shape(Model::Hdd(HddConfiguration::default()));
    let mut loads = Loads::new(Rig::new(&shape, &AS_IT_IS).unwrap(), 2).unwrap();
    let span = loads.measure_extension(loads.share(40)).unwrap();
    // Each consistency point ends within a tetris; how many there are is up to the machine.
    assert!(Metric::FullStripes.of(&span) > 70.0, "{span:?}");
    let [group] = span.work.as_slice() else { panic!("one group: {span:?}") };
    // Parity and each data disk: most of every region, and the superblocks.
    for drive in group {
        let blocks = drive.regions * 64;
        let about = blocks * 7 / 10..=blocks * 11 / 10;
        assert!(about.contains(&drive.host_blocks), "{span:?}");
    }
    loads.fill(60).unwrap();
    let used = loads.rig.aggregate().used_blocks() * 100 / loads.rig.aggregate().size_blocks();
    assert!((57..=60).contains(&used), "{used} %");
}

#[test]
fn groups_join_and_every_kind_can_be_written() {
    for kind in [RaidKind::None, RaidKind::Raid4, RaidKind::Dp] {
        let model = Model::Ssd(small().ssd());
        let shape = Shape { kind, ..small().shape(model) };
        let mut loads = Loads::new(Rig::new(&shape, &AS_IT_IS).unwrap(), 1).unwrap();
        let known = loads.rig.groups().count();
        loads.fill(50).unwrap();
        loads.rig.add_groups(1).unwrap();
        assert_eq!(loads.rig.groups().count(), 2 * known, "{kind}");
        let span = loads.measure_overwrites(1 << 20).unwrap();
        assert!(Metric::WriteAmplification.of(&span) >= 1e6, "{kind}: {span:?}");
    }
}

#[test]
fn the_first_consistency_point_after_a_start_reads_as_much_whatever_the_size_of_a_volume() {
    let report = run(FreespaceFigure::Starts);
    let is_it =
        |row: &&Row| row.load.starts_with("10 A") && row.load.ends_with("first CP, blocks read");
    let read = report.rows.iter().filter(is_it).filter_map(|row| row.ours.median());
    let read: Vec<f64> = read.collect();
    assert!(read.len() > 1, "volumes of several sizes");
    let (least, most) = (read.iter().copied().reduce(f64::min), read.into_iter().reduce(f64::max));
    // Nothing is in memory, so that there is something to read.
    assert!(least.is_some_and(|least| least > 0.0), "{report:?}");
    assert!(most <= least.map(|least| least * 1.1), "{report:?}");
}
