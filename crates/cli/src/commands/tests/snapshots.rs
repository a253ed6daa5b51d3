//! Snapshots, as a user types them.

use super::*;

#[test]
fn a_restore_says_what_it_takes_along() {
    let session = with_volume();
    for name in ["one", "two"] {
        session.ok(&format!("stroop snapshot create home@{name}"));
    }
    let refused = session.fails("stroop snapshot restore home@one --yes", 4);
    assert!(refused.contains("two") && refused.contains("--discard-newer"), "{refused}");
    let plan = session.ok("stroop snapshot restore home@one --discard-newer --dry-run");
    assert!(plan.contains("snapshot home@two"), "{plan}");
    session.ok("stroop snapshot restore home@one --discard-newer --yes");
    assert_eq!(session.ok("stroop snapshot list home -o name"), "home@one\n");
    session.ok("stroop snapshot delete home@one --yes");
    assert_eq!(session.json("stroop snapshot list home")["num_records"], 0);
}

#[test]
fn snapshots_are_drawn_and_deleted_together() {
    let session = with_volume();
    ["a", "b", "c"]
        .iter()
        .for_each(|name| drop(session.ok(&format!("stroop snapshot create home@{name}"))));
    let drawn = session.ok("stroop snapshot list home --timeline");
    assert!(drawn.contains("TIMELINE") && drawn.contains("--through c --dry-run"), "{drawn}");
    let space = session.ok("stroop volume show home --space");
    assert!(space.contains("@b") && space.contains("are available"), "{space}");
    session.fails("stroop snapshot delete home@a --through x --yes", 3);
    session.ok("stroop snapshot delete home@a --through b --yes");
    assert_eq!(session.ok("stroop snapshot list home -o name"), "home@c\n");
}

#[test]
fn two_snapshots_of_one_volume_are_compared() {
    let session = with_volume();
    for name in ["a", "b"] {
        session.ok(&format!("stroop snapshot create home@{name}"));
    }
    for to in ["b", "home@b"] {
        let told = session.ok(&format!("stroop snapshot diff home@a {to}"));
        assert!(told.contains("nothing differs"), "{told}");
    }
    let json = session.json("stroop snapshot diff home@a b");
    assert_eq!((&json["num_records"], &json["unreadable_directories"]), (&0.into(), &0.into()));
    session.fails("stroop snapshot diff home@a other@b", 2);
    session.fails("stroop snapshot diff home@a x", 3);
}

#[test]
fn a_volume_has_a_snapshot_policy() {
    let session = with_volume();
    let shown = session.ok("stroop volume show home");
    assert!(shown.contains("schedule    hourly=6,daily=7,weekly=4\n"), "{shown}");
    session.ok("stroop volume create other --size 1G --snapshot-policy none");
    assert!(session.ok("stroop volume show other").contains("schedule    none\n"));
    let set = session.ok("stroop volume set other --snapshot-policy daily=3");
    assert_eq!(set, "other: snapshot policy daily=3\n");
    let json = session.json("stroop volume show other");
    assert_eq!(json["snapshot_policy"]["daily"], 3);
    assert!(session.ok("stroop volume show other").contains("autodelete  off\n"));
    let set = session.ok("stroop volume set other --snapshot-autodelete scheduled");
    assert_eq!(set, "other: snapshot autodelete scheduled\n");
    session.ok("stroop volume create third --size 1G --snapshot-autodelete all");
    let json = session.json("stroop volume show third");
    assert_eq!(json["snapshot_autodelete"], "all");
    // Retention would delete it.
    let refused = session.fails("stroop snapshot create home@daily.2026-11-30_0000", 2);
    assert!(refused.contains("takes by itself"), "{refused}");
}

#[test]
fn a_held_snapshot_and_its_volume_stay() {
    let session = with_volume();
    for name in ["a", "b", "c"] {
        session.ok(&format!("stroop snapshot create home@{name}"));
    }
    let held = session.ok("stroop snapshot hold home@b");
    assert!(held.contains("home@b: held"), "{held}");
    session.ok("stroop snapshot hold home@b");
    let listed = session.json("stroop snapshot list home");
    let flags: Vec<_> = (0..3).map(|at| listed["records"][at]["held"].clone()).collect();
    assert_eq!(flags, [false, true, false]);
    for command in [
        "snapshot delete home@b",
        "snapshot delete home@a --through c",
        "snapshot restore home@a --discard-newer",
        "volume delete home",
    ] {
        let refused = session.fails(&format!("stroop {command} --yes"), 4);
        assert!(refused.contains("snapshot release home@b"), "{command}: {refused}");
    }
    session.ok("stroop snapshot restore home@b --discard-newer --yes");
    session.ok("stroop snapshot delete home@a --yes");
    session.fails("stroop snapshot hold home@a", 3);
    session.ok("stroop snapshot release home@b");
    session.ok("stroop volume delete home --yes");
}
