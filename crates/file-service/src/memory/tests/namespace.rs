//! Names: making, finding, linking, moving, removing, listing.

use super::{Fixture, ask, mode, user};
use crate::calls;
use crate::memory::VolumeOptions;
use crate::{
    Caller, CreateMode, DirectoryPage, FileHandle, FileService, FsError, NewNode, RenameFlags,
    SetAttributes,
};

const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };
const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };

#[test]
fn volumes_are_found_by_name() {
    let fixture = Fixture::new();
    let service = &fixture.service;
    assert_eq!(
        ask(service, &Caller::root(), calls::Root { name: "none".to_owned() }).unwrap_err(),
        FsError::NotFound
    );
    let twice = service.add_volume("home", VolumeOptions::default());
    assert_eq!(twice, Err(FsError::Exists));
    service.add_volume("work", VolumeOptions::default()).unwrap();
    let other = ask(service, &Caller::root(), calls::Root { name: "work".to_owned() }).unwrap();
    assert_ne!(fixture.get(fixture.root).file_system, other.attributes.file_system);
    let file = fixture.file("a");
    assert_eq!(fixture.link(file, other.handle, "b"), Err(FsError::CrossDevice));
    let across = fixture.move_to((fixture.root, "a"), (other.handle, "b"));
    assert_eq!(across, Err(FsError::CrossDevice));
}

#[test]
fn lookup_knows_dots_and_refuses_without_search_permission() {
    let fixture = Fixture::new();
    let below = fixture.directory(fixture.root, "d");
    assert_eq!(fixture.lookup(below, "."), Ok(below));
    assert_eq!(fixture.lookup(below, ".."), Ok(fixture.root));
    assert_eq!(fixture.lookup(fixture.root, ".."), Ok(fixture.root));
    assert_eq!(fixture.lookup(fixture.root, "none"), Err(FsError::NotFound));
    assert_eq!(fixture.lookup(fixture.root, ".snapshot"), Err(FsError::NotFound));
    let file = fixture.file("f");
    assert_eq!(fixture.lookup(file, "x"), Err(FsError::NotDirectory));
    fixture.set(&Caller::root(), below, mode(0o700)).unwrap();
    let stranger =
        ask(&fixture.service, &user(5), calls::Lookup { directory: below, name: b"x".to_vec() });
    assert_eq!(stranger.unwrap_err(), FsError::AccessDenied);
}

#[test]
fn create_modes() {
    let fixture = Fixture::new();
    let create = |name: &str, mode, set| {
        let root = Caller::root();
        ask(
            &fixture.service,
            &root,
            calls::Create { directory: fixture.root, name: name.as_bytes().to_vec(), mode, set },
        )
        .map(|made| made.0.handle)
    };
    let none = SetAttributes::default();
    let file = create("a", CreateMode::Exclusive(7), none.clone()).unwrap();
    assert_eq!(create("a", CreateMode::Exclusive(7), none.clone()), Ok(file), "a retry");
    assert_eq!(create("a", CreateMode::Exclusive(8), none.clone()), Err(FsError::Exists));
    assert_eq!(create("a", CreateMode::Guarded, none.clone()), Err(FsError::Exists));
    fixture.write(&Caller::root(), file, 0, b"text").unwrap();
    assert_eq!(create("a", CreateMode::Unchecked, mode(0o777)), Ok(file));
    assert_eq!((fixture.get(file).size, fixture.get(file).mode), (4, 0o600));
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(create("a", CreateMode::Unchecked, cut), Ok(file));
    assert_eq!(fixture.get(file).size, 0);
    fixture.directory(fixture.root, "d");
    assert_eq!(create("d", CreateMode::Unchecked, none.clone()), Err(FsError::IsDirectory));
    assert_eq!(create(".snapshot", CreateMode::Unchecked, none), Err(FsError::Exists));
}

#[test]
fn making_needs_write_permission_after_existence() {
    let fixture = Fixture::new();
    let below = fixture.directory(fixture.root, "d");
    fixture.create(&Caller::root(), below, "a").unwrap();
    assert_eq!(fixture.create(&user(5), below, "a").unwrap_err(), FsError::Exists);
    assert_eq!(fixture.create(&user(5), below, "b").unwrap_err(), FsError::AccessDenied);
    let made = fixture.create(&user(5), fixture.root, "c").unwrap().attributes;
    assert_eq!((made.uid, made.gid), (5, 5));
    let device = fixture.make(&user(5), fixture.root, "x", NewNode::BlockDevice(8, 1));
    assert_eq!(device.unwrap_err(), FsError::NotPermitted);
    let device = fixture.make(&Caller::root(), fixture.root, "x", NewNode::BlockDevice(8, 1));
    assert_eq!(device.unwrap().attributes.device, (8, 1));
}

#[test]
fn directories_count_their_subdirectories_and_note_times() {
    let fixture = Fixture::new();
    let before = fixture.get(fixture.root);
    let below = fixture.directory(fixture.root, "d");
    let after = fixture.get(fixture.root);
    assert_eq!((before.links, after.links), (2, 3));
    assert!(after.mtime > before.mtime && after.ctime == after.mtime);
    assert!(after.change > before.change);
    fixture.create(&Caller::root(), below, "a").unwrap();
    assert_eq!(fixture.remove_directory(fixture.root, "d"), Err(FsError::NotEmpty));
    assert_eq!(fixture.remove(fixture.root, "d"), Err(FsError::IsDirectory));
    fixture.remove(below, "a").unwrap();
    fixture.remove_directory(fixture.root, "d").unwrap();
    assert_eq!(fixture.get(fixture.root).links, 2);
    let gone = ask(&fixture.service, &Caller::root(), calls::GetAttributes { file: below });
    assert_eq!(gone.unwrap_err(), FsError::Stale);
}

#[test]
fn dots_cannot_be_removed_or_renamed() {
    let fixture = Fixture::new();
    let below = fixture.directory(fixture.root, "d");
    assert_eq!(fixture.remove(below, "."), Err(FsError::IsDirectory));
    assert_eq!(fixture.remove_directory(below, "."), Err(FsError::Invalid));
    assert_eq!(fixture.remove_directory(below, ".."), Err(FsError::NotEmpty));
    for (from, to) in [(".", "x"), ("..", "x"), ("d", "."), ("d", "..")] {
        let moved = fixture.move_to((fixture.root, from), (fixture.root, to));
        assert_eq!(moved, Err(FsError::Invalid));
    }
    assert_eq!(fixture.remove_directory(fixture.root, "none"), Err(FsError::NotFound));
    fixture.file("f");
    assert_eq!(fixture.remove_directory(fixture.root, "f"), Err(FsError::NotDirectory));
}

#[test]
fn an_inode_number_returns_with_another_generation() {
    let fixture = Fixture::new();
    let first = fixture.file("a");
    fixture.remove(fixture.root, "a").unwrap();
    let second = fixture.file("b");
    assert_eq!(first.inode, second.inode);
    assert_ne!(first.generation, second.generation);
    let stale = ask(&fixture.service, &Caller::root(), calls::GetAttributes { file: first });
    assert_eq!(stale.unwrap_err(), FsError::Stale);
}

#[test]
fn held_files_outlive_their_names() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    fixture.write(&Caller::root(), file, 0, b"kept").unwrap();
    let hold = ask(&fixture.service, &Caller::root(), calls::HoldFile { file }).unwrap();
    assert_eq!(ask(&fixture.service, &Caller::root(), calls::HoldFile { file }), Ok(hold));
    fixture.remove(fixture.root, "a").unwrap();
    assert_eq!(fixture.get(file).links, 0);
    assert_eq!(fixture.link(file, fixture.root, "b"), Err(FsError::NotFound));
    fixture.service.release(&Caller::root(), calls::ReleaseHold { hold }, Box::new(drop));
    assert_eq!(fixture.read(file, 0, 9), b"kept");
    fixture.service.release(&Caller::root(), calls::ReleaseHold { hold }, Box::new(drop));
    let gone = ask(&fixture.service, &Caller::root(), calls::HoldFile { file });
    assert_eq!(gone.unwrap_err(), FsError::Stale);
}

#[test]
fn a_held_removed_directory_is_empty_for_ever() {
    let fixture = Fixture::new();
    let below = fixture.directory(fixture.root, "d");
    let hold = ask(&fixture.service, &Caller::root(), calls::HoldFile { file: below }).unwrap();
    fixture.remove_directory(fixture.root, "d").unwrap();
    assert_eq!(fixture.create(&Caller::root(), below, "x").unwrap_err(), FsError::NotFound);
    assert_eq!(fixture.lookup(below, ".."), Err(FsError::NotFound));
    assert!(list(&fixture, below, 0, 10).entries.is_empty());
    let file = fixture.file("f");
    assert_eq!(fixture.link(file, below, "x"), Err(FsError::NotFound));
    let moved = fixture.move_to((fixture.root, "f"), (below, "x"));
    assert_eq!(moved, Err(FsError::NotFound));
    fixture.service.release(&Caller::root(), calls::ReleaseHold { hold }, Box::new(drop));
}

#[test]
fn links_share_a_file() {
    let fixture = Fixture::new();
    let file = fixture.file("a");
    let below = fixture.directory(fixture.root, "d");
    fixture.link(file, below, "b").unwrap();
    assert_eq!(fixture.get(file).links, 2);
    assert_eq!(fixture.link(file, below, "b"), Err(FsError::Exists));
    assert_eq!(fixture.link(below, fixture.root, "e"), Err(FsError::NotPermitted));
    let same = fixture.move_to((fixture.root, "a"), (below, "b"));
    assert_eq!(same, Ok(()), "two names of one file: nothing happens");
    assert_eq!(fixture.lookup(fixture.root, "a"), Ok(file));
    fixture.remove(fixture.root, "a").unwrap();
    assert_eq!(fixture.lookup(below, "b"), Ok(file));
}

#[test]
fn renames_move_replace_and_swap() {
    let fixture = Fixture::new();
    let root = fixture.root;
    let (one, two) = (fixture.file("a"), fixture.file("b"));
    let below = fixture.directory(root, "d");
    assert_eq!(fixture.rename((root, "a"), (root, "b"), NO_REPLACE), Err(FsError::Exists));
    fixture.rename((root, "a"), (root, "b"), EXCHANGE).unwrap();
    assert_eq!((fixture.lookup(root, "a"), fixture.lookup(root, "b")), (Ok(two), Ok(one)));
    fixture.rename((root, "a"), (root, "d"), EXCHANGE).unwrap();
    assert_eq!(fixture.lookup(root, "a"), Ok(below));
    fixture.move_to((root, "b"), (root, "d")).unwrap();
    assert_eq!(fixture.lookup(root, "d"), Ok(one));
    assert_eq!(fixture.lookup(root, "b"), Err(FsError::NotFound));
    let replaced = ask(&fixture.service, &Caller::root(), calls::GetAttributes { file: two });
    assert_eq!(replaced.unwrap_err(), FsError::Stale);
    assert_eq!(fixture.move_to((root, "none"), (root, "x")), Err(FsError::NotFound));
    let both = RenameFlags { no_replace: true, exchange: true };
    assert_eq!(fixture.rename((root, "d"), (root, "a"), both), Err(FsError::Invalid));
}

#[test]
fn directories_move_with_their_parent_link() {
    let fixture = Fixture::new();
    let root = fixture.root;
    let (one, two) = (fixture.directory(root, "one"), fixture.directory(root, "two"));
    let child = fixture.directory(one, "child");
    fixture.move_to((one, "child"), (two, "moved")).unwrap();
    assert_eq!((fixture.get(one).links, fixture.get(two).links), (2, 3));
    assert_eq!(fixture.lookup(child, ".."), Ok(two));
    fixture.move_to((two, "moved"), (root, "one")).unwrap();
    assert_eq!(fixture.lookup(root, "one"), Ok(child));
    assert_eq!(fixture.get(root).links, 4);
    fixture.file("f");
    fixture.create(&Caller::root(), two, "x").unwrap();
    assert_eq!(fixture.move_to((root, "one"), (root, "two")), Err(FsError::NotEmpty));
    assert_eq!(fixture.move_to((root, "one"), (root, "f")), Err(FsError::NotDirectory));
    assert_eq!(fixture.move_to((root, "f"), (root, "one")), Err(FsError::IsDirectory));
    let (a, b) = (fixture.directory(child, "a"), fixture.directory(two, "b"));
    fixture.rename((child, "a"), (two, "b"), EXCHANGE).unwrap();
    assert_eq!((fixture.lookup(a, ".."), fixture.lookup(b, "..")), (Ok(two), Ok(child)));
}

#[test]
fn nothing_moves_below_itself() {
    let fixture = Fixture::new();
    let root = fixture.root;
    let one = fixture.directory(root, "one");
    let two = fixture.directory(one, "two");
    assert_eq!(fixture.move_to((root, "one"), (two, "x")), Err(FsError::Invalid));
    assert_eq!(fixture.move_to((root, "one"), (one, "x")), Err(FsError::Invalid));
    assert_eq!(fixture.rename((root, "one"), (one, "two"), EXCHANGE), Err(FsError::Invalid));
    fixture.create(&Caller::root(), two, "f").unwrap();
    assert_eq!(fixture.move_to((two, "f"), (root, "one")), Err(FsError::NotEmpty));
    assert_eq!(fixture.rename((two, "f"), (root, "one"), EXCHANGE), Err(FsError::Invalid));
}

fn list(fixture: &Fixture, directory: FileHandle, cookie: u64, count: u32) -> DirectoryPage {
    let root = Caller::root();
    ask(
        &fixture.service,
        &root,
        calls::ReadDirectory { directory, cookie, entries_max: count, with_attributes: true },
    )
    .unwrap()
}

#[test]
fn cookies_stay_good_while_names_go() {
    let fixture = Fixture::new();
    for name in ["a", "b", "c", "d"] {
        fixture.file(name);
    }
    let names = |page: &DirectoryPage| {
        let name = |entry: &crate::DirectoryEntry| String::from_utf8(entry.name.clone()).unwrap();
        page.entries.iter().map(name).collect::<Vec<_>>()
    };
    let page = list(&fixture, fixture.root, 0, 4);
    assert_eq!(names(&page), [".", "..", "a", "b"]);
    assert_eq!((page.entries[0].cookie, page.entries[1].cookie, page.end), (1, 2, false));
    assert_eq!(names(&list(&fixture, fixture.root, 1, 1)), [".."]);
    for name in ["a", "b", "c"] {
        fixture.remove(fixture.root, name).unwrap();
    }
    fixture.file("e");
    let rest = list(&fixture, fixture.root, page.entries[3].cookie, 10);
    assert_eq!((names(&rest), rest.end), (vec!["d".to_owned(), "e".to_owned()], true));
    let entry = rest.entries[0].entry.as_ref().unwrap();
    assert_eq!(entry.handle, fixture.lookup(fixture.root, "d").unwrap());
    let file = fixture.lookup(fixture.root, "d").unwrap();
    let root = Caller::root();
    let wrong = ask(
        &fixture.service,
        &root,
        calls::ReadDirectory { directory: file, cookie: 0, entries_max: 1, with_attributes: false },
    );
    assert_eq!(wrong.unwrap_err(), FsError::NotDirectory);
    let private = fixture.directory(fixture.root, "p");
    fixture.set(&root, private, mode(0o711)).unwrap();
    let denied = ask(
        &fixture.service,
        &user(5),
        calls::ReadDirectory {
            directory: private,
            cookie: 0,
            entries_max: 1,
            with_attributes: false,
        },
    );
    assert_eq!(denied.unwrap_err(), FsError::AccessDenied);
}
