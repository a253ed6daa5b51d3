//! Differences of images that were made in memory: against a naive model, with each load waited
//! for and forgotten at every pause, and of images that are damaged or contradict themselves.

mod model;

use super::changes::Name;
use super::*;
use crate::cache::BufferCache;
use crate::reader::{HeldBlocks, Stop, Wait};
use crate::test_media::Media;
use model::{ROOT, Volume};
use ondisk::inode::{KIND_DIRECTORY, KIND_REGULAR};
use ondisk::pointer::DualPointer;
use proptest::prelude::*;

const LIMITS: DifferenceLimits = DifferenceLimits { files_max: 10_000, path_bytes_max: 1 << 20 };

type Images = [Root<DualPointer>; 2];

/// Walks without a cache; blocks are forgotten at each pause.
fn walk(media: &Media, [old, new]: Images, limits: DifferenceLimits, blocks: usize) -> Walked {
    let mut walk = DifferenceWalk::new(model::VOLUME, old, new, limits);
    let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
    let (mut pauses, mut waits) = (0, 0);
    loop {
        match walk.go_on(blocks, &Reader { cache: &cache, held: &held }) {
            Ok(DifferenceStep::Pause) => {
                held.trim(0);
                pauses += 1;
            }
            Ok(DifferenceStep::Done(found)) => {
                return Walked { pauses, waits, end: End::Done(found.in_order()) };
            }
            Ok(DifferenceStep::TooMany(limit)) => {
                return Walked { pauses, waits, end: End::TooMany(limit) };
            }
            Err(Stop::Wait(Wait::Load(requests))) => {
                waits += 1;
                media.serve(&requests, &held);
            }
            Err(stop) => panic!("{stop:?}"),
        }
        assert!(pauses + waits < 100_000, "the walk gets no further");
    }
}

struct Walked {
    pauses: usize,
    waits: usize,
    end: End,
}

#[derive(PartialEq, Debug)]
enum End {
    Done(Differences),
    TooMany(DifferenceLimit),
}

fn differences(media: &Media, images: Images) -> Differences {
    match walk(media, images, LIMITS, usize::MAX).end {
        End::Done(differences) => differences,
        end => panic!("{end:?}"),
    }
}

/// A line for each file: what became of it, and its old and new paths.
fn told(differences: &Differences) -> Vec<String> {
    let paths = |paths: &[Vec<u8>]| {
        let paths: Vec<_> = paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
        paths.join("|")
    };
    let line = |file: &Difference| {
        let also = if file.change == Change::Renamed && file.is_modified { "+" } else { "" };
        let (old, new) = (paths(&file.old_paths), paths(&file.new_paths));
        format!("{:?}{also} {old} > {new}", file.change)
    };
    differences.files.iter().map(line).collect()
}

fn check(volume: &mut Volume, change: impl FnOnce(&mut Volume), lines: &[&str]) {
    let old = volume.image();
    change(volume);
    let new = volume.image();
    let found = differences(&volume.media, [old, new]);
    assert_eq!(told(&found), lines);
    assert_eq!((found.unreadable_directories, found.unreadable_inodes), (0, 0));
}

/// `one/two/file`, `one/other` and `top`.
fn small() -> (Volume, [u64; 5]) {
    let mut volume = Volume::new();
    let one = volume.create(ROOT, "one", KIND_DIRECTORY);
    let two = volume.create(one, "two", KIND_DIRECTORY);
    let file = volume.create(two, "file", KIND_REGULAR);
    let other = volume.create(one, "other", KIND_REGULAR);
    let top = volume.create(ROOT, "top", KIND_REGULAR);
    (volume, [one, two, file, other, top])
}

#[test]
fn each_kind_of_change_is_told() {
    let (mut volume, [one, two, file, other, top]) = small();
    check(&mut volume, |_| {}, &[]);
    check(&mut volume, |volume| volume.read(file), &[]);
    check(&mut volume, |volume| volume.modify(file), &["Modified one/two/file > one/two/file"]);
    check(
        &mut volume,
        |volume| volume.rename((two, "file"), (two, "new")),
        &["Modified one/two > one/two", "Renamed one/two/file > one/two/new"],
    );
    let both = |volume: &mut Volume| {
        volume.rename((two, "new"), (ROOT, "file"));
        volume.modify(file);
    };
    check(
        &mut volume,
        both,
        &["Modified  > ", "Renamed+ one/two/new > file", "Modified one/two > one/two"],
    );
    check(
        &mut volume,
        |volume| volume.link(other, (two, "again")),
        &["Renamed one/other > one/other|one/two/again", "Modified one/two > one/two"],
    );
    check(
        &mut volume,
        |volume| volume.remove((one, "other")),
        &["Modified one > one", "Renamed one/other|one/two/again > one/two/again"],
    );
    let replace = |volume: &mut Volume| {
        volume.remove((ROOT, "top"));
        assert_eq!(volume.create(ROOT, "top", KIND_REGULAR), top, "the inode is used again");
    };
    check(&mut volume, replace, &["Modified  > ", "Removed top > ", "Created  > top"]);
}

/// Below a directory that was renamed what did not change is not told, and what changed was not
/// renamed.
#[test]
fn a_renamed_directory_hides_no_change_below() {
    let (mut volume, [_, _, file, ..]) = small();
    let change = |volume: &mut Volume| {
        volume.rename((ROOT, "one"), (ROOT, "moved"));
        volume.modify(file);
    };
    check(
        &mut volume,
        change,
        &["Modified  > ", "Renamed one > moved", "Modified one/two/file > moved/two/file"],
    );
}

#[test]
fn a_file_without_links_is_absent() {
    let (mut volume, [.., top]) = small();
    check(&mut volume, |volume| volume.orphan((ROOT, "top")), &["Modified  > ", "Removed top > "]);
    check(&mut volume, |volume| volume.modify(top), &[]);
}

#[test]
fn sizes_and_kinds_are_those_of_the_images() {
    let (mut volume, [.., top]) = small();
    let old = volume.image();
    volume.modify(top);
    let new = volume.image();
    let found = differences(&volume.media, [old, new]);
    let [file] = &found.files[..] else { panic!("{found:?}") };
    assert_eq!((file.inode, file.kind), (InodeNumber(top), KIND_REGULAR));
    assert!(file.is_modified && file.old_size < file.new_size);
}

/// A large directory, and a wide one: stretches, and that a wait serves many directories.
#[test]
fn many_directories_wait_together() {
    let mut volume = Volume::new();
    let wide = volume.create(ROOT, "wide", KIND_DIRECTORY);
    let mut files = Vec::new();
    for index in 0..600 {
        let one = volume.create(wide, &format!("directory {index}"), KIND_DIRECTORY);
        if index % 7 == 0 {
            files.push(volume.create(one, "file", KIND_REGULAR));
        }
    }
    let old = volume.image();
    files.iter().for_each(|file| volume.modify(*file));
    let new = volume.image();
    let walked = walk(&volume.media, [old, new], LIMITS, usize::MAX);
    let End::Done(found) = walked.end else { panic!("{:?}", walked.end) };
    assert_eq!(found.files.len(), files.len());
    assert!(found.files.iter().all(|file| file.old_paths.len() == 1));
    assert!(walked.waits < 200, "{} waits", walked.waits);
    let stepwise = walk(&volume.media, [old, new], LIMITS, 1);
    assert_eq!(stepwise.end, End::Done(found));
    assert!(stepwise.pauses > 6);
}

/// Hundreds of blocks of one directory, and names that are sought all over it.
#[test]
fn blocks_of_a_large_directory_wait_together() {
    let mut volume = Volume::new();
    let names: Vec<String> = (0..4_000).map(|index| format!("a file of number {index}")).collect();
    let files: Vec<u64> =
        names.iter().map(|name| volume.create(ROOT, name, KIND_REGULAR)).collect();
    let old = volume.image();
    files.iter().step_by(100).for_each(|file| volume.modify(*file));
    let new = volume.image();
    let walked = walk(&volume.media, [old, new], LIMITS, usize::MAX);
    let End::Done(found) = walked.end else { panic!("{:?}", walked.end) };
    let mut expected: Vec<&[u8]> = names.iter().step_by(100).map(|name| name.as_bytes()).collect();
    expected.sort_unstable();
    assert!(found.files.iter().map(|file| &file.new_paths[0][..]).eq(expected));
    assert!(walked.waits < 50, "{} waits", walked.waits);
    assert_eq!(walk(&volume.media, [old, new], LIMITS, 1).end, End::Done(found));
}

/// Directories deeper than the walk goes down.
#[test]
fn too_deep_directories_are_unreadable() {
    let mut volume = Volume::new();
    let mut parent = ROOT;
    for _ in 0..names::DEPTH_MAX {
        parent = volume.create(parent, "d", KIND_DIRECTORY);
    }
    let file = volume.create(parent, "file", KIND_REGULAR);
    let old = volume.image();
    volume.modify(file);
    let new = volume.image();
    let found = differences(&volume.media, [old, new]);
    assert_eq!(told(&found), ["Modified  > "]);
    assert_eq!(found.unreadable_directories, 2);
}

#[test]
fn the_walk_ends_with_the_last_name() {
    let mut volume = Volume::new();
    let file = volume.create(ROOT, "file", KIND_REGULAR);
    let one = volume.create(ROOT, "one", KIND_DIRECTORY);
    let lost = volume.create(one, "two", KIND_DIRECTORY);
    let old = volume.image();
    volume.modify(file);
    let new = volume.image();
    volume.lose_directory(lost);
    let found = differences(&volume.media, [old, new]);
    assert_eq!(told(&found), ["Modified file > file"]);
    assert_eq!(found.unreadable_directories, 0, "nobody looked at it");
}

#[test]
fn a_damaged_directory_is_counted_and_the_rest_goes_on() {
    let (mut volume, [_, two, file, other, _]) = small();
    let old = volume.image();
    volume.modify(file);
    volume.modify(other);
    let new = volume.image();
    volume.lose_directory(two);
    let found = differences(&volume.media, [old, new]);
    // The names of `file` are not known, so nothing is said of them.
    assert_eq!(told(&found), ["Modified  > ", "Modified one/other > one/other"]);
    assert_eq!(found.unreadable_directories, 2);
}

#[test]
fn a_damaged_inode_is_counted_and_the_rest_goes_on() {
    let (mut volume, [_, _, file, .., top]) = small();
    let old = volume.image();
    volume.modify(file);
    volume.modify(top);
    volume.spoil_inode(top);
    let new = volume.image();
    let found = differences(&volume.media, [old, new]);
    assert_eq!(told(&found), ["Modified one/two/file > one/two/file"]);
    assert_eq!(found.unreadable_inodes, 1);
}

/// Directories that are their own ancestors, and one with two names: the walk ends, and counts what
/// it did not go into.
#[test]
fn a_contradictory_image_does_not_hold_the_walk_up() {
    let (mut volume, [one, two, file, ..]) = small();
    volume.insert_entry(two, "ring", one);
    // By its links it has a subdirectory: `..` alone tells that the ring is none.
    volume.add_link(two);
    volume.insert_entry(one, "root", ROOT);
    volume.insert_entry(one, "twice", two);
    // A name too few, so that the walk does not end early.
    volume.add_link(file);
    let old = volume.image();
    volume.modify(file);
    let new = volume.image();
    let found = differences(&volume.media, [old, new]);
    // Through which of its two names `two` is reached is by chance.
    assert_eq!(found.files.len(), 1);
    assert_eq!(found.files[0].new_paths.len(), 1);
    assert_eq!(found.unreadable_directories, 6);
}

#[test]
fn limits_end_the_walk() {
    let (mut volume, [_, _, file, other, _]) = small();
    let old = volume.image();
    volume.modify(file);
    volume.modify(other);
    let images = [old, volume.image()];
    let end = |files_max, path_bytes_max| {
        walk(&volume.media, images, DifferenceLimits { files_max, path_bytes_max }, 1).end
    };
    assert_eq!(end(1, 1 << 20), End::TooMany(DifferenceLimit::Files));
    assert!(matches!(end(2, 1 << 20), End::Done(_)));
    // Each image's paths, the last of them while no other directory is kept.
    let kept_bytes = |path: &str| path.len() + size_of::<Name>();
    let names_bytes = 2 * (kept_bytes("one/two/file") + kept_bytes("one/other"));
    // Directories on the way are kept, too.
    let enough = (names_bytes..).find(|bytes| matches!(end(2, *bytes), End::Done(_))).unwrap();
    assert!(enough < 2 * names_bytes);
    assert!(matches!(end(2, enough), End::Done(_)));
    assert_eq!(end(2, enough - 1), End::TooMany(DifferenceLimit::PathBytes));
    assert_eq!(end(2, 2), End::TooMany(DifferenceLimit::PathBytes));
}

proptest! {
    #[test]
    fn differences_are_those_of_a_naive_model(
        before in prop::collection::vec(model::step(), 0..40),
        after in prop::collection::vec(model::step(), 0..25),
    ) {
        let mut volume = Volume::new();
        before.iter().for_each(|step| volume.apply(step));
        let (old, old_files) = (volume.image(), volume.files());
        after.iter().for_each(|step| volume.apply(step));
        let (new, new_files) = (volume.image(), volume.files());
        for (images, expected) in [
            ([old, new], model::naive(&old_files, &new_files)),
            ([new, old], model::naive(&new_files, &old_files)),
            ([old, old], Differences::default()),
        ] {
            let found = differences(&volume.media, images);
            prop_assert_eq!(&found, &expected);
            let stepwise = walk(&volume.media, images, LIMITS, 1);
            prop_assert_eq!(stepwise.end, End::Done(found));
        }
    }
}
