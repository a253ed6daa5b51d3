//! The whole volume checked: every file has a name or is an orphan, link counts are what the
//! directories say, the inode map has exactly the inodes in use, no content lies beyond a file's
//! end.

use super::engine::State;
use crate::attributes::file_kind;
use crate::{OperationStop, directory_file, holder};
use cowfs::directory::{self, Entry, Member};
use cowfs::inode::InodeAttributes;
use cowfs::reader::Reader;
use cowfs::transaction::Transaction;
use ondisk::inode::{KIND_DIRECTORY, KIND_REGULAR};
use ondisk::pointer::DualPointer;
use ondisk::root::metafile;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use units::{BLOCK_SIZE_U64, Fbn, InodeNumber, Timestamp};

impl State {
    /// Looks at something, changing nothing.
    pub fn look<T>(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_, DualPointer>) -> Result<T, OperationStop>,
    ) -> T {
        let seen = self.run(|state, held| {
            let reader = Reader { cache: &state.cache, held };
            body(&mut Transaction::new(state.logical.get_mut(), reader, Timestamp(0)))
        });
        seen.unwrap_or_else(|error| panic!("{error}"))
    }

    /// A file's attributes.
    pub fn attributes_of(&mut self, inode: InodeNumber) -> InodeAttributes {
        let found = self.look(|transaction| Ok(transaction.attributes(inode)?));
        found.unwrap_or_else(|| panic!("{inode} is free"))
    }

    /// Checks everything.
    pub fn verify(&mut self) {
        let root = InodeNumber(metafile::ROOT_DIRECTORY);
        let mut links = BTreeMap::from([(root, 2_u32)]);
        let mut waiting = vec![(root, root)];
        while let Some((inode, parent)) = waiting.pop() {
            for entry in self.verify_directory(inode, parent) {
                let child = entry.member.inode;
                let state = self.attributes_of(child);
                assert_eq!((state.generation, state.kind), (entry.member.generation, entry.kind));
                let is_directory = entry.kind == KIND_DIRECTORY;
                if is_directory {
                    waiting.push((child, inode));
                    assert!(!links.contains_key(&child), "{child} has two names");
                    *links.entry(inode).or_default() += 1;
                }
                *links.entry(child).or_default() += if is_directory { 2 } else { 1 };
            }
        }
        let orphans = self.logical.get_mut().orphans.to_vec();
        for orphan in orphans {
            assert_eq!(links.insert(orphan, 0), None, "an orphan has a name");
        }
        let mut used = BTreeSet::new();
        for (inode, links) in links {
            let state = self.attributes_of(inode);
            assert_eq!(state.links, links, "links of {inode}");
            assert!(file_kind(state.kind).is_some());
            assert!(used.insert(inode));
            let holder = self.look(|transaction| {
                holder::load(transaction, inode)?;
                holder::holder(transaction, inode)
            });
            if let Some(holder) = holder {
                assert!(used.insert(holder.inode), "{inode} shares a holder");
            }
            if state.kind == KIND_REGULAR && links > 0 {
                self.verify_end(inode, &state);
            }
        }
        self.verify_map(&used);
        assert_eq!(self.logical.get_mut().used_inodes, used.len() as u64);
        let dirty = self.dirty_blocks();
        assert_eq!(self.logical.get_mut().shared.aggregate.dirty.blocks(), dirty);
        let logical = self.logical.get_mut();
        let of_stripes = logical.stripes.iter_mut().map(|stripe| stripe.get_mut().dirtied.len());
        let listed = of_stripes.sum::<usize>() + logical.dirtied.len();
        let inodes = listed as u64 + logical.frozen_inodes;
        assert_eq!(logical.shared.aggregate.dirty.inodes(), inodes);
    }

    fn verify_directory(&mut self, inode: InodeNumber, parent: InodeNumber) -> Vec<Entry> {
        self.look(|transaction| {
            let (above, this, entries) = directory_file::with(transaction, inode, |blocks| {
                directory::verify(blocks)?;
                let mut entries = Vec::new();
                directory::scan(blocks, 0, |_, _, entry| {
                    entries.push(entry);
                    ControlFlow::Continue(())
                })?;
                Ok((directory::parent(blocks)?, directory::this(blocks)?, entries))
            })?;
            let is = |member: Member, inode| member.inode == inode;
            assert!(is(above, parent) && is(this, inode), "{this:?} in {above:?}");
            Ok(entries)
        })
    }

    fn verify_end(&mut self, inode: InodeNumber, state: &InodeAttributes) {
        let (end, size) = (state.size_blocks(), state.size);
        let beyond =
            self.look(|transaction| Ok(transaction.next_present(inode, Fbn(end), Fbn::END)?));
        assert_eq!(beyond, None, "{inode} of {size} bytes");
        if size % BLOCK_SIZE_U64 != 0 {
            let last = self.look(|transaction| Ok(transaction.read(inode, Fbn(end - 1))?));
            let from = (size % BLOCK_SIZE_U64) as usize;
            let zero = last.is_none_or(|last| last[from..].iter().all(|byte| *byte == 0));
            assert!(zero, "{inode} of {size} bytes");
        }
    }

    fn verify_map(&mut self, used: &BTreeSet<InodeNumber>) {
        let map = InodeNumber(metafile::INODE_MAP);
        let count = self.attributes_of(map).size_blocks();
        let mut found = BTreeSet::new();
        for fbn in 0..count {
            let block = self.look(|transaction| Ok(transaction.read(map, Fbn(fbn))?));
            let Some(block) = block else { continue };
            let bits = BLOCK_SIZE_U64 * 8;
            let set = (0..bits).filter(|bit| block[*bit as usize / 8] >> (bit % 8) & 1 != 0);
            found.extend(set.map(|bit| InodeNumber(fbn * bits + bit)));
        }
        assert_eq!(&found, used);
    }
}
