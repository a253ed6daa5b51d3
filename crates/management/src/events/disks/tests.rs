//! Disks that leave, fail, come back and are replaced, as one look after another finds them.

use super::*;
use dblade::AggregateSummary;
use media::Profile;
use ondisk::features::FeatureSet;
use ondisk::label::{DiskRole, RaidKind, Sickness};
use raid::{Pace, ReplacementStatus, SpareStatus};

const AGGREGATE: AggregateUuid = AggregateUuid([1; 16]);

/// An aggregate in service without disks.
pub(crate) fn summary(name: &str, identity: AggregateUuid) -> AggregateSummary {
    AggregateSummary {
        name: name.to_owned(),
        identity,
        size_blocks: 1000,
        used_blocks: 10,
        status: raid::Status::default(),
        failure: None,
        consistency_points: 1,
        lost_blocks: 0,
        last_cp_nanoseconds: 1,
        log_used_ratio: 0.0,
        log_failure: None,
        log_copies: Vec::new(),
        is_log_on_disks: false,
        traditional: false,
    }
}

fn member(number: u8) -> MemberStatus {
    MemberStatus {
        name: Some(format!("d{number}")),
        identity: DiskUuid([number; 16]),
        role: DiskRole::Data,
        state: MemberState::Online,
        media: None,
        is_away: false,
        replacement: None,
        errors: ErrorCounts::default(),
        sickness: None,
        features: FeatureSet::empty(),
    }
}

fn spare(number: u8) -> SpareStatus {
    let (name, identity) = (format!("d{number}"), DiskUuid([number; 16]));
    SpareStatus { name, identity, regions: 9, media: Profile::Hdd }
}

/// Three disks and a spare, and what was known of them.
struct Scene {
    status: raid::Status,
    disks: Disks,
    now: u64,
}

impl Scene {
    fn new() -> Self {
        let members = [1, 2, 3].map(member).to_vec();
        let group = GroupStatus { kind: RaidKind::Raid4, members, regions: 9, is_rotational: true };
        let status =
            raid::Status { groups: vec![group], spares: vec![spare(4)], ..raid::Status::default() };
        let mut scene = Self { status, disks: Disks::default(), now: 0 };
        assert_eq!(scene.look(), NOTHING, "what is well is not told");
        scene
    }

    fn happened(&mut self) -> Vec<Happening> {
        self.now += 1_000_000_000;
        let sight =
            Sight { identity: AGGREGATE, name: "a1", status: &self.status, short_name: &|_| None };
        self.disks.observe(self.now, &[sight], &[], |_| false)
    }

    fn look(&mut self) -> Vec<String> {
        self.happened().iter().map(|one| format!("{} {}", one.code, one.object)).collect()
    }

    fn member(&mut self, at: usize) -> &mut MemberStatus {
        &mut self.status.groups[0].members[at]
    }
}

const NOTHING: [&str; 0] = [];

fn filling() -> MemberState {
    MemberState::Rebuilding { rebuilt_regions: 1, regions: 9, pace: Pace::default() }
}

#[test]
fn a_disk_that_leaves_and_returns_is_told_once_each() {
    let mut scene = Scene::new();
    let reason = "disk d2 is gone".to_owned();
    (scene.member(1).state, scene.member(1).is_away) = (MemberState::Failed { reason }, true);
    let left = scene.happened().remove(0);
    assert_eq!((left.code.as_str(), left.severity), ("DISK_MISSING", EventSeverity::Warning));
    assert_eq!(left.cause, "disk d2 is gone; aggregate a1 does without it; 0 more disks may fail");
    assert!(left.next.unwrap().ends_with("or stroop disk replace d2 NEW"));
    assert_eq!(scene.look(), NOTHING);
    // After a restart nobody knows its name but the events.
    (scene.member(1).state, scene.member(1).name) = (MemberState::Missing, None);
    assert_eq!(scene.look(), NOTHING);
    (scene.member(1).state, scene.member(1).name) = (filling(), Some("d9".to_owned()));
    assert_eq!(scene.look(), ["DISK_RETURNED d9"]);
    scene.member(1).state = MemberState::Online;
    assert_eq!(scene.look(), NOTHING, "the end of the resync is a job's");
    scene.member(1).state = MemberState::Failed { reason: "an administrator".to_owned() };
    scene.member(1).is_away = false;
    assert_eq!(scene.look(), ["DISK_FAILED d9"]);
    scene.member(1).state = MemberState::Online;
    assert_eq!(scene.look(), ["DISK_RETURNED d9"]);
}

#[test]
fn a_spare_takes_the_place_of_a_disk_that_failed() {
    let mut scene = Scene::new();
    scene.member(1).state = MemberState::Failed { reason: "worn".to_owned() };
    assert_eq!(scene.look(), ["DISK_FAILED d2"]);
    scene.status.spares.clear();
    scene.status.leaving_disks.push("d4".to_owned());
    assert_eq!(scene.look(), NOTHING, "it is about to have a place");
    scene.status.leaving_disks.clear();
    *scene.member(1) = MemberStatus { state: filling(), ..member(4) };
    let told = scene.happened();
    let codes: Vec<&str> = told.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["DISK_REPLACED", "SPARE_TAKEN"]);
    assert_eq!(told[0].cause, "d4 has its place in group 0 of aggregate a1, and is being filled");
    assert!(told[1].cause.ends_with("spares left: 0"), "{}", told[1].cause);
    scene.member(1).state = MemberState::Online;
    assert_eq!(scene.look(), NOTHING);
}

/// A spare was faster than the next look: that the disk had failed was never told.
#[test]
fn regression_a_disk_that_failed_and_was_replaced_between_two_looks_is_told() {
    let mut scene = Scene::new();
    scene.status.spares.clear();
    *scene.member(1) = MemberStatus { state: filling(), ..member(4) };
    let told = scene.happened();
    let codes: Vec<&str> = told.iter().map(|one| one.code.as_str()).collect();
    assert_eq!(codes, ["DISK_FAILED", "DISK_REPLACED", "SPARE_TAKEN"]);
    assert_eq!(told[0].cause, "aggregate a1 does without it; d4 took its place at once");
}

#[test]
fn a_disk_in_use_is_copied_to_a_spare_and_replaced() {
    let mut scene = Scene::new();
    scene.status.spares.clear();
    scene.member(2).replacement = Some(ReplacementStatus {
        name: "d4".to_owned(),
        media: Profile::Hdd,
        copied_regions: 0,
        regions: 9,
        pace: Pace::default(),
    });
    assert_eq!(scene.look(), ["SPARE_TAKEN d4"]);
    *scene.member(2) = member(4);
    assert_eq!(scene.look(), ["DISK_REPLACED d3"]);
}

#[test]
fn a_spare_that_is_nobodys_is_told() {
    let mut scene = Scene::new();
    scene.status.spares.clear();
    assert_eq!(scene.look(), ["SPARE_GONE d4"]);
    assert_eq!(scene.look(), NOTHING);
}

#[test]
fn errors_are_collected_and_a_sick_disk_is_told() {
    let mut scene = Scene::new();
    scene.status.counters.repaired_blocks = 5;
    scene.member(0).errors.checksum_errors = 5;
    let told = scene.happened().remove(0);
    assert_eq!((told.code.as_str(), told.severity), ("DISK_ERRORS", EventSeverity::Warning));
    assert!(
        told.cause.starts_with("0 read, 0 write and 5 checksum errors more; 5 blocks of"),
        "{}",
        told.cause
    );
    for count in 6..12 {
        scene.member(0).errors.checksum_errors = count;
        assert_eq!(scene.look(), NOTHING, "of the same minute");
    }
    scene.now += ERRORS_REST_NANOSECONDS;
    assert!(scene.happened().remove(0).cause.contains(" 6 checksum errors more"));
    scene.member(0).sickness = Some(Sickness::Rotten);
    assert_eq!(scene.look(), ["DISK_SICK d1"]);
    // Cleared.
    (scene.member(0).sickness, scene.member(0).errors) = (None, ErrorCounts::default());
    assert_eq!(scene.look(), ["DISK_SICK_CLEARED d1"]);
    scene.now += ERRORS_REST_NANOSECONDS;
    scene.member(0).errors.read_errors = 1;
    assert_eq!(scene.look(), ["DISK_ERRORS d1"]);
}

#[test]
fn of_an_aggregate_out_of_sight_nothing_is_told_until_nothing_of_it_is_known() {
    let mut scene = Scene::new();
    let reason = "worn".to_owned();
    scene.member(0).state = MemberState::Failed { reason };
    assert_eq!(scene.look(), ["DISK_FAILED d1"]);
    assert_eq!(scene.disks.observe(scene.now, &[], &[AGGREGATE], |_| false), []);
    assert_eq!(scene.look(), NOTHING, "it is back as it was");
    let told = scene.disks.observe(scene.now, &[], &[], |_| false);
    let told: Vec<(&str, &str)> =
        told.iter().map(|one| (one.code.as_str(), one.object.as_str())).collect();
    assert_eq!(told, [("AGGR_NOT_FOUND", "a1")]);
    assert!(scene.disks.0.is_empty());
}

/// It was told as lost, with the advice to attach its disks.
#[test]
fn regression_an_aggregate_that_was_deleted_is_told_as_such() {
    let mut scene = Scene::new();
    let told = scene.disks.observe(scene.now, &[], &[], |one| *one == AGGREGATE);
    let told: Vec<_> = told.iter().map(|one| (one.code.as_str(), one.severity)).collect();
    assert_eq!(told, [("AGGR_DELETED", EventSeverity::Info)]);
    assert_eq!(scene.disks.observe(scene.now, &[], &[], |_| true), []);
}

#[test]
fn a_disk_that_is_not_there_when_it_is_first_seen_is_told() {
    let mut scene = Scene::new();
    scene.disks = Disks::default();
    (scene.member(1).state, scene.member(1).name) = (MemberState::Missing, None);
    let found = scene.look();
    assert_eq!(found, [format!("DISK_FAILED ({})", DiskUuid([2; 16]))]);
}

#[test]
fn regression_a_disk_is_told_by_its_short_name_whoever_has_its_path() {
    let mut scene = Scene::new();
    // At another start the path of a disk that is missing is that of another disk.
    let members = &mut scene.status.groups[0].members;
    (members[1].state, members[1].name, members[1].is_away) = (MemberState::Missing, None, true);
    members[2].name = Some("d2".to_owned());
    let short_name = |disk: &DiskUuid| Some(format!("short{}", disk.0[0]));
    let sight =
        Sight { identity: AGGREGATE, name: "a1", status: &scene.status, short_name: &short_name };
    let told = scene.disks.observe(scene.now, &[sight], &[], |_| false);
    let objects: Vec<&str> = told.iter().map(|one| one.object.as_str()).collect();
    assert_eq!(objects, ["short2"]);
    let next = told[0].next.as_deref().unwrap_or_default();
    assert!(next.ends_with("stroop disk replace short2 NEW"), "{next}");
}
