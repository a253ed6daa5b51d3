//! Quota trees: what is made beneath a tree's directory counts to the tree, and nothing leaves it.

use super::*;
use crate::TreeAnswer;
use file_service::{NewNode, RenameFlags};

fn names(path: &str) -> Vec<Vec<u8>> {
    path.split('/').filter(|name| !name.is_empty()).map(|name| name.as_bytes().to_vec()).collect()
}

fn key(tree: u32) -> QuotaKey {
    QuotaKey { kind: QuotaKind::Tree, id: tree }
}

impl Node {
    fn directory(&self, above: FileHandle, name: &str) -> FileHandle {
        let (node, set) = (NewNode::Directory, SetAttributes::default());
        let name = name.as_bytes().to_vec();
        self.ask(calls::MakeNode { directory: above, name, node, set }).unwrap().0.handle
    }

    fn make_tree(&self, path: &str) -> TreeAnswer {
        self.wait(|done| self.engine.make_tree("home", names(path), done)).unwrap()
    }

    fn find_tree(&self, path: &str) -> TreeAnswer {
        self.wait(|done| self.engine.find_tree("home", names(path), done)).unwrap()
    }

    /// Makes a directory and a tree of it.
    fn tree(&self, above: FileHandle, name: &str, path: &str) -> (FileHandle, QuotaKey) {
        let directory = self.directory(above, name);
        let TreeAnswer::Tree(tree) = self.make_tree(path) else { panic!("{path}") };
        assert_eq!(u64::from(tree), directory.inode.get());
        (directory, key(tree))
    }

    fn rename(&self, from: (FileHandle, &str), to: (FileHandle, &str)) -> Result<(), FsError> {
        self.rename_with(from, to, RenameFlags::default())
    }

    fn rename_with(
        &self,
        (from_directory, from_name): (FileHandle, &str),
        (to_directory, to_name): (FileHandle, &str),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let (from_name, to_name) = (from_name.as_bytes().to_vec(), to_name.as_bytes().to_vec());
        self.ask(calls::Rename { from_directory, from_name, to_directory, to_name, flags })
            .map(drop)
    }

    fn link(&self, file: FileHandle, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let name = name.as_bytes().to_vec();
        self.ask(calls::Link { file, directory, name }).map(drop)
    }

    fn remove_directory(&self, directory: FileHandle, name: &str) {
        let name = name.as_bytes().to_vec();
        self.ask(calls::RemoveDirectory { directory, name }).unwrap();
    }

    fn path_of(&self, tree: QuotaKey) -> Option<String> {
        self.paths_of(vec![tree.id]).remove(0)
    }

    fn paths_of(&self, trees: Vec<u32>) -> Vec<Option<String>> {
        let paths = self.wait(|done| self.engine.paths_of_trees("home", trees, done)).unwrap();
        let text = |path: Option<Vec<u8>>| path.map(|path| String::from_utf8(path).unwrap());
        paths.into_iter().map(text).collect()
    }
}

#[test]
fn a_tree_counts_what_is_beneath_it() {
    let (node, root) = start(330);
    let (tree, key) = node.tree(root, "p", "/p");
    node.limit_one(key, blocks(90));
    let (alice, bob) = (caller(1000, 100), caller(1001, 100));
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    node.ask(calls::SetFileAttributes { file: tree, set }).unwrap();
    let below = node.directory(tree, "q");
    let before = node.used(key);
    let file = node.make_as(&alice, tree, "a").unwrap();
    node.put(file, 0, 40).unwrap();
    let other = node.create_file(below, "b").unwrap();
    node.put(other, 0, 40).unwrap();
    assert_eq!(node.used(key), (before.0 + 80, before.1 + 2));
    assert_eq!(node.put(other, 40, 40), Err(FsError::OverQuota));
    let outside = node.make_as(&bob, root, "c").unwrap();
    node.put(outside, 0, 200).unwrap();
    // Whoever has it: the tree counts it.
    node.give(file, Some(1001), None).unwrap();
    assert_eq!(node.used(key), (before.0 + 80, before.1 + 2));
    assert_eq!(node.used(user(1001)), (240, 2));
    node.limit_one(key, files(before.1 + 3));
    node.create_file(below, "d").unwrap();
    assert_eq!(node.create_file(below, "e"), Err(FsError::OverQuota));
    assert_eq!(node.directory_refused(tree, "f"), FsError::OverQuota);
}

impl Node {
    fn directory_refused(&self, above: FileHandle, name: &str) -> FsError {
        let (node, set) = (NewNode::Directory, SetAttributes::default());
        let name = name.as_bytes().to_vec();
        self.ask(calls::MakeNode { directory: above, name, node, set }).unwrap_err()
    }
}

#[test]
fn nothing_leaves_a_tree_or_comes_in_but_the_tree_itself() {
    let (node, root) = start(331);
    let (tree, key) = node.tree(root, "p", "/p");
    let (other, _) = node.tree(root, "o", "/o");
    let (plain, below) = (node.directory(root, "plain"), node.directory(tree, "below"));
    let inside = node.create_file(tree, "in").unwrap();
    let outside = node.create_file(plain, "out").unwrap();
    let across = Err(FsError::CrossDevice);
    assert_eq!(node.rename((tree, "in"), (root, "x")), across);
    assert_eq!(node.rename((tree, "in"), (other, "x")), across);
    assert_eq!(node.rename((plain, "out"), (below, "x")), across);
    assert_eq!(node.rename((tree, "below"), (plain, "x")), across);
    assert_eq!(node.link(inside, root, "x"), across);
    assert_eq!(node.link(outside, tree, "x"), across);
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    assert_eq!(node.rename_with((tree, "in"), (plain, "out"), exchange), across);
    assert_eq!(node.rename_with((root, "p"), (root, "plain"), exchange), Ok(()));
    assert_eq!(node.rename_with((root, "p"), (root, "plain"), exchange), Ok(()));
    node.rename((tree, "in"), (below, "in")).unwrap();
    node.link(inside, tree, "again").unwrap();
    assert_eq!(node.rename((root, "p"), (other, "p")), across, "no tree in another");
    node.rename((root, "p"), (plain, "moved")).unwrap();
    assert_eq!(node.path_of(key).as_deref(), Some("plain/moved"));
    assert_eq!(node.find_tree("plain/moved"), TreeAnswer::Tree(key.id));
    // Exchanged with what is in a tree, it would lie in it.
    let flags = RenameFlags { exchange: true, ..RenameFlags::default() };
    node.directory(other, "d");
    assert_eq!(node.rename_with((plain, "moved"), (other, "d"), flags), across);
}

#[test]
fn only_an_empty_directory_becomes_a_tree() {
    let (node, root) = start(332);
    let (tree, key) = node.tree(root, "p", "/p");
    node.directory(tree, "below");
    let full = node.directory(root, "full");
    node.create_file(full, "a").unwrap();
    let new = NewNode::Symlink(b"p".to_vec());
    let set = SetAttributes::default();
    node.ask(calls::MakeNode { directory: root, name: b"to".to_vec(), node: new, set }).unwrap();
    for (path, answer) in [
        ("/", TreeAnswer::Root),
        ("/none", TreeAnswer::NotFound),
        ("/full", TreeAnswer::NotEmpty),
        ("/full/a", TreeAnswer::NotDirectory),
        ("/full/a/b", TreeAnswer::NotDirectory),
        ("/to", TreeAnswer::NotDirectory),
        ("/p/below", TreeAnswer::Within(key.id)),
        ("/p", TreeAnswer::Tree(key.id)),
    ] {
        assert_eq!(node.make_tree(path), answer, "{path}");
        assert_eq!(node.find_tree(path), answer, "{path}");
    }
    node.directory(root, "empty");
    assert_eq!(node.find_tree("/empty"), TreeAnswer::Directory);
}

#[test]
fn trees_survive_a_power_cut() {
    for commits in [false, true] {
        let (node, root) = start(333);
        let (tree, key) = node.tree(root, "p", "/p");
        node.limit_one(key, blocks(100));
        let before = node.used(key);
        if commits {
            node.consistency_point();
        }
        // In the log only: files, one of them without a name at first, and another tree.
        let file = node.create_file(tree, "a").unwrap();
        node.put(file, 0, 30).unwrap();
        let set = SetAttributes::default();
        let unnamed = calls::CreateUnnamed { directory: tree, set };
        let (entry, _) = node.ask(unnamed).unwrap();
        node.put(entry.handle, 0, 10).unwrap();
        assert_eq!(node.link(entry.handle, root, "x"), Err(FsError::CrossDevice));
        node.link(entry.handle, tree, "named").unwrap();
        let (_, late) = node.tree(root, "late", "/late");
        let (node, _) = Node::open(&node.power_cut());
        assert_eq!(node.used(key), (before.0 + 40, before.1 + 2), "{commits}");
        assert_eq!(node.put(file, 30, 100), Err(FsError::OverQuota), "{commits}");
        assert_eq!(node.find_tree("/late"), TreeAnswer::Tree(late.id));
        assert_eq!(node.rename((tree, "named"), (root, "x")), Err(FsError::CrossDevice));
    }
}

#[test]
fn limits_of_a_tree_go_with_its_directory() {
    let (node, root) = start(334);
    let (_, key) = node.tree(root, "p", "/p");
    node.limit_one(key, blocks(50));
    node.remove_directory(root, "p");
    let quota = node.quota(key);
    assert_eq!((quota.used_blocks, quota.used_files, quota.is_own), (0, 0, false));
    assert_eq!(node.path_of(key), None);
    // An administrator who comes too late.
    node.limit_one(key, blocks(50));
    assert!(!node.quota(key).is_own);
    let mut made = Vec::new();
    while made.last().is_none_or(|last: &FileHandle| u64::from(key.id) != last.inode.get()) {
        assert!(made.len() < 1000, "the number is not given again");
        made.push(node.directory(root, &made.len().to_string()));
        node.consistency_point();
    }
    assert_eq!(node.find_tree(&(made.len() - 1).to_string()), TreeAnswer::Directory);
}

/// A file that somebody holds outlives its tree: it must not count to another one.
#[test]
fn regression_a_directory_with_the_number_of_a_former_tree_waits_for_its_files() {
    let (node, root) = start(340);
    let (tree, key) = node.tree(root, "p", "/p");
    node.limit_one(key, blocks(50));
    let (held, hold) = {
        let set = SetAttributes::default();
        let (entry, hold) = node.ask(calls::CreateUnnamed { directory: tree, set }).unwrap();
        (entry.handle, hold)
    };
    node.put(held, 0, 20).unwrap();
    node.remove_directory(root, "p");
    let mut made = Vec::new();
    while made.last().is_none_or(|last: &FileHandle| u64::from(key.id) != last.inode.get()) {
        assert!(made.len() < 1000, "the number is not given again");
        made.push(node.directory(root, &made.len().to_string()));
        node.consistency_point();
    }
    let path = (made.len() - 1).to_string();
    assert_eq!(node.make_tree(&path), TreeAnswer::Former);
    node.ask(calls::ReleaseHold { hold }).unwrap();
    for _ in 0..5 {
        node.consistency_point();
    }
    assert_eq!(node.make_tree(&path), TreeAnswer::Tree(key.id));
}

#[test]
fn snapshots_and_clones_have_trees() {
    let (node, root) = start(335);
    let (tree, key) = node.tree(root, "p", "/p");
    node.limit_one(key, blocks(50));
    let file = node.create_file(tree, "a").unwrap();
    node.put(file, 0, 20).unwrap();
    let before = node.used(key);
    let request = |request| node.wait(|done| node.engine.request_snapshot("home", request, done));
    request(SnapshotRequest::Create("s".to_owned())).unwrap();
    node.put(file, 20, 20).unwrap();
    node.directory(root, "q");
    assert!(matches!(node.make_tree("/q"), TreeAnswer::Tree(_)));
    request(SnapshotRequest::Restore("s".to_owned())).unwrap();
    assert_eq!(node.used(key), before);
    assert_eq!(node.find_tree("/q"), TreeAnswer::NotFound);
    assert_eq!(node.put(file, 20, 40), Err(FsError::OverQuota));
    let clone = crate::CloneRequest {
        volume: "home".to_owned(),
        snapshot: "s".to_owned(),
        names: vec!["copy".to_owned()],
        exports: Vec::new(),
        guarantee: None,
    };
    node.wait(|done| node.engine.create_clones(clone, done)).unwrap();
    let list = node.quotas_of("copy", Listed::One(key));
    assert_eq!(list.quotas[0].limits, blocks(50));
    let copied = node.root("copy");
    let found = node.ask(calls::Lookup { directory: copied, name: b"p".to_vec() }).unwrap();
    let rename = node.rename((found.handle, "a"), (copied, "a"));
    assert_eq!(rename, Err(FsError::CrossDevice));
}

#[test]
fn what_is_attached_to_a_trees_directory_counts_to_the_tree() {
    let (node, root) = start(336);
    let directory = node.directory(root, "p");
    let (name, value) = (b"user.a".to_vec(), vec![7; 3 * BLOCK]);
    let mode = file_service::XattrSetMode::Either;
    let set = calls::SetXattr { file: directory, name, value, mode, drops_setgid: false };
    node.ask(set).unwrap();
    let TreeAnswer::Tree(tree) = node.make_tree("/p") else { panic!("a tree") };
    node.limit_one(key(tree), blocks(100));
    assert_eq!(node.used(key(tree)), (5, 1));
}

#[test]
fn the_sizes_of_a_tree_are_its_limits() {
    let (node, root) = start(339);
    let sizes = |file| node.ask(calls::Statistics { file }).unwrap();
    let (tree, key) = node.tree(root, "p", "/p");
    let whole = sizes(root);
    assert_eq!(sizes(tree), whole, "without limits");
    node.limit_one(key, Limits { hard_files: 10, ..blocks(100) });
    let file = node.create_file(tree, "a").unwrap();
    node.put(file, 0, 60).unwrap();
    let (used, of_tree) = (node.used(key), sizes(file));
    assert_eq!((of_tree.total_bytes, of_tree.total_files), (100 * BLOCK as u64, 10));
    assert_eq!(of_tree.free_bytes, (100 - used.0) * BLOCK as u64);
    assert_eq!((of_tree.available_bytes, of_tree.free_files), (of_tree.free_bytes, 8));
    assert!(sizes(root).total_bytes == whole.total_bytes);
    // What is removed of a tree that is nearly full is free at once.
    node.put(file, 60, 38).unwrap();
    node.consistency_point();
    assert!(sizes(tree).free_bytes <= BLOCK as u64);
    node.drop_file(tree, "a");
    assert_eq!(sizes(tree).free_files, 9);
    assert!(sizes(tree).free_bytes >= 97 * BLOCK as u64);
}

#[test]
fn trees_without_limits_of_their_own_have_those_of_each() {
    let (node, root) = start(337);
    node.limit(QuotaTarget::Others(QuotaKind::Tree), Some(blocks(30)));
    let (tree, key) = node.tree(root, "p", "/p");
    let (file, outside) =
        (node.create_file(tree, "a").unwrap(), node.create_file(root, "b").unwrap());
    assert_eq!(node.put(file, 0, 48), Err(FsError::OverQuota));
    node.put(outside, 0, 100).unwrap();
    node.limit_one(key, blocks(80));
    node.put(file, 0, 48).unwrap();
    node.limit(QuotaTarget::One(key), None);
    assert_eq!(node.put(file, 48, 10), Err(FsError::OverQuota));
}

/// A directory with very many entries is looked through in parts.
#[test]
fn the_paths_of_trees_are_found_among_many_names() {
    let (node, root) = start(338);
    let many = node.directory(root, "many");
    let file = node.create_file(root, "a").unwrap();
    for number in 0..12_000 {
        node.link(file, many, &format!("l{number}")).unwrap();
    }
    let (mut trees, mut expected) = (vec![64, 70_000], vec![Some(String::new()), None]);
    for number in 0..300 {
        let name = format!("t{number}");
        let (_, key) = node.tree(many, &name, &format!("/many/{name}"));
        trees.push(key.id);
        expected.push(Some(format!("many/{name}")));
    }
    node.remove_directory(many, "t1");
    expected[3] = None;
    let deep = (0..40).fold(root, |above, _| node.directory(above, "d"));
    let (_, key) = node.tree(deep, "t", &format!("{}/t", "/d".repeat(40)));
    trees.push(key.id);
    expected.push(Some(format!("{}t", "d/".repeat(40))));
    assert_eq!(node.paths_of(trees), expected);
}
