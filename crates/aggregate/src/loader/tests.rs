//! Loads from a store on a simulated disk, with a container map that the test makes up.

use super::*;
use cowfs::cache::Class;
use cowfs::reader::{Progress, Reader, Stop};
use ondisk::identity::BlockOwner;
use ondisk::label::RaidKind;
use platform::Disk;
use platform::simulated::SimulatedWorld;
use raid::{BlockWrite, CreateRequest, GroupRequest, NoPartialParityLog};
use std::collections::BTreeMap;
use units::{Block, Timestamp};

#[cfg(shuttle)]
mod interleavings;

const VOLUME: VolumeId = VolumeId(1);
/// The smallest disk that a label fits on, and some room.
const DISK_BLOCKS: u64 = 4096;

/// What the container map of the last commit says; blocks have moved.
#[derive(Default)]
struct Maps(Mutex<BTreeMap<Vvbn, Pvbn>>);

impl ContainerMaps for Maps {
    fn has_moved(&self, _: VolumeId) -> bool {
        true
    }

    fn note_random_reads(&self, _: &[(VolumeId, Vvbn)]) {}

    fn places_of(&self, blocks: Vec<(VolumeId, Vvbn)>, done: PlacesDone) {
        let place =
            |vvbn: &Vvbn| self.0.lock().get(vvbn).map_or(Place::Nowhere, |at| Place::At(*at));
        done(blocks.iter().map(|(_, vvbn)| place(vvbn)).collect());
    }
}

struct Rig {
    world: SimulatedWorld,
    loader: Loader,
    maps: Arc<Maps>,
}

impl Rig {
    fn new(cache_blocks: usize) -> Self {
        let world = SimulatedWorld::new(1);
        let disk = world.add_disk("disk", DISK_BLOCKS) as Arc<dyn Disk>;
        let request = CreateRequest {
            name: "a1".to_owned(),
            groups: vec![GroupRequest { kind: RaidKind::None, disks: vec![disk] }],
            created: Timestamp(0),
            force: false,
            media: None,
            log_regions: 0,
        };
        let slot = Arc::new(Mutex::new(None));
        let filled = Arc::clone(&slot);
        let done = move |store| *filled.lock() = Some(store);
        raid::create(request, &world, Arc::new(NoPartialParityLog), Box::new(done));
        world.run_until_idle();
        let store = slot.lock().take().unwrap().unwrap();
        let maps = Arc::new(Maps::default());
        let loader = Loader {
            maps: Some(Arc::clone(&maps) as _),
            store: Arc::new(store),
            cache: Arc::new(BufferCache::new(cache_blocks)),
            lost_blocks: Arc::default(),
            under_way: Arc::default(),
        };
        Self { world, loader, maps }
    }

    /// Writes a block, whatever the map says of it.
    fn write(&self, pvbn: u64, content: &BlockRef) {
        let (pvbn, block) = (Pvbn(pvbn), Arc::clone(content));
        let owner = BlockOwner {
            kind: 1,
            level: 0,
            volume: VOLUME,
            vvbn: Vvbn(1),
            inode: units::InodeNumber(70),
            fbn: units::Fbn(0),
            cp: CpNumber(1),
        };
        self.loader.store.write(BlockWrite::new(pvbn, block, owner));
        self.loader.store.sync(Box::new(|outcome| outcome.unwrap()));
        self.world.run_until_idle();
    }

    /// Loads, and what the waiting message is given; `None` if there is no answer.
    fn load(&self, requests: Vec<LoadRequest>) -> Option<HeldBlocks> {
        let (held, is_done) = (HeldBlocks::default(), Arc::new(Mutex::new(false)));
        let told = Arc::clone(&is_done);
        self.loader.load(requests, held.clone(), Box::new(move || *told.lock() = true));
        self.world.run_until_idle();
        let is_done = *is_done.lock();
        is_done.then_some(held)
    }
}

fn content(number: u64) -> BlockRef {
    Arc::new(Block::from_prefix(&number.to_le_bytes()))
}

/// A pointer to a block with this content.
fn pointer(pvbn: u64, vvbn: u64, content: &BlockRef) -> LoadRequest {
    let checksum = content_checksum(content, cowfs::content::Content::Data);
    LoadRequest {
        pvbn: Pvbn(pvbn),
        check: checksum,
        proof: LoadProof::Content { checksum, content: cowfs::content::Content::Data },
        virtual_number: Some((VOLUME, Vvbn(vvbn))),
        class: Class::Data,
        is_random: false,
    }
}

/// What a message that holds these blocks sees: the block, nothing, or damage.
fn seen(rig: &Rig, held: &HeldBlocks, request: &LoadRequest) -> Progress<Option<BlockRef>> {
    Reader { cache: &rig.loader.cache, held }.find(request)
}

/// A consistency point under way reads back what it has placed, and the cache is too small to have
/// kept it: the map of the last commit knows nothing of the block, and it was taken for lost.
#[test]
fn regression_a_block_that_is_not_committed_is_found_in_a_volume_whose_blocks_moved() {
    let rig = Rig::new(8);
    let (new, other) = (content(1), content(2));
    rig.write(100, &new);
    let request = pointer(100, 7, &new);
    let held = rig.load(vec![request]).unwrap();
    assert_eq!(seen(&rig, &held, &request), Ok(Some(Arc::clone(&new))));
    // What the volume has let go of may have been written over: that is no loss, but it is gone.
    rig.write(101, &other);
    let gone = pointer(101, 8, &new);
    let held = rig.load(vec![gone]).unwrap();
    assert_eq!(seen(&rig, &held, &gone), Err(Stop::Damaged(Pvbn(101))));
    assert_eq!(rig.loader.lost_blocks.load(Ordering::Relaxed), 0);
    assert_eq!(rig.loader.under_way.places(), []);
}

/// A load that takes long ends after its place was freed and given to another block, whose pointer
/// may have the same check. The cache had the old block then.
#[test]
fn regression_a_late_load_does_not_take_the_place_of_a_new_block_in_the_cache() {
    for run in [false, true] {
        let rig = Rig::new(8);
        let (old, other, new) = (content(1), content(2), content(3));
        rig.write(100, &old);
        rig.write(101, &other);
        let requests = [pointer(100, 7, &old), pointer(101, 8, &other)];
        let wanted = requests[..if run { 2 } else { 1 }].to_vec();
        rig.loader.load(wanted, HeldBlocks::default(), Box::new(|| ()));
        rig.loader.under_way.note_freed(&[Pvbn(100)]);
        rig.loader.cache.remove(Pvbn(100));
        rig.loader.cache.insert(Pvbn(100), (requests[0].check, Class::Data), Arc::clone(&new));
        rig.world.run_until_idle();
        assert_eq!(rig.loader.cache.get(Pvbn(100), requests[0].check), Some(new));
        assert_eq!(rig.loader.under_way.places(), []);
        let beside = rig.loader.cache.get(Pvbn(101), requests[1].check);
        assert_eq!(beside, run.then_some(other));
    }
}

/// The same where the map knew of a place after the pointer's was wrong.
#[test]
fn regression_a_late_load_by_the_map_does_not_take_a_new_blocks_place_either() {
    let rig = Rig::new(8);
    let (moved, other, new) = (content(1), content(2), content(3));
    rig.write(100, &other);
    rig.write(200, &moved);
    rig.maps.0.lock().insert(Vvbn(7), Pvbn(200));
    let request = pointer(100, 7, &moved);
    // Known to be where it is not any more.
    rig.loader.cache.note_moved(Pvbn(100), request.check, Pvbn(101));
    rig.loader.load(vec![request], HeldBlocks::default(), Box::new(|| ()));
    while rig.loader.under_way.places() != [Pvbn(200)] {
        assert!(rig.world.step());
    }
    rig.loader.under_way.note_freed(&[Pvbn(200)]);
    rig.loader.cache.insert(Pvbn(200), (request.check, Class::Data), Arc::clone(&new));
    rig.world.run_until_idle();
    assert_eq!(rig.loader.cache.get(Pvbn(200), request.check), Some(new));
}

#[test]
fn a_block_that_moved_is_read_where_the_map_says() {
    let rig = Rig::new(8);
    let (moved, other) = (content(1), content(2));
    rig.write(100, &other);
    rig.write(200, &moved);
    rig.maps.0.lock().insert(Vvbn(7), Pvbn(200));
    let request = pointer(100, 7, &moved);
    let held = rig.load(vec![request]).unwrap();
    assert_eq!(seen(&rig, &held, &request), Ok(Some(moved)));
    assert_eq!(rig.loader.lost_blocks.load(Ordering::Relaxed), 0);
}

/// A clone frees an inherited number and takes it anew. Until that is committed the container map
/// names the block that an ancestor has under the number.
#[test]
fn a_clones_block_that_is_not_committed_is_not_taken_for_its_ancestors() {
    let rig = Rig::new(8);
    let (new, of_ancestor) = (content(1), content(2));
    rig.write(100, &new);
    rig.write(200, &of_ancestor);
    rig.maps.0.lock().insert(Vvbn(7), Pvbn(200));
    let request = pointer(100, 7, &new);
    for map in [200, 200, 100] {
        rig.maps.0.lock().insert(Vvbn(7), Pvbn(map));
        let held = rig.load(vec![request]).unwrap();
        assert_eq!(seen(&rig, &held, &request), Ok(Some(Arc::clone(&new))));
        rig.loader.cache.remove(Pvbn(100));
    }
    assert_eq!(rig.loader.lost_blocks.load(Ordering::Relaxed), 0);
}

/// What lies between blocks that are near each other is read with them, and is nobody's.
#[test]
fn blocks_that_are_near_each_other_are_read_with_one_request() {
    let rig = Rig::new(64);
    let at: [u64; 6] = [100, 102, 103, 111, 120, 240];
    let requests: Vec<_> = at.iter().map(|at| pointer(*at, *at, &content(*at))).collect();
    for at in at {
        rig.write(at, &content(at));
        rig.maps.0.lock().insert(Vvbn(at), Pvbn(at));
    }
    // A block between them may hold anything, and need not be readable.
    rig.write(101, &content(0));
    for bad in [None, Some(101)] {
        if let Some(bad) = bad {
            let place = rig.loader.store.geometry().locate(Pvbn(bad)).unwrap();
            let block = rig.loader.store.geometry().device_block(place.tetris(), place.row());
            rig.world.fail_block("disk", block);
        }
        let held = HeldBlocks::default();
        rig.loader.load(requests.clone(), held.clone(), Box::new(|| ()));
        // 100 to 111, 120, and 240.
        assert_eq!(rig.world.pending_count(), 3);
        rig.world.run_until_idle();
        for (at, request) in at.iter().zip(&requests) {
            assert_eq!(seen(&rig, &held, request), Ok(Some(content(*at))));
        }
        assert_eq!(rig.loader.cache.len(), at.len(), "a block that came along is not kept");
        requests.iter().for_each(|one| rig.loader.cache.remove(one.pvbn));
    }
    assert_eq!(rig.loader.lost_blocks.load(Ordering::Relaxed), 0);
}
