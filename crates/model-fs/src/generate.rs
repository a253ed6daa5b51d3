//! Operations out of a stream of numbers: one generator for the simulator's seed and for proptest,
//! where each number shrinks to zero and the operation with it.
//!
//! Invariants: the same numbers give the same operation; zeros give the plainest choice of each
//! kind. Sizes stay small where the memory backend's cost grows with them (reservations, holes
//! punched), so that a run of thousands of operations takes milliseconds.

use crate::observation::SET_TIME_LIMIT;
use crate::operation::{
    FILE_SLOT_FIRST, Fill, GIDS, Guard, NAME_COUNT, Name, ORDINARY_NAMES, Operation,
    POSSIBLE_NAMES, SLOT_COUNT, SNAPSHOT_COUNT, SNAPSHOT_NAME, Slot, SnapshotAction, UIDS,
    WHO_COUNT, Who, XATTR_NAMES, XATTR_NAMES_GOOD, xattr_name,
};
use file_service::rules::acls::AclKind;
use file_service::{
    Allocation, CreateMode, NewNode, RenameFlags, SeekTarget, SetAttributes, SetTime, Stability,
    XattrSetMode,
};
use platform::Seeded;
use proptest::prelude::{Strategy, any};
use units::{BLOCK_SIZE_U64, Timestamp};

/// A stream of numbers.
pub struct Numbers<'a>(pub &'a mut dyn FnMut() -> u64);

impl Numbers<'_> {
    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.0)() % limit
    }

    /// True in `percent` of 100 cases; 0 gives false.
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) >= 100 - percent
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }
}

/// How often each group of operations comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Weight of operations on names.
    pub names: u32,
    /// Weight of operations on data.
    pub data: u32,
    /// Weight of operations on attributes, plain and extended.
    pub attributes: u32,
    /// Weight of snapshots.
    pub snapshots: u32,
    /// Percent of operations that users other than root ask for.
    pub users_percent: u32,
}

impl Mix {
    /// Everything but snapshots.
    pub const EVERYTHING: Self =
        Self { names: 5, data: 5, attributes: 2, snapshots: 0, users_percent: 30 };
    /// Everything, snapshots now and then.
    pub const WITH_SNAPSHOTS: Self =
        Self { names: 50, data: 50, attributes: 20, snapshots: 3, users_percent: 20 };
    /// Mostly names.
    pub const NAMES: Self =
        Self { names: 9, data: 1, attributes: 1, snapshots: 0, users_percent: 10 };
    /// Mostly data, by root.
    pub const DATA: Self =
        Self { names: 2, data: 9, attributes: 0, snapshots: 0, users_percent: 0 };

    /// The operations of a seed.
    #[must_use]
    pub fn operations(self, seed: u64, count: usize) -> Vec<Operation> {
        let mut seeded = Seeded::new(seed);
        let mut next = || seeded.number();
        (0..count).map(|_| self.operation(&mut Numbers(&mut next))).collect()
    }

    /// An operation.
    pub fn operation(self, numbers: &mut Numbers<'_>) -> Operation {
        let total = self.names + self.data + self.attributes + self.snapshots;
        let mut choice = numbers.below(u64::from(total)) as u32;
        let who = if numbers.chance(u64::from(self.users_percent)) {
            Who(1 + numbers.below(u64::from(WHO_COUNT) - 1) as u8)
        } else {
            Who::ROOT
        };
        if choice < self.names {
            return names_operation(numbers, who);
        }
        choice -= self.names;
        if choice < self.data {
            return data_operation(numbers, who);
        }
        if choice - self.data < self.attributes {
            return attributes_operation(numbers, who);
        }
        let snapshot = numbers.below(u64::from(SNAPSHOT_COUNT)) as u8;
        Operation::Snapshot(match numbers.below(4) {
            0 | 1 => SnapshotAction::Create(snapshot),
            2 => SnapshotAction::Restore(snapshot),
            _ => SnapshotAction::Delete(snapshot),
        })
    }
}

/// Ordinary names from this on are mostly directories'.
const DIRECTORY_NAME_FIRST: u8 = 5;

/// Operations of `mix` for proptest.
pub fn operation_strategy(mix: Mix) -> impl Strategy<Value = Operation> {
    // The most numbers that one operation takes; after them the stream is all zeros.
    any::<[u64; 20]>().prop_map(move |words| {
        let mut words = words.into_iter();
        mix.operation(&mut Numbers(&mut || words.next().unwrap_or(0)))
    })
}

fn any_slot(numbers: &mut Numbers<'_>) -> Slot {
    Slot(numbers.below(u64::from(SLOT_COUNT)) as u8)
}

fn directory_slot(numbers: &mut Numbers<'_>) -> Slot {
    if numbers.chance(4) {
        return any_slot(numbers);
    }
    Slot(numbers.below(u64::from(FILE_SLOT_FIRST)) as u8)
}

fn file_slot(numbers: &mut Numbers<'_>) -> Slot {
    if numbers.chance(10) {
        return any_slot(numbers);
    }
    new_file_slot(numbers)
}

fn new_file_slot(numbers: &mut Numbers<'_>) -> Slot {
    Slot(FILE_SLOT_FIRST + numbers.below(u64::from(SLOT_COUNT - FILE_SLOT_FIRST)) as u8)
}

fn new_directory_slot(numbers: &mut Numbers<'_>) -> Slot {
    Slot(1 + numbers.below(u64::from(FILE_SLOT_FIRST) - 1) as u8)
}

/// A name that is or could be there.
fn old_name(numbers: &mut Numbers<'_>) -> Name {
    match new_name(numbers) {
        SNAPSHOT_NAME => Name(0),
        name => name,
    }
}

fn new_name(numbers: &mut Numbers<'_>) -> Name {
    let limit = match numbers.below(40) {
        39 => NAME_COUNT,
        36..=38 => POSSIBLE_NAMES,
        34 | 35 => ORDINARY_NAMES,
        _ => DIRECTORY_NAME_FIRST,
    };
    Name(numbers.below(u64::from(limit)) as u8)
}

/// A name that directories have, mostly, so that RMDIR finds some.
fn directory_name(numbers: &mut Numbers<'_>) -> Name {
    if numbers.chance(20) {
        return old_name(numbers);
    }
    let names = u64::from(ORDINARY_NAMES - DIRECTORY_NAME_FIRST);
    Name(DIRECTORY_NAME_FIRST + numbers.below(names) as u8)
}

fn mode(numbers: &mut Numbers<'_>) -> u32 {
    numbers.pick(&[0o755, 0o644, 0o777, 0o600, 0, 0o1777, 0o2775, 0o4755, 0o6711, 0o2744])
}

fn set_time(numbers: &mut Numbers<'_>) -> SetTime {
    if numbers.chance(30) {
        return SetTime::Now;
    }
    // Beyond the guard that no file has, and recognised as set.
    SetTime::To(Timestamp(2 + numbers.below(SET_TIME_LIMIT.get() as u64 - 2) as i64))
}

/// Attributes of a new file: mostly a mode that lets others work with it.
fn creation(numbers: &mut Numbers<'_>) -> SetAttributes {
    let mut set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    if numbers.chance(20) {
        set.mode = Some(mode(numbers));
    }
    if numbers.chance(5) {
        set.uid = Some(numbers.pick(&UIDS));
        set.gid = Some(numbers.pick(&GIDS));
    }
    if numbers.chance(5) {
        set.mtime = Some(set_time(numbers));
    }
    set
}

fn names_operation(numbers: &mut Numbers<'_>, who: Who) -> Operation {
    let directory = directory_slot(numbers);
    match numbers.below(20) {
        0..=4 => {
            let mode = match numbers.below(4) {
                0 => CreateMode::Guarded,
                1 => CreateMode::Exclusive(numbers.below(3)),
                _ => CreateMode::Unchecked,
            };
            let (name, mut set) = (new_name(numbers), creation(numbers));
            if numbers.chance(10) {
                set.size = Some(offset(numbers));
            }
            Operation::Create { who, directory, name, mode, set, into: new_file_slot(numbers) }
        }
        5..=7 => make_node(numbers, who, directory),
        8 => {
            let (file, name) = (file_slot(numbers), new_name(numbers));
            Operation::Link { who, file, directory, name }
        }
        9 | 10 => {
            let name = if numbers.chance(50) { directory_name(numbers) } else { old_name(numbers) };
            Operation::Remove { who, directory, name }
        }
        11 | 18 => Operation::RemoveDirectory { who, directory, name: directory_name(numbers) },
        12..=14 => {
            let from = (directory, old_name(numbers));
            let to = (directory_slot(numbers), new_name(numbers));
            let flags = match numbers.below(6) {
                4 => RenameFlags { no_replace: true, exchange: false },
                5 => RenameFlags { no_replace: numbers.chance(10), exchange: true },
                _ => RenameFlags::default(),
            };
            Operation::Rename { who, from, to, flags }
        }
        15 | 16 => {
            let page_entries = numbers.pick(&[1000, 1, 2, 3, 7]);
            let with_attributes = numbers.chance(50);
            Operation::ReadDirectory { who, directory, page_entries, with_attributes }
        }
        17 => {
            let file = if numbers.chance(20) { directory } else { file_slot(numbers) };
            match numbers.below(10) {
                0..=3 => Operation::Release { file },
                4..=6 => Operation::Hold { file },
                _ => {
                    let set = creation(numbers);
                    Operation::CreateUnnamed { who, directory, set, into: new_file_slot(numbers) }
                }
            }
        }
        _ => {
            let into = if numbers.chance(50) {
                new_directory_slot(numbers)
            } else {
                new_file_slot(numbers)
            };
            Operation::Lookup { who, directory, name: old_name(numbers), into }
        }
    }
}

fn make_node(numbers: &mut Numbers<'_>, who: Who, directory: Slot) -> Operation {
    let node = match numbers.below(13) {
        0..=6 => NewNode::Directory,
        7 | 8 | 12 => {
            NewNode::Symlink(numbers.pick(&[b"a/b".to_vec(), vec![b's'; 4095], b"..".to_vec()]))
        }
        9 => match numbers.below(3) {
            0 => NewNode::Symlink(vec![b's'; 4096]),
            1 => NewNode::Symlink(Vec::new()),
            _ => NewNode::Symlink(b"nul\0".to_vec()),
        },
        10 if numbers.chance(50) => NewNode::BlockDevice(8, numbers.below(16) as u32),
        10 => NewNode::CharacterDevice(1, numbers.below(16) as u32),
        _ if numbers.chance(50) => NewNode::Socket,
        _ => NewNode::Fifo,
    };
    let into = if node == NewNode::Directory {
        new_directory_slot(numbers)
    } else {
        new_file_slot(numbers)
    };
    let name = if node == NewNode::Directory { directory_name(numbers) } else { new_name(numbers) };
    let set = creation(numbers);
    Operation::MakeNode { who, directory, name, node, set, into }
}

/// Somewhere in a file: in the first few blocks mostly, on block borders often, far out seldom.
fn offset(numbers: &mut Numbers<'_>) -> u64 {
    let block = numbers.below(12) * BLOCK_SIZE_U64;
    match numbers.below(10) {
        0..=3 => block,
        4..=6 => block + numbers.below(BLOCK_SIZE_U64),
        7 => block + numbers.pick(&[1, 511, 512, 4095]),
        8 => numbers.below(100) * BLOCK_SIZE_U64,
        // Where each further level of indirection begins, about; and near the largest file.
        _ => {
            // A tree of four levels begins at 448 GiB; files end at 64 TiB.
            numbers.pick(&[
                1 << 21,
                1 << 30,
                (448 << 30) - 4096,
                1 << 40,
                (16 << 40) - 4096,
                u64::MAX - 5,
                (16 << 40) + 8192,
                (64 << 40) - 8192,
            ]) + numbers.below(6)
        }
    }
}

fn length(numbers: &mut Numbers<'_>) -> u32 {
    match numbers.below(10) {
        0..=2 => 4096,
        3..=5 => 1 + numbers.below(300) as u32,
        6 => 4096 * (1 + numbers.below(8) as u32),
        7 => 1 + numbers.below(20_000) as u32,
        8 => 1 + numbers.below(150_000) as u32,
        _ => numbers.pick(&[0, 1, 4095, 4097, 65_536]),
    }
}

fn bytes(numbers: &mut Numbers<'_>) -> (Fill, Stability) {
    let fill = Fill { length: length(numbers), seed: numbers.below(200) as u16 };
    let stability = match numbers.below(4) {
        0 => Stability::FileSync,
        1 => Stability::DataSync,
        _ => Stability::Unstable,
    };
    (fill, stability)
}

fn data_operation(numbers: &mut Numbers<'_>, who: Who) -> Operation {
    let file = file_slot(numbers);
    match numbers.below(22) {
        0..=8 => {
            let offset = offset(numbers);
            let (fill, stability) = bytes(numbers);
            Operation::Write { who, file, offset, fill, stability }
        }
        9..=12 => {
            let (offset, count) = (offset(numbers), length(numbers));
            Operation::Read { who, file, offset, count }
        }
        13 | 14 => {
            let set = SetAttributes { size: Some(offset(numbers)), ..SetAttributes::default() };
            Operation::SetAttributes { who, file, set, guard: Guard::Absent }
        }
        15 => Operation::Commit { who, file },
        16 | 17 => {
            let keep_size = numbers.chance(50);
            let allocation = match numbers.below(3) {
                0 => Allocation::PunchHole,
                1 => Allocation::ZeroRange { keep_size },
                _ => Allocation::Reserve { keep_size },
            };
            let (offset, length) = (offset(numbers), u64::from(length(numbers)));
            Operation::Allocate { who, file, allocation, offset, length }
        }
        18 => {
            let target = numbers.pick(&[SeekTarget::Data, SeekTarget::Hole]);
            Operation::Seek { file, offset: offset(numbers), target }
        }
        19 => Operation::ReadLink { who, file },
        _ => {
            let (fill, stability) = bytes(numbers);
            Operation::Append { who, file, fill, stability }
        }
    }
}

fn attributes_operation(numbers: &mut Numbers<'_>, who: Who) -> Operation {
    let file = if numbers.chance(30) { directory_slot(numbers) } else { file_slot(numbers) };
    let name = numbers.below(XATTR_NAMES.len() as u64) as u8;
    let name = if numbers.chance(20) { name } else { name % XATTR_NAMES_GOOD };
    match numbers.below(12) {
        0 => Operation::Attributes { file },
        1..=3 => {
            let guard = match numbers.below(8) {
                6 => Guard::Matching,
                7 => Guard::Wrong,
                _ => Guard::Absent,
            };
            let set = SetAttributes {
                mode: numbers.chance(50).then(|| mode(numbers)),
                uid: numbers.chance(10).then(|| numbers.pick(&UIDS)),
                gid: numbers.chance(15).then(|| numbers.pick(&GIDS)),
                size: None,
                atime: numbers.chance(20).then(|| set_time(numbers)),
                mtime: numbers.chance(20).then(|| set_time(numbers)),
                guard: None,
            };
            Operation::SetAttributes { who, file, set, guard }
        }
        4 => Operation::Access { who, file, wanted: numbers.pick(&[0x3f, 0x01, 0x02, 0x1c]) },
        5 => Operation::GetXattr { who, file, name },
        6..=8 => {
            let mode =
                numbers.pick(&[XattrSetMode::Either, XattrSetMode::Create, XattrSetMode::Replace]);
            let length = numbers.pick(&[5, 0, 300, 5000, 65_536, 65_537]);
            let value = Fill { length, seed: numbers.below(50) as u16 };
            let is_default = AclKind::of_name(xattr_name(name)) == Some(AclKind::Default);
            if is_default && numbers.chance(75) {
                // By root, where files are made: so that some inherit.
                let file = directory_slot(numbers);
                return Operation::SetXattr { who: Who(0), file, name, value, mode };
            }
            Operation::SetXattr { who, file, name, value, mode }
        }
        9 => Operation::ListXattrs { who, file },
        10 => Operation::RemoveXattr { who, file, name },
        _ => Operation::Statistics { file },
    }
}
