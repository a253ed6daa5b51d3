//! Quotas, as a user types them.

use super::*;

#[test]
fn limits_are_set_listed_and_deleted() {
    let session = with_volume();
    let off = session.ok("stroop quota report home");
    assert!(off.contains("home: quotas are off") && off.contains("quota set home"), "{off}");
    let set =
        session.ok("stroop quota set home --user 1234567 --hard 10G --hard-files 100 --soft 8G");
    let line = "home: user 1234567 may use 10GiB and 100 files, an event tells of more than 8GiB";
    assert!(set.contains(line), "{set}");
    session.ok("stroop quota set home --each-group --hard 1T");
    let list = session.ok("stroop quota list home");
    assert!(list.contains("1234567") && list.contains("each") && list.contains("1TiB"), "{list}");
    assert_eq!(session.ok("stroop quota list home -o name"), "each-group\nuser:1234567\n");
    let json = session.json("stroop quota report home --user 1234567");
    let record = &json["records"][0];
    assert_eq!((&record["hard_bytes"], &record["used_files"]), (&(10_u64 << 30).into(), &0.into()));
    assert_eq!((&json["state"], &record["own"]), (&"on".into(), &true.into()));
    // Limits that are not given stay.
    session.ok("stroop quota set home --user 1234567 --hard none");
    let record = &session.json("stroop quota report home --user 1234567")["records"][0];
    assert_eq!((&record["hard_bytes"], &record["hard_files"]), (&0.into(), &100.into()));
    let deleted = session.ok("stroop quota delete home --user 1234567");
    assert!(deleted.contains("has no limits of its own, and may use as much"), "{deleted}");
}

#[test]
fn a_tree_is_named_by_its_path() {
    let session = with_volume();
    let set = session.ok("stroop quota set home --tree /projects/a --hard 10G");
    assert!(set.contains("home: tree /projects/a may use 10GiB"), "{set}");
    session.ok("stroop quota set home --each-tree --hard-files 1000");
    let list = session.ok("stroop quota list home -o name");
    assert_eq!(list, "each-tree\ntree:/projects/a\n");
    let record = &session.json("stroop quota report home --tree /projects/a")["records"][0];
    assert_eq!((&record["path"], &record["kind"]), (&"/projects/a".into(), &"tree".into()));
    let deleted = session.ok("stroop quota delete home --tree /projects/a");
    assert!(
        deleted.contains("tree /projects/a has no limits of its own, and may use"),
        "{deleted}"
    );
    let bare = session.ok("stroop quota set home --tree //projects/b/");
    assert!(bare.contains("home: tree /projects/b may use 1000 files"), "{bare}");
    let each = session.ok("stroop quota delete home --each-tree");
    assert!(each.contains("home: each tree may use as much as there is"), "{each}");
    for refused in [
        "stroop quota set home --tree projects --hard 10G",
        "stroop quota set home --tree / --hard 10G",
        "stroop quota report home --tree /a --user 5",
    ] {
        assert!(Cli::try_parse_from(refused.split_whitespace()).is_err(), "{refused}");
    }
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let session = with_volume();
    let none = session.fails("stroop quota set home --user 5", 2);
    assert!(none.contains("no limit is given") && none.contains("--hard 10G"), "{none}");
    session.ok("stroop quota set home --user 5 --soft 8G");
    let above = session.fails("stroop quota set home --user 5 --hard 5G", 2);
    assert!(above.contains("soft limit of 8GiB: the hard one is 5GiB"), "{above}");
    assert!(above.contains("--soft none"), "{above}");
    session.fails("stroop quota set home --user 5 --hard 4000", 2);
    session.fails("stroop quota set home --user 4294967295 --hard 1G", 2);
    session.fails("stroop quota set home --user no-such-user --hard 1G", 3);
    session.fails("stroop quota set none --user 5 --hard 1G", 3);
    session.fails("stroop quota report none", 3);
}
