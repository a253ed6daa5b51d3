//! READDIR and READDIRPLUS, in any image; `.snapshot` lists the snapshots, oldest first.
//!
//! Cookies: 1 and 2 are `.` and `..`; an entry's is `cowfs::directory`'s, a snapshot's is its
//! number and 2.
//!
//! Fails: `Stale`, `NotDirectory`, `AccessDenied`.

use crate::attributes::file_kind;
use crate::view::View;
use crate::{Files, OperationStop, Outcome, Query, Scoped};
use cowfs::directory::{self, Listed};
use cowfs::pointer::Pointer;
use cowfs::reader::{Stop, Wait};
use file_service::permission::{self, MODE_READ};
use file_service::{
    Attributes, DirectoryEntry, DirectoryPage, Entry, FileHandle, FileKind, FsError, calls,
};
use units::SnapshotId;

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;
/// Entries of one page at most, so that a client cannot have a message run for long: more than any
/// protocol's reply holds (1 MiB of entries of 32 bytes).
const ENTRIES_MAX: usize = 32 << 10;

impl Query for Scoped<calls::ReadDirectory> {
    type Reply = DirectoryPage;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<DirectoryPage> {
        let mut view = View::open(files, self.call.directory)?;
        let mut attributes = view.file_for(self.call.directory, &self.scope.caller)?;
        if attributes.kind != FileKind::Directory {
            return Err(FsError::NotDirectory.into());
        }
        permission::check(&self.scope.caller, &attributes, MODE_READ)?;
        attributes.acl = attributes.acl.unread();
        // First, since `.` shows it. If a wait follows, the next run finds it done.
        view.note_read(&mut attributes, self.scope.now);
        let (entries, end) = if view.image == SnapshotId::DIRECTORY {
            self.list_snapshots(&mut view, &attributes)?
        } else {
            self.list(&mut view, &attributes)?
        };
        Ok(DirectoryPage { entries, end, attributes })
    }
}

type Entries = (Vec<DirectoryEntry>, bool);

impl Scoped<calls::ReadDirectory> {
    fn entries_max(&self) -> usize {
        usize::try_from(self.call.entries_max).unwrap_or(ENTRIES_MAX).min(ENTRIES_MAX)
    }

    fn list<P: Pointer>(
        &self,
        view: &mut View<'_, '_, P>,
        directory: &Attributes,
    ) -> Outcome<Entries> {
        let mut entries = Vec::new();
        // A removed directory that is held has nothing, not even its parent.
        if directory.links > 0 && self.call.cookie < COOKIE_PARENT {
            let this = Entry { handle: self.call.directory, attributes: directory.clone() };
            let parent = view.directory(directory, |blocks| directory::parent(blocks))?;
            let parent = view.entry(parent.inode, parent.generation)?;
            entries = self.dots(this, parent);
        }
        let room = self.entries_max().saturating_sub(entries.len());
        let more_dots = entries.len() > self.entries_max();
        entries.truncate(self.entries_max());
        let after = self.call.cookie.max(COOKIE_PARENT);
        // Without room, one entry tells whether this is the end.
        let listing =
            view.directory(directory, |blocks| directory::list(blocks, after, room.max(1)))?;
        let end = listing.end && !more_dots && (room > 0 || listing.entries.is_empty());
        let listed = listing.entries.into_iter().take(room).collect();
        self.append(view, listed, &mut entries)?;
        Ok((entries, end))
    }

    /// `.` and `..` as far as they come after the cookie.
    fn dots(&self, this: Entry, parent: Entry) -> Vec<DirectoryEntry> {
        let dots =
            [(COOKIE_SELF, b".".as_slice(), this), (COOKIE_PARENT, b"..".as_slice(), parent)];
        let wanted = dots.into_iter().filter(|(cookie, _, _)| *cookie > self.call.cookie);
        wanted.map(|(cookie, name, entry)| self.shown(name, cookie, entry)).collect()
    }

    fn shown(&self, name: &[u8], cookie: u64, entry: Entry) -> DirectoryEntry {
        DirectoryEntry {
            name: name.to_vec(),
            cookie,
            inode: entry.attributes.inode,
            kind: entry.attributes.kind,
            entry: self.call.with_attributes.then_some(entry),
        }
    }

    /// Appends entries, with their attributes if wanted; all loads that those miss are asked for at
    /// once.
    fn append<P: Pointer>(
        &self,
        view: &mut View<'_, '_, P>,
        listed: Vec<Listed>,
        entries: &mut Vec<DirectoryEntry>,
    ) -> Outcome<()> {
        let mut missing = Vec::new();
        for Listed { cookie, name, entry: found } in listed {
            let member = found.member;
            let kind = file_kind(found.kind);
            let kind = kind.ok_or(OperationStop::Dangling { inode: member.inode })?;
            let mut entry = None;
            if self.call.with_attributes {
                match view.entry(member.inode, member.generation) {
                    Ok(found) => entry = Some(found),
                    Err(OperationStop::Cow(Stop::Wait(Wait::Load(requests)))) => {
                        for request in requests {
                            if missing.last() != Some(&request) {
                                missing.push(request);
                            }
                        }
                    }
                    Err(stop) => return Err(stop),
                }
            }
            entries.push(DirectoryEntry { name, cookie, inode: member.inode, kind, entry });
        }
        if missing.is_empty() { Ok(()) } else { Err(Stop::Wait(Wait::Load(missing)).into()) }
    }

    fn list_snapshots<P: Pointer>(
        &self,
        view: &mut View<'_, '_, P>,
        directory: &Attributes,
    ) -> Outcome<Entries> {
        let this = Entry { handle: self.call.directory, attributes: directory.clone() };
        let handle = FileHandle { snapshot: SnapshotId::ACTIVE, ..self.call.directory };
        let mut active = view.other(handle)?;
        let parent = active.entry(handle.inode, handle.generation)?;
        let mut entries = self.dots(this, parent);
        for snapshot in view.transaction.logical().snapshots.clone() {
            let cookie = u64::from(snapshot.id.get()) + COOKIE_PARENT;
            if cookie <= self.call.cookie {
                continue;
            }
            if entries.len() > self.entries_max() {
                break;
            }
            // A snapshot from before the directory was made has none.
            if let Some(entry) = view.in_snapshot(self.call.directory, &snapshot)? {
                entries.push(self.shown(snapshot.name.as_bytes(), cookie, entry));
            }
        }
        let end = entries.len() <= self.entries_max();
        entries.truncate(self.entries_max());
        Ok((entries, end))
    }
}
