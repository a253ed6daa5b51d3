//! Volumes with something below their record that a newer build wrote: no feature of the record
//! tells of it. Nothing of such a volume is changed, and none of its logged operations is dropped.

use super::super::blocks::find;
use super::*;
use ondisk::directory::DirectoryBlockHeader;
use ondisk::identity::linear_crc32c;
use ondisk::inode::{INODE_SIZE, InodeRecord};
use ondisk::records::SnapshotRecord;
use ondisk::root::{VolInfo, metafile};
use ondisk::versions::FORMAT_VERSION;
use std::mem::offset_of;
use units::{BLOCK_SIZE, Block};

/// What a newer build has written into the newest block of a volume with this inode, level 0 and
/// file block 0: where, and which byte.
struct Newer {
    inode: u64,
    at: usize,
    byte: u8,
    /// Four bytes behind it that nobody looks at: with them the block has the checksum that it had.
    balance: usize,
}

const VOL_INFO: Newer = Newer {
    inode: 0xffff_ffff,
    at: offset_of!(VolInfo, reserved_b),
    byte: 1,
    balance: BLOCK_SIZE - 4,
};
const SNAPSHOT: Newer = Newer {
    inode: metafile::ROOT_DIRECTORY - 1,
    at: offset_of!(SnapshotRecord, reserved_b),
    byte: 1,
    balance: BLOCK_SIZE - 4,
};
/// A flag that nobody has yet.
const INODE_FLAG: Newer = Newer {
    inode: 0,
    at: INODE_SIZE + offset_of!(InodeRecord, flags),
    byte: 0x80,
    balance: BLOCK_SIZE - 4,
};
/// Of the free map; the last inode of its block is free.
const INODE: Newer = Newer {
    inode: 0,
    at: INODE_SIZE + offset_of!(InodeRecord, reserved_b),
    byte: 1,
    balance: BLOCK_SIZE - 4,
};
/// Between the records and the names.
const DIRECTORY: Newer = Newer {
    inode: metafile::ROOT_DIRECTORY,
    at: offset_of!(DirectoryBlockHeader, version),
    byte: FORMAT_VERSION as u8 + 1,
    balance: 2000,
};

impl Newer {
    /// Changes the block on media; what it was, for [`restore`].
    fn write(&self, world: &SimulatedWorld, volume: VolumeId) -> (String, u64, Block) {
        let (disk, place) = find(world, |identity| {
            let place = (identity.volume.get(), identity.inode.get());
            place == (volume.get(), self.inode)
                && (identity.level, identity.fbn.get()) == (0, 0)
                && identity.cp.get() > 0
        });
        let old = world.read_block(&disk, place).unwrap();
        let mut difference = Block::zeroed();
        difference.bytes_mut()[self.at] = old.bytes()[self.at] ^ self.byte;
        let sum = linear_crc32c(&difference.bytes()[..self.balance]).to_le_bytes();
        difference.bytes_mut()[self.balance..self.balance + 4].copy_from_slice(&sum);
        let mut newer = (*old).clone();
        newer.bytes_mut().iter_mut().zip(difference.bytes()).for_each(|(into, bits)| *into ^= bits);
        world.write_block(&disk, place, &newer);
        (disk, place, (*old).clone())
    }
}

fn restore(world: &SimulatedWorld, (disk, place, old): &(String, u64, Block)) {
    world.write_block(disk, *place, old);
}

/// The volumes `home`, with a snapshot, and `other`, with a file each; and the number of `home`.
fn two_volumes() -> (Node, VolumeId) {
    let node = Node::create(&SimulatedWorld::new(9), RaidKind::None, false);
    node.create_volume("other");
    for name in ["home", "other"] {
        node.write_file(node.root(name), "file", content(1, 100_000));
    }
    let request = SnapshotRequest::Create("one".to_owned());
    node.wait(|done| node.engine.request_snapshot("home", request, done)).unwrap();
    node.commit_all();
    let home = node.engine.volume_named("home").unwrap().environment.volume;
    (node, home)
}

#[test]
fn a_volume_that_a_newer_build_wrote_is_out_of_service_and_stays_as_it_is() {
    let (node, home) = two_volumes();
    node.wait(|done| node.engine.stop(done)).unwrap();
    let world = node.power_cut();
    let left = world.snapshot();
    for newer in [VOL_INFO, SNAPSHOT, INODE, INODE_FLAG] {
        world.restore(&left);
        let old = newer.write(&world, home);
        let mut node = Node::open(&world).0;
        for _ in 0..2 {
            let volume = node.engine.volume_named("home").unwrap();
            let damage = volume.damage().expect("it is not understood");
            assert!(matches!(damage, VolumeDamage::OtherBuild(_)), "{damage}");
            assert!(damage.to_string().contains("a newer build wrote them; start"), "{damage}");
            let lacking = damage.lacking().expect("nobody is told to delete it");
            assert!(lacking.starts_with("unnamed, in its "), "{lacking}");
            assert!(volume.is_unreadable());
            let refused = node.wait(|done| node.engine.set_exports("home", Vec::new(), done));
            let refused = refused.unwrap_err().to_string();
            assert!(refused.starts_with("volume 'home' is not understood: "), "{refused}");
            check_other(&node);
            assert!(!is_quarantined(&node, home), "the newer build may write");
            node = restarted(node);
        }
        node.wait(|done| node.engine.stop(done)).unwrap();
        let world = node.power_cut();
        restore(&world, &old);
        let node = Node::open(&world).0;
        assert!(node.read_file(node.root("home"), "file").unwrap() == content(1, 100_000));
        node.write_file(node.root("home"), "another", content(2, 9_000));
        check_other(&node);
    }
}

/// A newer build's logged operations are there when it starts again.
#[test]
fn operations_of_a_volume_that_a_newer_build_wrote_are_not_dropped() {
    let (node, home) = two_volumes();
    node.write_file(node.root("home"), "logged", content(3, 9_000));
    let world = node.power_cut();
    let left = world.snapshot();
    for newer in [VOL_INFO, SNAPSHOT, INODE, DIRECTORY] {
        world.restore(&left);
        let old = newer.write(&world, home);
        let refused = refusal(&world);
        assert!(refused.contains("newer"), "{refused}");
        if newer.inode != DIRECTORY.inode {
            assert!(refused.contains("stop it in order"), "{refused}");
        }
        world.power_cut();
        restore(&world, &old);
        let node = Node::open(&world).0;
        assert!(node.read_file(node.root("home"), "logged").unwrap() == content(3, 9_000));
        check_other(&node);
    }
}
