//! The free map and its space, case by case.

use super::*;
use crate::cache::BufferCache;
use crate::reader::HeldBlocks;
use ondisk::pointer::PhysicalPointer;

/// Runs `work` on a space of which numbers 1 to 9 are in use.
fn outcome(
    work: impl FnOnce(&mut Space<PhysicalPointer>, &Reader<'_>) -> Progress<()>,
) -> Progress<()> {
    let (cache, held) = (BufferCache::new(8), HeldBlocks::default());
    let reader = Reader { cache: &cache, held: &held };
    let mut space = Space::new(VolumeId(0), 100);
    (1..10).for_each(|vbn| space.take(Pvbn(vbn)));
    assert_eq!(space.settle(&reader), Ok(()));
    work(&mut space, &reader)
}

/// Found by the fuzz target `mount_image`: blocks that prove themselves may still contradict
/// each other, and an image that does is no reason to end the process.
#[test]
fn regression_what_the_maps_contradict_is_an_error() {
    let is_refused = |work: &dyn Fn(&mut Space<PhysicalPointer>)| {
        let found = outcome(|space, reader| {
            work(space);
            space.settle(reader)
        });
        matches!(found, Err(Stop::Contradiction(_)))
    };
    assert!(!is_refused(&|space| space.free(Pvbn(5))));
    assert!(is_refused(&|space| space.free(Pvbn(50))), "free and freed");
    assert!(is_refused(&|space| space.take(Pvbn(5))), "in use and taken");
    assert!(is_refused(&|space| {
        space.used_blocks = 0;
        space.free(Pvbn(5));
    }));
    assert!(is_refused(&|space| {
        space.active_blocks = 0;
        space.free(Pvbn(5));
    }));
}

/// What a pinned image has is not given from the commit that frees it to the end of the pin.
#[test]
fn a_pinned_number_is_given_after_the_pin_only() {
    let found = outcome(|space, reader| {
        let commit = |space: &mut Space<PhysicalPointer>| {
            space.settle(reader)?;
            // As if the map had been written and read again.
            let dirty = std::mem::take(&mut space.active_map.dirty);
            let freed = space.commit();
            space.active_map.dirty = dirty;
            Progress::Ok(freed)
        };
        assert_eq!(commit(space)?, []);
        space.pin(1 << 20);
        space.free(Pvbn(5));
        space.take(Pvbn(20));
        assert_eq!((commit(space)?, space.held_blocks()), (vec![], 1));
        assert!(!space.is_givable(Pvbn(5)) && space.is_being_freed(Pvbn(5)), "the image has it");
        space.free(Pvbn(20));
        assert_eq!((commit(space)?, space.held_blocks()), (vec![Pvbn(20)], 1), "it never had it");
        assert!(space.is_givable(Pvbn(20)) && !space.is_givable(Pvbn(5)));
        assert_eq!((space.unpin(), space.held_blocks()), (vec![Pvbn(5)], 0));
        assert!(space.is_givable(Pvbn(5)) && !space.is_being_freed(Pvbn(5)));
        Ok(())
    });
    assert_eq!(found, Ok(()));
}

#[test]
fn an_image_that_counts_more_than_there_is_has_nothing_unused() {
    let mut space: Space<PhysicalPointer> = Space::new(VolumeId(0), 100);
    (space.used_blocks, space.delayed_blocks) = (60, 40);
    assert_eq!(space.unused_blocks(), 0);
    space.used_blocks += 1;
    assert_eq!((space.unused_blocks(), space.free_numbers()), (0, 0));
}

#[test]
fn regression_number_0_is_never_given_and_a_full_map_is_an_error() {
    let found = outcome(|space, reader| {
        // Ninety are free but 0; the map says of it that it is free too.
        space.fill_pool(90, reader)?;
        assert!((0..90).all(|_| space.take_from_pool() != Pvbn(0)));
        space.fill_pool(1, reader)
    });
    assert!(matches!(found, Err(Stop::Contradiction(_))), "{found:?}");
}
