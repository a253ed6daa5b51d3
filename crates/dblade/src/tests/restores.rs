//! Restores of snapshots: files that are open over one, and requests that come together with one.

use super::{Node, content};
use crate::EngineError;
use aggregate::{AggregateError, Phase};
use file_service::{Caller, FileHandle, FileService, FsError, Hold, calls};
use ondisk::label::RaidKind;
use platform::completion::{Promise, promise};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::sync::Arc;
use volume::SnapshotRequest;

type Outcome = Result<(), EngineError>;

fn create(name: &str) -> SnapshotRequest {
    SnapshotRequest::Create(name.to_owned())
}

fn delete(name: &str) -> SnapshotRequest {
    SnapshotRequest::Delete(name.to_owned())
}

fn restore(name: &str) -> SnapshotRequest {
    SnapshotRequest::Restore(name.to_owned())
}

impl Node {
    fn request(&self, request: SnapshotRequest) -> Outcome {
        self.wait(|done| self.engine.request_snapshot("home", request, done))
    }

    fn hold(&self, file: FileHandle) -> Result<Hold, FsError> {
        self.ask(calls::HoldFile { file })
    }

    fn release(&self, hold: Hold) {
        self.service.release(&Caller::root(), calls::ReleaseHold { hold }, Box::new(drop));
        self.settle();
    }

    fn unlink(&self, directory: FileHandle, name: &str) {
        self.ask(calls::Remove { directory, name: name.as_bytes().to_vec() }).unwrap();
    }

    fn begin_of(&self, file: FileHandle) -> Result<Vec<u8>, FsError> {
        let read = self.ask(calls::Read { file, offset: 0, count: 4 })?;
        Ok(read.to_vec())
    }

    /// Begins a request, and leaves its answer to come.
    pub(super) fn begin(&self, request: SnapshotRequest) -> Promise<Outcome> {
        promise(|done| self.engine.request_snapshot("home", request, done))
    }

    /// What becomes of requests that one freeze takes in, in this order: none, or its refusal.
    pub(super) fn together(&self, requests: &[SnapshotRequest]) -> Vec<Option<String>> {
        let answers: Vec<_> = requests.iter().map(|request| self.begin(request.clone())).collect();
        self.settle();
        let refusal = |answer: &Promise<Outcome>| {
            let answer = answer.lock().take().expect("answered when nothing runs any more");
            answer.err().map(|error| match error {
                EngineError::Aggregate(AggregateError::Refused(text)) => text,
                error => panic!("{error}"),
            })
        };
        answers.iter().map(refusal).collect()
    }

    fn names(&self) -> Vec<String> {
        let found = self.wait(|done| self.engine.snapshots("home", done)).unwrap();
        found.into_iter().map(|snapshot| snapshot.name).collect()
    }

    /// Runs until the freeze that takes in what was asked for is over.
    pub(super) fn run_to_cleaning(&self) {
        let aggregate = self.engine.aggregate_named("a1").unwrap();
        while aggregate.phase() != Phase::CleaningMembers {
            assert!(self.run(), "no consistency point begins");
        }
    }
}

fn node(seed: u64) -> (Node, FileHandle) {
    let node = Node::create(&SimulatedWorld::new(seed), RaidKind::Raid4, false);
    let root = node.root("home");
    (node, root)
}

/// A file's content is its seed.
fn data(seed: u8) -> Vec<u8> {
    vec![seed; 300_000]
}

const STALE: Result<Vec<u8>, FsError> = Err(FsError::Stale);

#[test]
fn regression_a_close_after_a_restore_ends_its_own_hold_only() {
    let (node, root) = node(31);
    let kept = node.write_file(root, "kept", data(1));
    let replaced = node.write_file(root, "replaced", data(2));
    node.request(create("s")).unwrap();
    node.unlink(root, "replaced");
    node.consistency_point();
    node.settle();
    // Another file with the number of one that the snapshot has.
    let later = (0..8).map(|number| node.create_file(root, &format!("later{number}")).unwrap());
    let later: Vec<FileHandle> = later.collect();
    let same = later.iter().find(|file| file.inode == replaced.inode).unwrap();
    let first = node.hold(kept).unwrap();
    let lost = node.hold(*same).unwrap();
    node.request(restore("s")).unwrap();
    let second = node.hold(kept).unwrap();
    let of_replaced = node.hold(replaced).unwrap();
    node.unlink(root, "kept");
    node.unlink(root, "replaced");
    assert_eq!(node.begin_of(*same), STALE);
    // It ended the hold of the other file with that number.
    node.release(lost);
    assert_eq!(node.begin_of(replaced), Ok(vec![2; 4]));
    node.release(of_replaced);
    assert_eq!(node.begin_of(replaced), STALE);
    // It ended the second hold, which is a hold of the same file.
    node.release(first);
    assert_eq!(node.begin_of(kept), Ok(vec![1; 4]));
    node.release(second);
    assert_eq!(node.begin_of(kept), STALE);
    // A front end that releases too often ends nothing, and nobody's hold.
    node.release(second);
    node.release(lost);
}

#[test]
fn a_file_that_is_open_over_a_restore_stays_open() {
    let (node, root) = node(37);
    let kept = node.write_file(root, "kept", data(1));
    node.request(create("s")).unwrap();
    let hold = node.hold(kept).unwrap();
    node.write_file(root, "kept", data(2));
    let later = node.write_file(root, "later", data(3));
    let of_later = node.hold(later).unwrap();
    node.request(restore("s")).unwrap();
    // As of the snapshot; and what the snapshot has not is gone, held or not.
    assert_eq!(node.begin_of(kept), Ok(vec![1; 4]));
    assert_eq!(node.begin_of(later), STALE);
    node.unlink(root, "kept");
    assert_eq!(node.begin_of(kept), Ok(vec![1; 4]));
    node.consistency_point();
    assert_eq!(node.begin_of(kept), Ok(vec![1; 4]));
    node.release(hold);
    assert_eq!(node.begin_of(kept), STALE);
    node.release(of_later);
}

#[test]
fn orphans_of_a_snapshot_that_are_still_open_stay_and_others_go() {
    let (node, root) = node(41);
    let files: Vec<FileHandle> =
        (0..3).map(|file| node.write_file(root, &format!("f{file}"), data(file + 1))).collect();
    let holds: Vec<Hold> = files.iter().map(|file| node.hold(*file).unwrap()).collect();
    node.unlink(root, "f0");
    node.unlink(root, "f1");
    // Of the first two it has no names.
    node.request(create("s")).unwrap();
    node.unlink(root, "f2");
    node.release(holds[0]);
    node.consistency_point();
    node.settle();
    node.request(restore("s")).unwrap();
    node.settle();
    assert_eq!(node.begin_of(files[0]), STALE);
    assert_eq!(node.begin_of(files[1]), Ok(vec![2; 4]));
    assert_eq!(node.begin_of(files[2]), Ok(vec![3; 4]));
    assert_eq!(node.read_file(root, "f2").unwrap(), data(3));
    // Released before anything has looked at the file since the restore.
    node.request(restore("s")).unwrap();
    node.release(holds[1]);
    assert_eq!(node.begin_of(files[1]), STALE);
    node.release(holds[2]);
    node.unlink(root, "f2");
    node.request(delete("s")).unwrap();
    node.consistency_point();
    node.settle();
    let active = node.engine.volume_summaries()[0].active_blocks;
    assert!(active < 50, "{active} blocks are in use, and no file is left");
}

#[test]
fn regression_a_restore_and_other_requests_of_one_freeze() {
    let (node, root) = node(43);
    node.write_file(root, "file", data(1));
    node.request(create("old")).unwrap();
    node.write_file(root, "file", data(2));
    node.request(create("x")).unwrap();
    node.write_file(root, "file", data(3));
    node.request(create("new")).unwrap();
    node.write_file(root, "file", data(4));
    let done = None;
    let refused = |text: &str| Some(text.to_owned());
    let x_is_restored = "the volume is being restored to 'x'";
    let found = node.together(&[
        create("before"),
        restore("x"),
        restore("x"),
        restore("old"),
        create("after"),
        delete("x"),
        delete("old"),
        delete("new"),
        delete("nothing"),
    ]);
    let expected = [
        done.clone(),
        done.clone(),
        refused(x_is_restored),
        refused(x_is_restored),
        refused(&format!("{x_is_restored}: make the snapshot when that is done")),
        refused(&format!("{x_is_restored}: delete the snapshot when that is done")),
        done.clone(),
        done.clone(),
        refused("there is no snapshot 'nothing'"),
    ];
    assert_eq!(found, expected);
    // The restore took away the newer ones.
    assert_eq!(node.names(), ["x"]);
    assert_eq!(node.read_file(root, "file").unwrap(), data(2));
    let found = node.together(&[delete("x"), restore("x"), delete("x"), create("x")]);
    let is_none = refused("there is no snapshot 'x'");
    assert_eq!(found, [done.clone(), is_none.clone(), is_none, done]);
    assert_eq!(node.read_file(root, "file").unwrap(), data(2));
    let (node, _) = Node::open(&node.power_cut());
    let root = node.root("home");
    assert_eq!(node.names(), ["x"]);
    node.write_file(root, "other", content(1, 9_000_000));
    node.consistency_point();
    node.request(restore("x")).unwrap();
    assert_eq!(node.read_file(root, "file").unwrap(), data(2));
    assert_eq!(node.read_file(root, "other"), Err(FsError::NotFound));
}

#[test]
fn requests_between_the_consistency_points_of_a_restore() {
    for cut in [false, true] {
        let (node, root) = node(47);
        node.write_file(root, "file", data(1));
        node.request(create("x")).unwrap();
        node.write_file(root, "file", data(2));
        node.request(create("new")).unwrap();
        let restored = node.begin(restore("x"));
        node.run_to_cleaning();
        let found = node.together(&[delete("new"), create("new"), restore("x"), delete("x")]);
        let is_none = Some("there is no snapshot 'new'".to_owned());
        let is_restored = Some("the volume is being restored to 'x'".to_owned());
        assert_eq!(found, [is_none, None, is_restored, None]);
        assert!(matches!(restored.lock().take(), Some(Ok(()))));
        let node = if cut { Node::open(&node.power_cut()).0 } else { node };
        let root = node.root("home");
        // All of it lets go of blocks, which are used again.
        node.write_file(root, "other", content(2, 9_000_000));
        node.consistency_point();
        node.settle();
        assert_eq!(node.names(), ["new"]);
        assert_eq!(node.read_file(root, "file").unwrap(), data(1));
        node.request(restore("new")).unwrap();
        assert_eq!(node.read_file(root, "file").unwrap(), data(1));
        assert_eq!(node.read_file(root, "other"), Err(FsError::NotFound));
    }
}

#[test]
fn a_volume_that_is_deleted_beside_a_restore() {
    for is_between in [false, true] {
        let (node, root) = node(53);
        let before = node.engine.aggregate_summaries()[0].used_blocks;
        node.write_file(root, "file", data(1));
        node.request(create("x")).unwrap();
        node.write_file(root, "file", data(2));
        let restored = node.begin(restore("x"));
        if is_between {
            node.run_to_cleaning();
        }
        let gone: Arc<Mutex<Vec<Outcome>>> = Arc::default();
        for _ in 0..2 {
            let slot = Arc::clone(&gone);
            let done = Box::new(move |outcome| slot.lock().push(outcome));
            node.engine.delete_volume("home", done);
        }
        let all = super::tiering(crate::TieringPolicy::All);
        let tiered = promise(|done| node.engine.set_tiering("home", all, done));
        let found = node.together(&[create("y"), restore("x"), delete("x")]);
        let is_gone = Some("the volume is gone".to_owned());
        assert_eq!(found, [is_gone.clone(), is_gone.clone(), is_gone]);
        assert!(matches!(restored.lock().take(), Some(Ok(()))));
        assert!(matches!(gone.lock()[..], [Err(_), Ok(())]), "the second one is refused at once");
        assert!(matches!(tiered.lock().take(), Some(Err(_))));
        assert_eq!(node.begin_of(root), Err(FsError::Stale));
        node.consistency_point();
        node.settle();
        let after = node.engine.aggregate_summaries()[0].used_blocks;
        assert!(after <= before, "{after} blocks are in use, {before} were");
        assert!(node.engine.aggregate_named("a1").unwrap().failure().is_none());
        Node::open(&node.power_cut());
    }
}
