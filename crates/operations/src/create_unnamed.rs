//! `O_TMPFILE`: makes a regular file without a name, and holds it.
//!
//! Invariants: the file is on the orphan list from its making on, so a crash frees it, and so does
//! the end of its last hold. A LINK takes it off the list with the change that enters the name.
//!
//! Fails: as `file_service::rules` refuse; `NoSpace`.

use crate::attributes::{kind_code, state_of, take_over};
use crate::lists::NewLists;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, acls, apply};
use cowfs::inode::InodeAttributes;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use file_service::rules::attributes::{NewIdentity, created};
use file_service::rules::entries;
use file_service::{Entry, FileHandle, FileKind, Hold, calls};
use ondisk::operation::{CreateRecord, KIND_CREATE_UNNAMED};
use units::{Generation, InodeNumber};
use zerocopy::FromZeros;

impl Mutation for Scoped<calls::CreateUnnamed> {
    type Reply = (Entry, Hold);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let Scope { caller, now } = &self.scope;
        let directory = files.open_for(self.call.directory, caller)?;
        entries::check_search(caller, &directory.attributes)?;
        entries::check_add(caller, &directory.attributes, FileKind::Regular)?;
        files.transaction.now = *now;
        let kind = kind_code(FileKind::Regular);
        let (inode, generation) = files.transaction.create(kind, 0, None)?;
        let identity = NewIdentity { inode, generation, kind: FileKind::Regular };
        let default = acls::default_of(files, &directory)?;
        let parent = (&directory.attributes, default.as_ref());
        let decided = created(caller, parent, identity, &self.call.set, *now)?;
        let mut state = InodeAttributes::new(kind, 0, generation, *now);
        take_over(&mut state, &decided);
        state.size = 0;
        let state = state_of(&state);
        let lists = NewLists::decided(&decided, default.as_ref());
        let made = (&lists, None);
        let tree = directory.state.tree;
        let holder = apply::make_unnamed(files.transaction, (inode, &state, tree), made, *now)?;
        let lists = lists.recorded_as(holder);
        let record = CreateRecord {
            prefix: prefix(files.environment.volume, *now),
            directory: reference(InodeNumber(u64::from(tree)), Generation(0)),
            file: reference(inode, generation),
            state,
            kind,
            lists_size: (lists.len() as u16).into(),
            ..CreateRecord::new_zeroed()
        };
        let record = Record::new(KIND_CREATE_UNNAMED, &record, &[&lists]);
        let entry = files.entry(inode)?;
        let hold = Hold { file: entry.handle, losses: 0 };
        Ok(Executed::storing((entry, hold), record))
    }

    fn hold<P: Pointer>(
        &self,
        (_, hold): &mut Self::Reply,
        logical: &mut Logical<P>,
        losses: impl FnOnce(&FileHandle) -> u64,
    ) {
        logical.holds.add_unnamed(hold.file.inode, hold.file.generation);
        hold.losses = losses(&hold.file);
    }
}
