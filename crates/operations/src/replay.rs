//! Replay: applying what the log says was done (decision 10; FlexVol section 2).
//!
//! Records are replayed in the order of the log, on the image that the operations were done to, and
//! nothing else is done meanwhile. Nothing is decided again: who was allowed what, which inode a
//! file got and when it happened stand in the record. Files that lost their last name stay as
//! orphans, for a later record may be about one that was held.
//!
//! Invariants: a record is checked against the image before it changes anything; what does not fit
//! is an error that names it, never a panic, whatever the bytes. (Records are proved by the log's
//! checksums before; this is for what gets by them.)
//!
//! Fails: [`OperationStop::Record`]; what to wait for; damage.

use crate::apply::{self, NewFile};
use crate::attributes::{file_kind, take_over_state};
use crate::holder::Holder;
use crate::lists::{self, NewLists};
use crate::rename::{self, Party, RenameStep};
use crate::{OperationStop, Outcome, RecordError, directory_file, holder, quota_trees};
use cowfs::directory::{self, Entry, Member, is_entry_name};
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::{INODES_MAX, Transaction};
use file_service::rules::acls::AclKind;
use ondisk::damage::Damage;
use ondisk::inode::{KIND_DIRECTORY, KIND_REGULAR, KIND_SYMLINK};
use ondisk::operation as records;
use ondisk::operation::{
    AllocateRecord, CommitRecord, CreateRecord, FLAG_DROPS_CAPABILITY, FileReference, FileState,
    InheritedLists, NameRecord, OperationPrefix, RemoveXattrRecord, RenameRecord, SetAclRecord,
    SetAttributesRecord, SetXattrRecord, TreeRecord, WriteRecord,
};
use ondisk::root::metafile;
use ondisk::xattr::{XATTR_NAME_SIZE_MAX, XATTR_VALUE_SIZE_MAX};
use platform::mutation::{self, Rule};
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, Fbn, Generation, InodeNumber, Timestamp};

pub use ondisk::operation::{record_file, record_volume};

/// Applies a recorded operation to a transaction, which is then to be promised to
/// [`cowfs::budget::Spender::Owed`] and applied.
///
/// # Errors
/// [`OperationStop`].
///
/// # Panics
/// If the file system is not being replayed (`Logical::replaying`).
pub fn replay<P: Pointer>(
    kind: u16,
    body: &[u8],
    transaction: &mut Transaction<'_, P>,
) -> Outcome<()> {
    assert!(transaction.logical().replaying, "replay is for mounting");
    let mut replay = Replay { kind, rest: body, transaction };
    let done = match kind {
        records::KIND_CREATE => replay.create(),
        records::KIND_LINK => replay.link(),
        records::KIND_REMOVE => replay.remove(),
        records::KIND_RENAME => replay.rename(),
        records::KIND_SET_ATTRIBUTES => replay.set_attributes(),
        records::KIND_WRITE => replay.write(),
        records::KIND_COMMIT => replay.commit(),
        records::KIND_ALLOCATE => replay.allocate(),
        records::KIND_SET_XATTR => replay.set_xattr(),
        records::KIND_REMOVE_XATTR => replay.remove_xattr(),
        records::KIND_CREATE_UNNAMED => replay.create_unnamed(),
        records::KIND_SET_ACL => replay.set_acl(),
        records::KIND_MAKE_TREE => replay.make_tree(),
        _ => Err(OperationStop::Record { kind, error: RecordError::Kind }),
    };
    match done {
        // No client is here to be refused: the image is not the one that the record is about.
        Err(OperationStop::Error(_)) => {
            let error = RecordError::Unfit {
                inode: InodeNumber(0),
                problem: "the image refuses the operation",
            };
            Err(OperationStop::Record { kind, error })
        }
        done => done,
    }
}

/// Of a record of [`records::KIND_SET_ACL`] that meets damage: takes over all but the list, and has
/// the file say that it has one. Nobody can read it, so it lets nobody in. The file that holds it
/// is to be quarantined.
///
/// # Errors
/// As [`replay`].
pub fn replay_without_list<P: Pointer>(
    body: &[u8],
    transaction: &mut Transaction<'_, P>,
) -> Outcome<Option<Holder>> {
    let mut replay = Replay { kind: records::KIND_SET_ACL, rest: body, transaction };
    let (record, kind, value) = replay.acl_record()?;
    let now = replay.begin(&record.prefix);
    let (inode, _) = replay.file(&record.file)?;
    replay.take_over_acl(inode, (&record, kind), !value.is_empty(), now)?;
    let holder = holder::holder(replay.transaction, inode)?;
    Ok(holder.map(|holder| (holder.inode, holder.generation)))
}

fn holder_of(file: &FileReference) -> Holder {
    (InodeNumber(file.inode.get()), Generation(file.generation.get()))
}

struct Replay<'r, 'b, 'a, P: Pointer> {
    kind: u16,
    /// What of the body is not decoded yet.
    rest: &'b [u8],
    transaction: &'r mut Transaction<'a, P>,
}

impl<'b, P: Pointer> Replay<'_, 'b, '_, P> {
    fn fixed<T: records::RecordPart>(&mut self) -> Outcome<T> {
        let (fixed, rest) = records::split(self.rest, records::kind_name(self.kind))
            .map_err(|damage| self.damaged(damage))?;
        self.rest = rest;
        Ok(fixed)
    }

    fn bytes(&mut self, size: usize) -> Outcome<&'b [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(size) else {
            return Err(self.wrong("size"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn name(&mut self, size: u16) -> Outcome<&'b [u8]> {
        let name = self.bytes(usize::from(size))?;
        if is_entry_name(name) { Ok(name) } else { Err(self.wrong("name")) }
    }

    fn end(&self) -> Outcome<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong("size")) }
    }

    fn damaged(&self, damage: Damage) -> OperationStop {
        OperationStop::Record { kind: self.kind, error: damage.into() }
    }

    fn wrong(&self, field: &'static str) -> OperationStop {
        self.damaged(Damage::Field { structure: records::kind_name(self.kind), field })
    }

    fn unfit(&self, inode: InodeNumber, problem: &'static str) -> OperationStop {
        OperationStop::Record { kind: self.kind, error: RecordError::Unfit { inode, problem } }
    }

    /// Takes over the record's time.
    fn begin(&mut self, prefix: &OperationPrefix) -> Timestamp {
        let now = Timestamp(prefix.time.get());
        self.transaction.now = now;
        now
    }

    /// The file that a record names, which must be there.
    fn file(&mut self, file: &FileReference) -> Outcome<(InodeNumber, InodeAttributes)> {
        let inode = InodeNumber(file.inode.get());
        let found = self.transaction.file(inode, Generation(file.generation.get()))?;
        let visible = found.filter(|state| file_kind(state.kind).is_some());
        let state = visible.ok_or_else(|| self.unfit(inode, "the file is not there"))?;
        Ok((inode, state))
    }

    fn directory(&mut self, file: &FileReference) -> Outcome<Member> {
        let (inode, state) = self.file(file)?;
        if state.kind != KIND_DIRECTORY {
            return Err(self.unfit(inode, "it is no directory"));
        }
        Ok(Member::of_this_volume(inode, state.generation))
    }

    fn regular(&mut self, file: &FileReference) -> Outcome<(InodeNumber, InodeAttributes)> {
        let (inode, state) = self.file(file)?;
        if state.kind != KIND_REGULAR {
            return Err(self.unfit(inode, "it is no regular file"));
        }
        Ok((inode, state))
    }

    /// Checks what a name in a directory leads to.
    fn check_name(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        expected: Option<Entry>,
    ) -> Outcome<()> {
        let found = directory_file::lookup(self.transaction, directory, name)?;
        if found == expected {
            return Ok(());
        }
        Err(self.unfit(directory, "the name leads elsewhere"))
    }

    /// An inode number that a record says was free.
    fn check_free(&mut self, inode: InodeNumber) -> Outcome<()> {
        let in_range = (metafile::FIRST_FILE..INODES_MAX).contains(&inode.get());
        if !in_range || self.transaction.is_in_use(inode)? {
            return Err(self.unfit(inode, "the inode is in use or out of range"));
        }
        Ok(())
    }

    fn create(&mut self) -> Outcome<()> {
        let record: CreateRecord = self.fixed()?;
        let name = self.name(record.name_size.get())?;
        let text = self.bytes(usize::from(record.text_size.get()))?;
        let inode = InodeNumber(record.file.inode.get());
        let (lists, holder) = self.lists((inode, record.kind), record.lists_size.get())?;
        let is_symlink = record.kind == KIND_SYMLINK;
        if text.len() > BLOCK_SIZE || is_symlink == text.is_empty() {
            return Err(self.wrong("text_size"));
        }
        if file_kind(record.kind).is_none() {
            return Err(self.wrong("kind"));
        }
        let now = self.begin(&record.prefix);
        let parent = self.directory(&record.directory)?;
        let generation = Generation(record.file.generation.get());
        self.check_free(inode)?;
        self.check_name(parent.inode, name, None)?;
        self.transaction.create(record.kind, 0, Some((inode, generation)))?;
        let new = NewFile {
            member: Member::of_this_volume(inode, generation),
            kind: record.kind,
            state: record.state,
            device: (record.device_major.get(), record.device_minor.get()),
            create_verifier: record.create_verifier.get(),
            hash_seed: record.hash_seed.map(|word| word.get()),
            text,
            lists,
        };
        apply::make(self.transaction, (parent, name), (&new, holder), now)?;
        Ok(())
    }

    /// The access control lists that end a record, and what holds them.
    fn lists(
        &mut self,
        (file, kind): (InodeNumber, u8),
        size: u16,
    ) -> Outcome<(NewLists, Option<Holder>)> {
        if size == 0 {
            self.end()?;
            return Ok((NewLists::default(), None));
        }
        let head: InheritedLists = self.fixed()?;
        let access = self.bytes(usize::from(head.access_size.get()))?;
        let default = self.bytes(usize::from(head.default_size.get()))?;
        self.end()?;
        let sizes = access.len() + default.len();
        let takes = kind == KIND_DIRECTORY || default.is_empty() && kind != KIND_SYMLINK;
        if sizes == 0 || sizes + size_of::<InheritedLists>() != usize::from(size) || !takes {
            return Err(self.wrong("lists_size"));
        }
        let lists = NewLists::recorded(access, default).map_err(|damage| self.damaged(damage))?;
        let holder = holder_of(&head.holder);
        if holder.0 == file {
            return Err(self.wrong("holder"));
        }
        self.check_free(holder.0)?;
        if mutation::broken(Rule::InheritanceNotReplayed) {
            return Ok((NewLists::default(), None));
        }
        Ok((lists, Some(holder)))
    }

    fn create_unnamed(&mut self) -> Outcome<()> {
        let record: CreateRecord = self.fixed()?;
        let inode = InodeNumber(record.file.inode.get());
        let (lists, holder) = self.lists((inode, record.kind), record.lists_size.get())?;
        let parts = [record.name_size.get(), record.text_size.get()];
        if record.kind != KIND_REGULAR || parts != [0; 2] {
            return Err(self.wrong("kind"));
        }
        let tree = u32::try_from(record.directory.inode.get());
        let tree = tree.map_err(|_| self.wrong("directory"))?;
        let now = self.begin(&record.prefix);
        let generation = Generation(record.file.generation.get());
        self.check_free(inode)?;
        self.transaction.create(record.kind, 0, Some((inode, generation)))?;
        let file = (inode, &record.state, tree);
        apply::make_unnamed(self.transaction, file, (&lists, holder), now)?;
        Ok(())
    }

    fn make_tree(&mut self) -> Outcome<()> {
        let record: TreeRecord = self.fixed()?;
        self.end()?;
        let now = self.begin(&record.prefix);
        let directory = self.directory(&record.directory)?.inode;
        let (_, state) = self.file(&record.directory)?;
        let is_root = directory.get() == metafile::ROOT_DIRECTORY;
        let is_empty = directory_file::with(self.transaction, directory, |blocks| {
            directory::is_empty(blocks)
        })?;
        if is_root || !is_empty || state.tree != 0 {
            return Err(self.unfit(directory, "it cannot become a quota tree"));
        }
        quota_trees::apply(self.transaction, directory, now)
    }

    fn link(&mut self) -> Outcome<()> {
        let record: NameRecord = self.fixed()?;
        let name = self.name(record.name_size.get())?;
        self.end()?;
        let now = self.begin(&record.prefix);
        let parent = self.directory(&record.directory)?;
        let (inode, state) = self.file(&record.file)?;
        // One without a name was made so.
        let is_orphan = self.transaction.logical().orphans.has(inode);
        let is_missing = state.links == 0 && !is_orphan;
        if state.kind == KIND_DIRECTORY || is_missing || state.links == u32::MAX {
            return Err(self.unfit(inode, "it cannot have another link"));
        }
        self.check_name(parent.inode, name, None)?;
        let member = Member::of_this_volume(inode, state.generation);
        let entry = Entry { member, kind: state.kind };
        apply::link(self.transaction, parent.inode, name, entry, now)?;
        if mutation::broken(Rule::LinkNotReplayed) {
            self.transaction.edit(inode)?.links -= 1;
        }
        Ok(())
    }

    fn remove(&mut self) -> Outcome<()> {
        let record: NameRecord = self.fixed()?;
        let name = self.name(record.name_size.get())?;
        self.end()?;
        let now = self.begin(&record.prefix);
        let parent = self.directory(&record.directory)?;
        let victim = self.party(&record.file)?;
        self.check_name(parent.inode, name, Some(victim.entry()))?;
        apply::remove_name(self.transaction, parent.inode, name, victim.member.inode, now)
    }

    fn party(&mut self, file: &FileReference) -> Outcome<Party> {
        let (inode, state) = self.file(file)?;
        let member = Member::of_this_volume(inode, state.generation);
        Ok(Party { member, kind: state.kind })
    }

    fn rename(&mut self) -> Outcome<()> {
        let record: RenameRecord = self.fixed()?;
        let from_name = self.name(record.from_name_size.get())?;
        let to_name = self.name(record.to_name_size.get())?;
        self.end()?;
        let now = self.begin(&record.prefix);
        let from = self.directory(&record.from_directory)?;
        let to = self.directory(&record.to_directory)?;
        let source = self.party(&record.source)?;
        let has_target = match record.action {
            records::RENAME_MOVE => false,
            records::RENAME_REPLACE | records::RENAME_EXCHANGE => true,
            _ => return Err(self.wrong("action")),
        };
        let target = if has_target { Some(self.party(&record.target)?) } else { None };
        self.check_name(from.inode, from_name, Some(source.entry()))?;
        self.check_name(to.inode, to_name, target.map(Party::entry))?;
        let step = RenameStep {
            action: record.action,
            from_directory: from,
            from_name,
            to_directory: to,
            to_name,
            source,
            target,
        };
        rename::apply(self.transaction, &step, now)
    }

    fn set_attributes(&mut self) -> Outcome<()> {
        let record: SetAttributesRecord = self.fixed()?;
        self.end()?;
        self.begin(&record.prefix);
        let (inode, state) = self.file(&record.file)?;
        if state.kind == KIND_REGULAR {
            apply::resize(self.transaction, inode, record.state.size.get())?;
        }
        self.finish(inode, &record.state, record.flags.get())
    }

    /// Takes over attributes, and drops capabilities.
    fn finish(&mut self, inode: InodeNumber, state: &FileState, flags: u32) -> Outcome<()> {
        if flags & FLAG_DROPS_CAPABILITY != 0 {
            holder::drop_capability(self.transaction, inode)?;
        }
        let attributes = self.transaction.edit(inode)?;
        let owner = attributes.owner();
        take_over_state(attributes, state);
        // As the operation did: nothing else needs the holder.
        match attributes.owner() == owner {
            true => Ok(()),
            false => holder::follow(self.transaction, inode),
        }
    }

    fn write(&mut self) -> Outcome<()> {
        let record: WriteRecord = self.fixed()?;
        let data = self.bytes(record.data_size.get() as usize)?;
        self.end()?;
        let (offset, size) = (record.offset.get(), record.size.get());
        let end = offset.checked_add(data.len() as u64);
        if data.is_empty() || end.is_none_or(|end| end > size) {
            return Err(self.wrong("size"));
        }
        let now = self.begin(&record.prefix);
        let (inode, _) = self.regular(&record.file)?;
        apply::write(self.transaction, inode, offset, data)?;
        if record.flags.get() & FLAG_DROPS_CAPABILITY != 0 {
            holder::drop_capability(self.transaction, inode)?;
        }
        let state = self.transaction.edit(inode)?;
        state.size = state.size.max(size);
        state.mode &= !((record.mode_cleared.get() & 0o7777) as u16);
        state.touch_content(now);
        state.change = state.change.max(record.change.get());
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        let record: CommitRecord = self.fixed()?;
        let count = record.block_count.get() as usize;
        let numbers = self.bytes(count.saturating_mul(8))?;
        let blocks = self.bytes(count.saturating_mul(BLOCK_SIZE))?;
        self.end()?;
        self.begin(&record.prefix);
        let (inode, _) = self.regular(&record.file)?;
        let size = record.state.size.get();
        apply::resize(self.transaction, inode, size)?;
        let (numbers, _) = numbers.as_chunks::<8>();
        for (number, block) in numbers.iter().zip(blocks.chunks_exact(BLOCK_SIZE)) {
            let fbn = Fbn(u64::from_le_bytes(*number));
            if fbn.get() >= size.div_ceil(BLOCK_SIZE_U64) {
                return Err(self.wrong("block number"));
            }
            self.transaction.put(inode, fbn, Block::shared(block))?;
        }
        self.finish(inode, &record.state, 0)
    }

    fn allocate(&mut self) -> Outcome<()> {
        let record: AllocateRecord = self.fixed()?;
        self.end()?;
        let (start, end) = (record.start.get(), record.end.get());
        if start >= end {
            return Err(self.wrong("end"));
        }
        self.begin(&record.prefix);
        let (inode, _) = self.regular(&record.file)?;
        match record.action {
            records::ALLOCATE_RESERVE => {}
            records::ALLOCATE_ZERO => apply::zero_range(self.transaction, inode, start, end)?,
            _ => return Err(self.wrong("action")),
        }
        apply::resize(self.transaction, inode, record.state.size.get())?;
        self.finish(inode, &record.state, record.flags.get())
    }

    fn set_xattr(&mut self) -> Outcome<()> {
        let record: SetXattrRecord = self.fixed()?;
        let name = self.bytes(usize::from(record.name_size.get()))?;
        let value = self.bytes(record.value_size.get() as usize)?;
        self.end()?;
        if name.is_empty() || name.len() > XATTR_NAME_SIZE_MAX {
            return Err(self.wrong("name_size"));
        }
        if value.len() > XATTR_VALUE_SIZE_MAX {
            return Err(self.wrong("value_size"));
        }
        // An access control list has a record of its own.
        if AclKind::of_name(name).is_some() {
            return Err(self.wrong("name"));
        }
        let now = self.begin(&record.prefix);
        let (inode, _) = self.file(&record.file)?;
        self.put_xattr(inode, holder_of(&record.holder), (name, value))?;
        self.transaction.edit(inode)?.touch(now);
        Ok(())
    }

    fn put_xattr(
        &mut self,
        inode: InodeNumber,
        chosen: Holder,
        (name, value): (&[u8], &[u8]),
    ) -> Outcome<()> {
        match holder::holder(self.transaction, inode)? {
            None => self.check_free(chosen.0)?,
            Some(holder) if (holder.inode, holder.generation) == chosen => {}
            Some(_) => return Err(self.unfit(inode, "its attributes lie elsewhere")),
        }
        let mut list = holder::load(self.transaction, inode)?;
        list.insert(name.to_vec(), value.to_vec());
        if ondisk::xattr::encoded_size(&list) as u64 > holder::XATTRS_BYTES_MAX {
            return Err(self.unfit(inode, "its attributes would be too large"));
        }
        holder::store(self.transaction, inode, &list, Some(chosen))?;
        Ok(())
    }

    fn acl_record(&mut self) -> Outcome<(SetAclRecord, AclKind, &'b [u8])> {
        let record: SetAclRecord = self.fixed()?;
        let value = self.bytes(record.value_size.get() as usize)?;
        self.end()?;
        let (kind, checked) = match record.list {
            records::LIST_ACCESS => (AclKind::Access, NewLists::recorded(value, &[])),
            records::LIST_DEFAULT => (AclKind::Default, NewLists::recorded(&[], value)),
            _ => return Err(self.wrong("list")),
        };
        checked.map_err(|damage| self.damaged(damage))?;
        Ok((record, kind, value))
    }

    /// What a record of a list says of the file itself. A list that is removed and cannot be is
    /// there still.
    fn take_over_acl(
        &mut self,
        inode: InodeNumber,
        (record, kind): (&SetAclRecord, AclKind),
        is_there: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        let state = self.transaction.edit(inode)?;
        if is_there {
            lists::note(state, kind, true);
        }
        state.mode = (record.mode.get() & 0o7777) as u16;
        state.touch(now);
        state.change = state.change.max(record.change.get());
        Ok(())
    }

    fn set_acl(&mut self) -> Outcome<()> {
        let (record, kind, value) = self.acl_record()?;
        let now = self.begin(&record.prefix);
        let (inode, state) = self.file(&record.file)?;
        if kind == AclKind::Default && state.kind != KIND_DIRECTORY || state.kind == KIND_SYMLINK {
            return Err(self.unfit(inode, "it can have no such list"));
        }
        let is_there = match kind {
            AclKind::Access => state.has_access_acl,
            AclKind::Default => state.has_default_acl,
        };
        if value.is_empty() && is_there {
            holder::remove(self.transaction, inode, kind.name())?;
        }
        if !value.is_empty() {
            self.put_xattr(inode, holder_of(&record.holder), (kind.name(), value))?;
        }
        lists::note(self.transaction.edit(inode)?, kind, !value.is_empty());
        self.take_over_acl(inode, (&record, kind), false, now)
    }

    fn remove_xattr(&mut self) -> Outcome<()> {
        let record: RemoveXattrRecord = self.fixed()?;
        let name = self.bytes(usize::from(record.name_size.get()))?;
        self.end()?;
        if AclKind::of_name(name).is_some() {
            return Err(self.wrong("name"));
        }
        let now = self.begin(&record.prefix);
        let (inode, _) = self.file(&record.file)?;
        if !holder::remove(self.transaction, inode, name)? {
            return Err(self.unfit(inode, "it has no such attribute"));
        }
        self.transaction.edit(inode)?.touch(now);
        Ok(())
    }
}
