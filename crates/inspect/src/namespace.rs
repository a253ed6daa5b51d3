//! Names: every entry leads to a file, every file has its names, directories are a tree.
//!
//! Invariants: a directory is entered once, so the walk ends although entries may lead anywhere.

use crate::directory::{self, Entry};
use crate::error::InspectError;
use crate::fault::{DirectoryFault, EntryFault, OrphanFault};
use crate::filesystem::Tree;
use crate::finding::{Finding, ImageName};
use crate::format::Content;
use crate::image::Image;
use crate::walker::{Leaves, Walker};
use ondisk::acl::{ACL_ACCESS, ACL_DEFAULT, parse_access, parse_default};
use ondisk::inode::{
    INODE_ACCESS_ACL, INODE_DEFAULT_ACL, InodeRecord, KIND_ATTRIBUTES, KIND_DIRECTORY, KIND_SOCKET,
    KIND_SYMLINK,
};
use ondisk::root::metafile::{FIRST_FILE, ROOT_DIRECTORY};
use ondisk::xattr::Xattrs;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use units::{BLOCK_SIZE, Block, BlockRef, MemberNumber};

/// Counts of names and attributes, as the walk finds them.
#[derive(Default)]
struct Census {
    /// Names of files and directories.
    names: BTreeMap<u64, u32>,
    /// Directories in directories.
    subdirectories: BTreeMap<u64, u32>,
    entered: BTreeSet<u64>,
}

/// Checks the names of an image; how many inodes for files are in use.
pub(crate) fn check(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
) -> Result<u64, InspectError> {
    let mut census = Census::default();
    walk_directories(walker, name, image, &mut census)?;
    check_inode_map(walker, name, image);
    let orphans = check_orphans(walker, name, image, &census);
    let attributes = check_attributes(walker, name, image)?;
    let files = image.inodes.range(ROOT_DIRECTORY..);
    let mut count = 0;
    for (inode, record) in files {
        count += 1;
        let may_count = *inode != ROOT_DIRECTORY && walker.fs.has_trees;
        if record.tree.get() != 0 && !may_count {
            let tree = record.tree.get();
            walker.tell(Finding::QuotaTree { image: name, inode: *inode, tree });
        }
        let (inode, names) = (*inode, census.names.get(inode).copied().unwrap_or(0));
        if record.kind == KIND_ATTRIBUTES {
            if !attributes.contains(&inode) && !orphans.contains(&inode) {
                walker.tell(Finding::Unreachable { image: name, inode });
            }
            continue;
        }
        let is_named = names > 0 || census.entered.contains(&inode);
        if !is_named && !orphans.contains(&inode) {
            walker.tell(Finding::Unreachable { image: name, inode });
            continue;
        }
        let counted = match record.kind {
            KIND_DIRECTORY if is_named => {
                2 + census.subdirectories.get(&inode).copied().unwrap_or(0)
            }
            _ => names,
        };
        if record.links.get() != counted {
            let recorded = record.links.get();
            walker.tell(Finding::Links { image: name, inode, recorded, counted });
        }
    }
    walker.medium.report.totals.files += count;
    Ok(count)
}

fn walk_directories(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
    census: &mut Census,
) -> Result<(), InspectError> {
    match image.inodes.get(&ROOT_DIRECTORY) {
        Some(record) if record.kind == KIND_DIRECTORY => {}
        Some(record) => {
            let kind = record.kind;
            walker.tell(Finding::InodeKind { image: name, inode: ROOT_DIRECTORY, kind });
            return Ok(());
        }
        None => {
            walker.tell(Finding::MetafileMissing { image: name, inode: ROOT_DIRECTORY });
            return Ok(());
        }
    }
    census.entered.insert(ROOT_DIRECTORY);
    let mut waiting = VecDeque::from([(ROOT_DIRECTORY, ROOT_DIRECTORY)]);
    while let Some((inode, parent)) = waiting.pop_front() {
        let Some(record) = image.inodes.get(&inode) else { continue };
        let blocks = read_blocks(walker, name, inode, record)?;
        let directory = directory::read(&blocks, record.size.get());
        let mut fault = directory.fault;
        if let (None, Some(root)) = (fault, &directory.root) {
            let members = [(&root.this, inode), (&root.parent, parent)];
            let is_member = |(member, inode): (&ondisk::directory::DirectoryMember, u64)| {
                let generation = image.inodes.get(&inode).map(|record| record.generation.get());
                member.inode.get() == inode
                    && Some(member.generation.get()) == generation
                    && member.number.get() == MemberNumber::ITSELF.get()
            };
            let [this, above] = members.map(is_member);
            if !this {
                fault = Some(DirectoryFault::This(root.this.inode.get()));
            } else if !above {
                let found = root.parent.inode.get();
                fault = Some(DirectoryFault::Parent { found, expected: parent });
            }
        }
        if let Some(fault) = fault {
            walker.tell(Finding::Directory { image: name, inode, fault });
        }
        for entry in directory.entries {
            if let Some(fault) = take_entry(image, inode, &entry, census) {
                let name_bytes = entry.name;
                walker.tell(Finding::Entry { image: name, inode, name: name_bytes, fault });
            } else {
                check_tree(walker, name, image, (entry.inode, record.tree.get()));
                if entry.kind == KIND_DIRECTORY {
                    waiting.push_back((entry.inode, inode));
                }
            }
        }
    }
    Ok(())
}

/// A file counts to the quota tree of the directories that have its names; a tree's own directory
/// lies in none.
fn check_tree(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
    (inode, of_directory): (u64, u32),
) {
    let Some(record) = image.inodes.get(&inode) else { return };
    let tree = record.tree.get();
    let is_directory = u64::from(tree) != inode || record.kind == KIND_DIRECTORY;
    if record.tree_around(inode) != of_directory || !is_directory {
        walker.tell(Finding::QuotaTree { image: name, inode, tree });
    }
}

/// Counts an entry, if it leads where an entry can.
fn take_entry(
    image: &Image,
    directory: u64,
    entry: &Entry,
    census: &mut Census,
) -> Option<EntryFault> {
    let inode = entry.inode;
    if entry.member != MemberNumber::ITSELF.get() {
        return Some(EntryFault::Member(MemberNumber(entry.member)));
    }
    let Some(record) = image.inodes.get(&inode) else { return Some(EntryFault::Free(inode)) };
    if inode < ROOT_DIRECTORY || record.kind > KIND_SOCKET {
        return Some(EntryFault::Hidden(inode));
    }
    let (found, expected) = (entry.generation, record.generation.get());
    if found != expected {
        return Some(EntryFault::Generation { inode, found, expected });
    }
    if entry.kind != record.kind {
        return Some(EntryFault::Kind { inode, found: entry.kind, expected: record.kind });
    }
    if entry.kind == KIND_DIRECTORY {
        if !census.entered.insert(inode) {
            return Some(EntryFault::SecondParent(inode));
        }
        *census.subdirectories.entry(directory).or_default() += 1;
    }
    *census.names.entry(inode).or_default() += 1;
    None
}

/// A file's blocks that are no holes.
pub(crate) fn read_blocks(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    inode: u64,
    record: &InodeRecord,
) -> Result<BTreeMap<u64, BlockRef>, InspectError> {
    let mut blocks = BTreeMap::new();
    let mut take = |fbn: u64, block: &BlockRef| {
        blocks.insert(fbn, BlockRef::clone(block));
    };
    walker.begin();
    walker.walk(name, &Tree::of(inode, Content::Data, record), Leaves::Read(&mut take))?;
    Ok(blocks)
}

/// The first `size_bytes` of a file; for those that are known to be small.
pub(crate) fn content_of(blocks: &BTreeMap<u64, BlockRef>, size_bytes: u64) -> Vec<u8> {
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    let hole = Block::zeroed();
    let whole = (0..size.div_ceil(BLOCK_SIZE) as u64).flat_map(|fbn| {
        let block = blocks.get(&fbn).map_or(&hole, |block| &**block);
        block.bytes().to_vec()
    });
    whole.take(size).collect()
}

/// The inode map has a bit for each file, and for all numbers below the first file's.
fn check_inode_map(walker: &mut Walker<'_, '_, '_>, name: ImageName, image: &Image) {
    let reserved = 0..FIRST_FILE;
    let expected = reserved.chain(image.inodes.range(FIRST_FILE..).map(|(inode, _)| *inode));
    let expected = expected.collect::<crate::vbn_set::VbnSet>();
    for inode in expected.without(&image.inode_map).iter() {
        walker.tell(Finding::InodeMap { image: name, inode, is_live: true });
    }
    for inode in image.inode_map.without(&expected).iter() {
        walker.tell(Finding::InodeMap { image: name, inode, is_live: false });
    }
}

fn check_orphans(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
    census: &Census,
) -> BTreeSet<u64> {
    let mut orphans = BTreeSet::new();
    for inode in image.orphans.iter().copied() {
        let names = census.names.get(&inode).copied().unwrap_or(0);
        let kind = image.inodes.get(&inode).map(|record| record.kind);
        let fault = match kind {
            None => Some(OrphanFault::Free),
            Some(kind) if inode < FIRST_FILE || kind > KIND_ATTRIBUTES => {
                Some(OrphanFault::Kind(kind))
            }
            Some(_) if names > 0 => Some(OrphanFault::Named(names)),
            Some(_) if !orphans.insert(inode) => Some(OrphanFault::Twice),
            Some(_) => None,
        };
        if let Some(fault) = fault {
            walker.tell(Finding::Orphan { image: name, inode, fault });
        }
    }
    orphans
}

/// Files of extended attributes: each is one file's, and can be read.
fn check_attributes(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
) -> Result<BTreeSet<u64>, InspectError> {
    let mut used = BTreeSet::new();
    for (inode, record) in image.inodes.range(ROOT_DIRECTORY..) {
        let attributes = u64::from(record.attributes_inode.get());
        if attributes == 0 {
            if !has_its_lists((record, walker.fs.has_acls), &Xattrs::new()) {
                walker.tell(Finding::Attributes { image: name, inode: *inode, attributes });
            }
            continue;
        }
        let target = image.inodes.get(&attributes).filter(|found| found.kind == KIND_ATTRIBUTES);
        let is_right = match target {
            Some(target) => {
                let file = (record, walker.fs.has_acls);
                let found = xattrs(walker, name, attributes, target)?;
                let is_right = found.is_some_and(|found| has_its_lists(file, &found));
                if target.tree != record.tree {
                    let tree = target.tree.get();
                    walker.tell(Finding::QuotaTree { image: name, inode: attributes, tree });
                }
                used.insert(attributes) && is_right
            }
            None => false,
        };
        if !is_right {
            walker.tell(Finding::Attributes { image: name, inode: *inode, attributes });
        }
    }
    Ok(used)
}

/// Whether a file has the access control lists that its inode speaks of, no others, and such as it
/// can have: none in a volume whose record does not speak of them.
fn has_its_lists((record, may_have): (&InodeRecord, bool), xattrs: &Xattrs) -> bool {
    let flag = |flag| may_have && record.flags.get() & flag != 0;
    let (access, default) = (xattrs.get(ACL_ACCESS), xattrs.get(ACL_DEFAULT));
    let has_flags = record.flags.get() & (INODE_ACCESS_ACL | INODE_DEFAULT_ACL) != 0;
    (may_have || !has_flags)
        && flag(INODE_ACCESS_ACL) == access.is_some()
        && flag(INODE_DEFAULT_ACL) == default.is_some()
        && access.is_none_or(|list| record.kind != KIND_SYMLINK && parse_access(list).is_ok())
        && default.is_none_or(|list| record.kind == KIND_DIRECTORY && parse_default(list).is_ok())
}

/// Longest list of extended attributes that is read: far beyond what a file may have.
const XATTRS_SIZE_MAX: u64 = 64 << 20;

/// The extended attributes in an attributes inode; `None` if they are damaged.
pub(crate) fn xattrs(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    inode: u64,
    record: &InodeRecord,
) -> Result<Option<ondisk::xattr::Xattrs>, InspectError> {
    if record.size.get() > XATTRS_SIZE_MAX {
        return Ok(None);
    }
    let blocks = read_blocks(walker, name, inode, record)?;
    Ok(ondisk::xattr::parse(&content_of(&blocks, record.size.get())).ok())
}
