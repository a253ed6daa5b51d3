//! Target `ondisk_types`: every structure of crate `ondisk`, from any bytes.
//!
//! Rules: nothing panics, whatever the bytes, neither in `validate` nor in `Display` of what was
//! refused; what is accepted is written again as the bytes that it was read from. A structure with
//! a checksum of its own is tried as it is and with the checksum made right.

use crate::input::Input;
use ondisk::damage::Damage;
use ondisk::directory::{COOKIE_LIMIT, DirectoryContent, DirectoryNode, is_entry_name};
use ondisk::identity::{BlockIdentity, ChecksumBlock};
use ondisk::inode::InodeRecord;
use ondisk::label::DiskLabel;
use ondisk::log::{LogBatch, LogHeader, LogNote, LogRecord, PartialParityRecord};
use ondisk::operation;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use ondisk::records::{SnapshotRecord, VolumeRecord, name_field};
use ondisk::root::{FileSystemRoot, Superblock, VolInfo};
use ondisk::{acl, xattr};
use std::fmt::Display;
use units::{Block, Fbn};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// How many kinds of structure there are.
const KINDS: u64 = 20;

/// See the module. The first byte chooses the structure.
pub fn ondisk_types(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(KINDS) {
        0 => blocks(input.rest(), Superblock::from_block, |found| found.to_block(), |_, _| {}),
        1 => blocks(input.rest(), VolInfo::from_block, VolInfo::to_block, |_, _| {}),
        2 => label(input.rest()),
        3 => log_header(input.rest()),
        4 => blocks(input.rest(), VolumeRecord::from_block, VolumeRecord::to_block, |found, _| {
            assert!(name_field(found.name()).is_ok());
        }),
        5 => superblock(input.rest()),
        6 => identity(input.rest()),
        7 => directory(&mut input),
        8 => xattrs(input.rest()),
        9 => pointers(&mut input),
        10 => checked::<InodeRecord>(input.rest(), InodeRecord::validate),
        11 => checked::<SnapshotRecord>(input.rest(), SnapshotRecord::validate),
        12 => {
            let root: FileSystemRoot = taken(input.rest());
            let _ = root.validate();
        }
        13 => checked::<LogBatch>(input.rest(), |batch| {
            let _ = batch.computed_checksum([[1, 2, 3].as_slice()]);
            Ok(())
        }),
        14 => checked::<LogRecord>(input.rest(), |_| Ok(())),
        15 => {
            let (note, _stripes): (LogNote, PartialParityRecord) =
                (taken(input.bytes(64)), taken(input.rest()));
            let _ = (note.to_string(), note.computed_checksum([[1, 2, 3].as_slice()]));
        }
        16 => {
            let _ = operation::kind_name(input.u32() as u16);
            let _ = operation::record_volume(input.rest());
        }
        _ => records(&mut input),
    }
}

/// As many of the bytes as the structure has; zeros where they do not suffice.
fn taken<T: FromBytes + FromZeros + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let count = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..count].copy_from_slice(&bytes[..count]);
    value
}

fn block(bytes: &[u8]) -> Block {
    Block::from_prefix(&bytes[..bytes.len().min(units::BLOCK_SIZE)])
}

/// A structure that fills a block.
fn blocks<T: Display>(
    bytes: &[u8],
    from_block: impl Fn(&Block) -> Result<T, Damage>,
    to_block: impl Fn(&T) -> Block,
    check: impl Fn(&T, &Block),
) {
    let block = block(bytes);
    match from_block(&block) {
        Ok(found) => {
            assert!(!found.to_string().is_empty());
            assert!(to_block(&found).bytes() == block.bytes(), "written as it was read");
            check(&found, &block);
        }
        Err(damage) => assert!(!damage.to_string().is_empty()),
    }
}

/// A superblock whose checksum is right.
fn superblock(bytes: &[u8]) {
    let sealed = taken::<Superblock>(bytes).to_block();
    blocks(sealed.bytes(), Superblock::from_block, |found| found.to_block(), |_, _| {});
}

fn label(bytes: &[u8]) {
    let _ = DiskLabel::is_claimed_by(&block(bytes));
    let mut label: DiskLabel = taken(bytes);
    let _ = label.to_string();
    blocks(bytes, DiskLabel::from_block, DiskLabel::to_block, |_, _| {});
    if let Err(Damage::Checksum { computed, .. }) = label.validate() {
        label.checksum.set(computed);
        let sealed = block(label.as_bytes());
        blocks(sealed.bytes(), DiskLabel::from_block, DiskLabel::to_block, |label, _| {
            assert!(label.kind().is_some() && label.disk_role().is_some());
            let _ = label.is_missing(usize::from(label.disk_index.get()));
        });
    }
}

fn log_header(bytes: &[u8]) {
    let _ = LogHeader::is_claimed_by(&block(bytes));
    let mut header: LogHeader = taken(bytes);
    let _ = header.to_string();
    blocks(bytes, LogHeader::from_block, LogHeader::to_block, |_, _| {});
    if let Err(Damage::Checksum { computed, .. }) = header.validate() {
        header.checksum.set(computed);
        let sealed = block(header.as_bytes());
        blocks(sealed.bytes(), LogHeader::from_block, LogHeader::to_block, |_, _| {});
    }
}

fn identity(bytes: &[u8]) {
    let block = block(bytes);
    for identity in &ChecksumBlock::view(&block).identities {
        let _ = (identity.to_string(), identity.validate(), identity.has_checksum_of(&block));
        let again = BlockIdentity::new(&identity.owner(), identity.pvbn(), &block);
        assert_eq!(again.validate(), Ok(()));
        assert!(again.has_checksum_of(&block) && again.owner() == identity.owner());
    }
}

fn directory(input: &mut Input<'_>) {
    let fbn = Fbn(input.below(4));
    let (lower, size_blocks) = (input.u64(), input.u64());
    let block = block(input.rest());
    let node = match DirectoryNode::view(&block, fbn) {
        Ok(node) => node,
        Err(damage) => return assert!(!damage.to_string().is_empty()),
    };
    let _ = node.to_string();
    assert_eq!(node.fbn(), fbn);
    for (lower, upper) in [(lower, COOKIE_LIMIT), (0, lower), (0, COOKIE_LIMIT)] {
        match node.validate(lower, upper, size_blocks) {
            Err(damage) => assert!(!damage.to_string().is_empty()),
            Ok(()) => {
                if let DirectoryContent::Leaf(records) = node.content {
                    assert!(records.iter().all(|record| !node.name(record).is_empty()));
                    assert!(records.iter().all(|record| !node.name(record).contains(&b'/')));
                }
            }
        }
    }
    let _ = is_entry_name(block.bytes());
}

fn xattrs(bytes: &[u8]) {
    acls(bytes);
    match xattr::parse(bytes) {
        Ok(list) => {
            assert!(xattr::encode(&list) == bytes, "written as it was read");
            for (name, value) in &list {
                acls(value);
                let found = xattr::seek(bytes, bytes.len() as u64, name);
                assert!(found == Ok(xattr::Sought::Value(value)), "found by its name");
            }
        }
        Err(damage) => assert!(!damage.to_string().is_empty()),
    }
}

fn acls(bytes: &[u8]) {
    if let Ok(entries) = acl::parse_default(bytes) {
        assert!(acl::encode(entries.iter().copied()) == bytes, "written as it was read");
    }
    if let Ok(shown) = acl::value_shown(0o640, bytes) {
        assert!(acl::parse_default(&shown).is_ok(), "it is whole");
    }
}

fn pointers(input: &mut Input<'_>) {
    let dual: [u8; DualPointer::SIZE] = taken(input.bytes(DualPointer::SIZE));
    assert_eq!(DualPointer::decode(dual).encode(), dual);
    let physical: [u8; PhysicalPointer::SIZE] = taken(input.bytes(PhysicalPointer::SIZE));
    let pointer = PhysicalPointer::decode(physical);
    // The four reserved bits are not kept.
    assert_eq!(PhysicalPointer::decode(pointer.encode()), pointer);
}

/// A part of a block.
fn checked<T>(bytes: &[u8], validate: impl Fn(&T) -> Result<(), Damage>)
where
    T: FromBytes + FromZeros + IntoBytes + Display,
{
    let found: T = taken(bytes);
    let _ = found.to_string();
    if let Err(damage) = validate(&found) {
        assert!(!damage.to_string().is_empty());
    }
}

/// The records of the log of operations.
fn records(input: &mut Input<'_>) {
    fn one<T: operation::RecordPart>(body: &[u8]) {
        let split = operation::split::<T>(body, "record");
        let part = T::read_from_prefix(body);
        assert_eq!(split.is_ok(), part.is_ok_and(|(part, _)| part.is_reserved_zero()));
    }
    let kind = input.below(9);
    let body = input.rest();
    match kind {
        0 => one::<operation::CreateRecord>(body),
        1 => one::<operation::NameRecord>(body),
        2 => one::<operation::RenameRecord>(body),
        3 => one::<operation::SetAttributesRecord>(body),
        4 => one::<operation::WriteRecord>(body),
        5 => one::<operation::CommitRecord>(body),
        6 => one::<operation::AllocateRecord>(body),
        7 => one::<operation::SetXattrRecord>(body),
        _ => one::<operation::RemoveXattrRecord>(body),
    }
}
