//! Requests of the kernel as calls of the file service, and their answers back.
//!
//! Who decides what: the kernel checks permissions (`default_permissions`), because it must do so
//! for names that it has cached anyway, knows all groups and capabilities of the process, and
//! refreshes attributes that are out of date before it decides. It does so by access control
//! lists, too (`POSIX_ACL`), for which it asks as for extended attributes. So requests go to the
//! service as root's, without a second check and without a look at the process's groups. Four
//! things are still the caller's own: whose a new file is; the umask, which counts only where the
//! file inherits no list (`DONT_MASK`: the kernel leaves that to the service); which writes clear
//! setuid and setgid (`HANDLE_KILLPRIV_V2`: the kernel says which, the service does it with the
//! write); and which extended attributes a listing shows.
//!
//! Invariants:
//! - An event loop never waits for an answer; it comes through a callback, on any thread.
//! - `OPEN`, `CREATE` and `TMPFILE` hold the file; `RELEASE` and the end of the mount let go, so
//!   open files without a name live on.
//!   Directories are not held: they are read by cookie, and what a program may still see of one
//!   that was removed is known without the service ([`crate::removed`]).
//! - What has no case here answers ENOSYS, upon which the kernel does without: `ACCESS`,
//!   `COPY_FILE_RANGE`; and without a lock manager `FLUSH` (what the page cache has is written
//!   before it), `INTERRUPT` and locks, which the kernel keeps to itself then. On a mount that
//!   writes back `LSEEK`, too: what is only in the page cache would count as a hole.
//!
//! Fails: by error numbers; a file that is gone is ESTALE, and the kernel looks its name up again.

mod attributes;
mod directory;
mod files;
mod locks;
mod names;
mod xattrs;

#[cfg(test)]
mod tests;

use self::locks::MountLocks;
use crate::abi::{AttrOut, EntryOut, init, opcode};
use crate::convert::{self, Validity};
use crate::errno::Errno;
use crate::node::{NodeTable, visible_inode};
use crate::opens::{Opened, Opens};
use crate::privileged::PrivilegedFiles;
use crate::removed::RemovedFiles;
use crate::reply::Reply;
use crate::request::Request;
use crate::unsettled::Unsettled;
use ::locks::LockManager;
use file_service::{
    Attributes, Caller, Done, Durability, Entry, FileHandle, FileKind, FileService, FsError, calls,
};
use platform::linux::SystemEntropy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

type Handled = Result<(), Errno>;

/// Whether programs use a file without an OPEN that this side hears of.
fn is_special(entry: &Entry) -> bool {
    !matches!(entry.attributes.kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
}

pub(crate) struct Server {
    service: Arc<dyn FileService>,
    nodes: NodeTable,
    opens: Opens,
    unsettled: Arc<Unsettled>,
    removed: RemovedFiles,
    /// The kernel was told of a file that it keeps in use without an OPEN: a FIFO, a socket, a
    /// device.
    has_special: AtomicBool,
    privileged: PrivilegedFiles,
    /// How long the kernel may believe names and attributes.
    valid: Validity,
    /// Root, with the order of changes that POSIX asks for.
    caller: Caller,
    /// None: the kernel keeps locks to itself.
    locks: Option<Arc<MountLocks>>,
    /// Whether requests that set extended attributes are of the longer form.
    sets_xattrs_extended: AtomicBool,
    /// Whether the kernel keeps writes in its page cache.
    writes_back: AtomicBool,
}

/// The user that stands for a process with user id 0 that may not keep setuid: "nobody".
const UNPRIVILEGED: u32 = 65_534;

impl Server {
    pub(crate) fn new(
        service: Arc<dyn FileService>,
        root: FileHandle,
        valid: Validity,
        locks: Option<Arc<LockManager>>,
    ) -> Arc<Self> {
        let caller = Caller { durability: Durability::Ordered, has_opened: true, ..Caller::root() };
        let unsettled = Unsettled::new(Arc::clone(&service), caller.clone(), root);
        Arc::new(Self {
            service,
            unsettled: Arc::new(unsettled),
            nodes: NodeTable::new(root, &SystemEntropy),
            opens: Opens::default(),
            removed: RemovedFiles::default(),
            has_special: AtomicBool::new(false),
            privileged: PrivilegedFiles::default(),
            valid,
            caller,
            locks: locks.map(|manager| Arc::new(MountLocks::new(manager))),
            sets_xattrs_extended: AtomicBool::new(false),
            writes_back: AtomicBool::new(false),
        })
    }

    /// The kernel and this side agreed on these features.
    pub(crate) fn agree(&self, features: u64) {
        self.sets_xattrs_extended.store(features & init::SETXATTR_EXT != 0, Ordering::Relaxed);
        self.writes_back.store(features & init::WRITEBACK_CACHE != 0, Ordering::Relaxed);
    }

    /// Whether the kernel may have data and a size of a file that the service has not.
    fn writes_back(&self) -> bool {
        self.writes_back.load(Ordering::Relaxed)
    }

    /// The files that programs may have written and the kernel may not have sent.
    pub(crate) fn nodes_open_for_writing(&self) -> Vec<u64> {
        let known = |file| self.nodes.known(file);
        self.opens.written().into_iter().filter_map(known).collect()
    }

    /// What makes files durable that were closed; the mount gives it a thread.
    pub(crate) fn unsettled(&self) -> Arc<Unsettled> {
        Arc::clone(&self.unsettled)
    }

    /// Starts one request. Its answer may come later and from elsewhere.
    pub(crate) fn dispatch(self: &Arc<Self>, mut request: Request<'_>) {
        let handled = self.handle(&mut request);
        if let Err(error) = handled {
            request.reply().error(error);
        }
    }

    fn handle(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        match request.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => {
                self.forget(request);
                Ok(())
            }
            opcode::LOOKUP => self.lookup(request),
            opcode::GETATTR => self.get_attributes(request),
            opcode::STATX => self.statx(request),
            opcode::SETATTR => self.set_attributes(request),
            opcode::READLINK => self.read_link(request),
            opcode::SYMLINK => self.symlink(request),
            opcode::MKNOD => self.make_node(request),
            opcode::MKDIR => self.make_directory(request),
            opcode::UNLINK => self.remove(request),
            opcode::RMDIR => self.remove_directory(request),
            opcode::RENAME => self.rename(request, false),
            opcode::RENAME2 => self.rename(request, true),
            opcode::LINK => self.link(request),
            opcode::OPEN => self.open(request),
            opcode::CREATE => self.create(request),
            opcode::TMPFILE => self.create_unnamed(request),
            opcode::READ => self.read(request),
            opcode::WRITE => self.write(request),
            opcode::RELEASE => self.release(request),
            opcode::FSYNC => self.commit_file(request),
            opcode::FSYNCDIR => self.commit_directory(request),
            opcode::SYNCFS => self.sync(request),
            opcode::FLUSH => self.flush(request),
            opcode::GETLK => self.test_lock(request),
            opcode::SETLK | opcode::SETLKW => self.set_lock(request),
            opcode::INTERRUPT => self.interrupt(request),
            opcode::FALLOCATE => self.allocate(request),
            opcode::LSEEK => self.seek(request),
            opcode::OPENDIR => self.open_directory(request),
            opcode::READDIR => self.read_directory(request, false),
            opcode::READDIRPLUS => self.read_directory(request, true),
            opcode::RELEASEDIR | opcode::DESTROY => {
                request.reply().done();
                Ok(())
            }
            opcode::STATFS => self.statistics(request),
            opcode::SETXATTR => self.set_xattr(request),
            opcode::GETXATTR => self.get_xattr(request),
            opcode::LISTXATTR => self.list_xattrs(request),
            opcode::REMOVEXATTR => self.remove_xattr(request),
            _ => Err(Errno::NOT_IMPLEMENTED),
        }
    }

    /// The file that a request is about.
    fn file(&self, request: &Request<'_>) -> Result<FileHandle, Errno> {
        self.node(request.header.node)
    }

    /// What is answered of a directory or special file that was removed while the kernel knows it,
    /// and else of a file that is gone.
    fn or_removed(
        &self,
        node: u64,
        answer: Result<Attributes, FsError>,
    ) -> Result<Attributes, FsError> {
        match answer {
            Err(FsError::Stale) => self.removed.attributes(node).ok_or(FsError::Stale),
            answer => answer,
        }
    }

    /// An open file is closed: it is let go of, and what was written through it is to be durable.
    fn closed(&self, Opened { hold, written_bytes }: Opened) {
        if written_bytes > 0 {
            self.unsettled.closed(hold.file, written_bytes);
        }
        self.service.release(&self.caller, calls::ReleaseHold { hold }, Box::new(drop));
    }

    fn node(&self, node: u64) -> Result<FileHandle, Errno> {
        self.nodes.handle(node).ok_or(Errno::STALE)
    }

    /// The requester as a caller without privilege: what it writes loses setuid and setgid.
    fn unprivileged(&self, request: &Request<'_>) -> Caller {
        let uid = if request.header.uid == 0 { UNPRIVILEGED } else { request.header.uid };
        Caller { uid, gid: request.header.gid, ..self.caller.clone() }
    }

    /// After a change by somebody without privilege, before its answer: of a setuid program the
    /// kernel must know that it is none any more.
    fn privilege_is_gone(&self, reply: &Reply, node: u64) {
        if self.privileged.contains(node) {
            self.privileged.forget(node);
            reply.attributes_changed(node);
        }
    }

    fn entry_out(&self, entry: &Entry) -> EntryOut {
        let node = self.nodes.remember(entry.handle);
        self.privileged.told(node, &entry.attributes);
        if is_special(entry) {
            self.has_special.store(true, Ordering::Relaxed);
        }
        let ino = visible_inode(entry.handle);
        let generation = entry.handle.generation.get();
        convert::entry(node, ino, generation, &entry.attributes, self.valid)
    }

    /// Whether removing a name may remove a file that somebody uses and the service does not know
    /// to be in use.
    fn may_lose_special(&self) -> bool {
        self.has_special.load(Ordering::Relaxed)
    }

    /// Answers with a file; if nobody hears it, the kernel has not counted a lookup.
    fn answer_entry(&self, reply: Reply, entry: &Entry) {
        let out = self.entry_out(entry);
        if !reply.structure(&out) {
            self.nodes.forget(out.node, 1);
        }
    }

    /// A callback that answers with a file.
    fn entry_done(self: &Arc<Self>, reply: Reply) -> Done<Entry> {
        let server = Arc::clone(self);
        Box::new(move |answer| match answer {
            Ok(entry) => server.answer_entry(reply, &entry),
            Err(error) => reply.error(error),
        })
    }

    /// The attributes of a file, for an answer about its node.
    fn attr_out(&self, (node, file): (u64, FileHandle), attributes: &Attributes) -> AttrOut {
        self.privileged.told(node, attributes);
        AttrOut {
            attr_valid: self.valid.seconds,
            attr_valid_nanoseconds: self.valid.nanoseconds,
            padding: 0,
            attr: convert::attr(visible_inode(file), attributes),
        }
    }
}

impl Drop for Server {
    /// The last event loop has ended: lets go of what the kernel did not close.
    fn drop(&mut self) {
        if let Some(locks) = &self.locks {
            locks.give_all_back();
        }
        self.opens.drain().into_iter().for_each(|opened| self.closed(opened));
        self.unsettled.end();
    }
}

/// A callback that answers success without content.
fn empty_done<T: 'static>(reply: Reply) -> Done<T> {
    Box::new(move |answer| match answer {
        Ok(_) => reply.done(),
        Err(error) => reply.error(error),
    })
}
