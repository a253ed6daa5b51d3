//! Policies of volumes, as whether reads reallocate: chosen at birth or later, durable when they
//! are answered, and the same after a power cut.

use super::*;
use crate::{CloneRequest, EngineError, SnapshotSchedule};

fn off(name: &str) -> VolumeRequest {
    VolumeRequest { reallocation: Reallocation::Off, ..VolumeRequest::new(name, "a1", 4096) }
}

fn reallocation(node: &Node, volume: &str) -> Reallocation {
    let served = node.engine.volume_named(volume).unwrap();
    assert_eq!(served.may_reallocate(), served.reallocation() == Reallocation::Auto);
    served.reallocation()
}

fn set(node: &Node, volume: &str, reallocation: Reallocation) -> Result<(), EngineError> {
    let change = VolumeChange { reallocation: Some(reallocation), ..VolumeChange::default() };
    node.wait(|done| node.engine.change_volume(volume, change, done))
}

#[test]
fn whether_reads_reallocate_is_kept_over_power_cuts() {
    let node = Node::create(&SimulatedWorld::new(51), RaidKind::Raid4, false);
    node.wait(|done| node.engine.create_volumes(off("kept"), done)).unwrap();
    let of_both = |node: &Node| (reallocation(node, "home"), reallocation(node, "kept"));
    assert_eq!(of_both(&node), (Reallocation::Auto, Reallocation::Off));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(of_both(&node), (Reallocation::Auto, Reallocation::Off));
    for _ in 0..2 {
        set(&node, "home", Reallocation::Off).unwrap();
        set(&node, "kept", Reallocation::Auto).unwrap();
        assert_eq!(of_both(&node), (Reallocation::Off, Reallocation::Auto));
    }
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(of_both(&node), (Reallocation::Off, Reallocation::Auto));
    set(&node, "none", Reallocation::Off).unwrap_err();
}

/// Clones have the schedule of their parent; one that keeps too many is refused.
#[test]
fn the_schedule_of_snapshots_is_kept_over_power_cuts() {
    let schedule_of =
        |node: &Node, volume: &str| node.engine.volume_named(volume).unwrap().schedule();
    let node = Node::create(&SimulatedWorld::new(54), RaidKind::Raid4, false);
    let first = SnapshotSchedule([6, 7, 4, 0]);
    let request = VolumeRequest { schedule: first, ..VolumeRequest::new("kept", "a1", 4096) };
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(schedule_of(&node, "kept"), first);
    assert_eq!(schedule_of(&node, "home"), SnapshotSchedule::default());
    let set = |kept| {
        let schedule = Some(SnapshotSchedule(kept));
        let change = VolumeChange { schedule, ..VolumeChange::default() };
        node.wait(|done| node.engine.change_volume("kept", change, done))
    };
    set([1, 0, 0, 999]).unwrap();
    set([1, 0, 0, 1000]).unwrap_err();
    let request = SnapshotRequest::Create("s".to_owned());
    node.wait(|done| node.engine.request_snapshot("kept", request, done)).unwrap();
    let request = CloneRequest {
        names: vec!["clone".to_owned()],
        volume: "kept".to_owned(),
        snapshot: "s".to_owned(),
        guarantee: None,
        exports: Vec::new(),
    };
    node.wait(|done| node.engine.create_clones(request, done)).unwrap();
    let (node, _) = Node::open(&node.power_cut());
    for volume in ["kept", "clone"] {
        assert_eq!(schedule_of(&node, volume), SnapshotSchedule([1, 0, 0, 999]));
    }
}

/// A change of reallocation leaves the tiering as it is; what is refused changes nothing.
#[test]
fn policies_that_are_chosen_together_are_set_together() {
    let node = Node::create(&SimulatedWorld::new(52), RaidKind::None, false);
    let auto = Tiering { policy: TieringPolicy::Auto, cooling_days: Some(5) };
    let change = |tiering| {
        let change = VolumeChange {
            tiering: Some(tiering),
            reallocation: Some(Reallocation::Off),
            ..VolumeChange::default()
        };
        node.wait(|done| node.engine.change_volume("home", change, done))
    };
    change(Tiering { cooling_days: Some(1), ..auto }).unwrap_err();
    let tiering = || node.engine.volume_named("home").unwrap().tiering();
    assert_eq!((tiering(), reallocation(&node, "home")), (Tiering::default(), Reallocation::Auto));
    change(auto).unwrap();
    assert_eq!((tiering(), reallocation(&node, "home")), (auto, Reallocation::Off));
    set(&node, "home", Reallocation::Auto).unwrap();
    assert_eq!((tiering(), reallocation(&node, "home")), (auto, Reallocation::Auto));
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.engine.volume_named("home").unwrap().tiering(), auto);
    assert_eq!(reallocation(&node, "home"), Reallocation::Auto);
}

/// Its blocks stay where they are.
#[test]
fn reads_of_a_traditional_volume_reallocate_nothing() {
    let node = Node::create(&SimulatedWorld::new(53), RaidKind::None, true);
    let volume = node.engine.volume_summaries()[0].name.clone();
    assert_eq!(reallocation(&node, &volume), Reallocation::Off);
    let refused = set(&node, &volume, Reallocation::Auto).unwrap_err().to_string();
    assert!(refused.contains("blocks stay where they are"), "{refused}");
}
