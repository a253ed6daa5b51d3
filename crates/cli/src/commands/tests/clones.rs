//! Clones that are split from their parents, as a user types it.

use super::*;

#[test]
fn a_clone_is_split_and_told_what_it_takes() {
    let session = with_volume();
    session.ok("stroop snapshot create home@s");
    session.ok("stroop clone create home@s dev");
    let planned = session.ok("stroop clone split dev --dry-run");
    assert!(planned.contains("dev: would be split from home@s; copies of "), "{planned}");
    assert!(planned.contains(" free") && planned.contains("--dry-run"), "{planned}");
    let idle = session.fails("stroop clone split dev --stop", 4);
    assert!(idle.contains("it is not being split"), "{idle}");
    let begun = session.ok("stroop clone split dev --rate 50M");
    assert!(begun.contains("is being split") && begun.contains("job wait 1"), "{begun}");
    assert!(session.ok("stroop job list").contains("50MiB/s"));
    let again = session.fails("stroop clone split dev", 4);
    assert!(again.contains("it is being split already"), "{again}");
    let stopped = session.ok("stroop clone split dev --stop");
    assert!(stopped.contains("dev: split stopped, shares "), "{stopped}");
    assert_eq!(session.json("stroop job show 1")["state"], "cancelled");
    let whole = session.fails("stroop clone split home", 4);
    assert!(whole.contains("it is no clone"), "{whole}");
    session.fails("stroop clone split none", 3);
}
