//! CREATE: makes a regular file, or finds it.
//!
//! Fails: as `file_service::rules` refuse; `NoSpace`.

use crate::apply::{self, NewFile};
use crate::attributes::{change, kind_code, state_of, take_over};
use crate::file::File;
use crate::lists::NewLists;
use crate::mutation::{prefix, reference};
use crate::{Executed, Files, Mutation, Outcome, Record, Scope, Scoped, acls};
use cowfs::budget::Spender;
use cowfs::directory::Member;
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use file_service::rules::attributes::{NewIdentity, created};
use file_service::rules::{entries, names};
use file_service::{CreateMode, Entry, FileKind, FsError, NodeChange, SetAttributes, calls};
use ondisk::operation::{CreateRecord, KIND_CREATE};
use platform::mutation::{self, Rule};

impl Mutation for Scoped<calls::Create> {
    type Reply = (Entry, NodeChange);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let directory = files.open_for(self.call.directory, &self.scope.caller)?;
        entries::check_search(&self.scope.caller, &directory.attributes)?;
        let found = files.lookup(directory.inode, &self.call.name)?;
        if let Some(found) = found {
            let existing = files.named(found)?;
            return self.find(files, &directory, &existing);
        }
        names::check_new_name(&self.call.name)?;
        let size = self.call.set.size.unwrap_or(0);
        if size > files.environment.limits.file_bytes_max {
            return Err(FsError::FileTooLarge.into());
        }
        let create_verifier = match self.call.mode {
            CreateMode::Exclusive(verifier) => stored_verifier(verifier),
            CreateMode::Unchecked | CreateMode::Guarded => 0,
        };
        let parts = NewParts {
            kind: FileKind::Regular,
            size,
            device: (0, 0),
            create_verifier,
            hash_seed: [0; 2],
            text: &[],
        };
        let (scope, name) = (&self.scope, self.call.name.as_slice());
        add(files, scope, (&directory, name), &self.call.set, &parts)
    }
}

impl Scoped<calls::Create> {
    /// What the name leads to already.
    fn find<P: Pointer>(
        &self,
        files: &mut Files<'_, '_, P>,
        directory: &File,
        existing: &File,
    ) -> Outcome<Executed<(Entry, NodeChange)>> {
        let mut records = Vec::new();
        let mut spender = Spender::Common;
        match self.call.mode {
            CreateMode::Guarded => return Err(FsError::Exists.into()),
            CreateMode::Exclusive(verifier) => {
                let is_another = existing.state.create_verifier != stored_verifier(verifier);
                if is_another || mutation::broken(Rule::ExclusiveCreateRedone) {
                    return Err(FsError::Exists.into());
                }
            }
            CreateMode::Unchecked if existing.is_directory() => {
                return Err(FsError::IsDirectory.into());
            }
            CreateMode::Unchecked if existing.attributes.kind != FileKind::Regular => {
                return Err(FsError::Exists.into());
            }
            CreateMode::Unchecked => {
                let set = SetAttributes { size: self.call.set.size, ..SetAttributes::default() };
                let file = files.entry(existing.inode)?.handle;
                let call = calls::SetFileAttributes { file, set };
                let resize = Scoped { scope: self.scope.clone(), call };
                let resized = resize.execute(files)?;
                (records, spender) = (resized.records, resized.spender);
            }
        }
        let entry = files.entry(existing.inode)?;
        let parent = change(&directory.attributes, directory.attributes.clone());
        Ok(Executed { reply: (entry, parent), records, spender })
    }
}

/// A verifier as the inode keeps it, where zero means that there is none.
fn stored_verifier(verifier: u64) -> u64 {
    if verifier == 0 { u64::MAX } else { verifier }
}

/// What tells new files of different kinds apart.
pub(crate) struct NewParts<'n> {
    pub kind: FileKind,
    pub size: u64,
    pub device: (u32, u32),
    pub create_verifier: u64,
    pub hash_seed: [u64; 2],
    pub text: &'n [u8],
}

/// Makes a file under a name that is free.
pub(crate) fn add<P: Pointer>(
    files: &mut Files<'_, '_, P>,
    scope: &Scope,
    (directory, name): (&File, &[u8]),
    set: &SetAttributes,
    parts: &NewParts<'_>,
) -> Outcome<Executed<(Entry, NodeChange)>> {
    entries::check_add(&scope.caller, &directory.attributes, parts.kind)?;
    files.transaction.now = scope.now;
    let kind = kind_code(parts.kind);
    let (inode, generation) = files.transaction.create(kind, 0, None)?;
    let identity = NewIdentity { inode, generation, kind: parts.kind };
    let default = acls::default_of(files, directory)?;
    let parent = (&directory.attributes, default.as_ref());
    let decided = created(&scope.caller, parent, identity, set, scope.now)?;
    let mut state = InodeAttributes::new(kind, 0, generation, scope.now);
    take_over(&mut state, &decided);
    state.size = parts.size;
    let new = NewFile {
        member: Member::of_this_volume(inode, generation),
        kind,
        state: state_of(&state),
        device: parts.device,
        create_verifier: parts.create_verifier,
        hash_seed: parts.hash_seed,
        text: parts.text,
        lists: NewLists::decided(&decided, default.as_ref()),
    };
    let parent = directory.member();
    let holder = apply::make(files.transaction, (parent, name), (&new, None), scope.now)?;
    let lists = new.lists.recorded_as(holder);
    let record = CreateRecord {
        prefix: prefix(files.environment.volume, scope.now),
        directory: reference(parent.inode, parent.generation),
        file: reference(inode, generation),
        state: new.state,
        device_major: parts.device.0.into(),
        device_minor: parts.device.1.into(),
        create_verifier: parts.create_verifier.into(),
        hash_seed: parts.hash_seed.map(Into::into),
        kind,
        reserved_a: 0,
        name_size: (name.len() as u16).into(),
        text_size: (parts.text.len() as u16).into(),
        lists_size: (lists.len() as u16).into(),
    };
    let record = Record::new(KIND_CREATE, &record, &[name, parts.text, &lists]);
    let entry = files.entry(inode)?;
    let after = files.attributes(directory.inode)?;
    Ok(Executed::storing((entry, change(&directory.attributes, after)), record))
}
