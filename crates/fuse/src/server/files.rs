//! Open files: OPEN, CREATE, TMPFILE, READ, WRITE, RELEASE, FSYNC, SYNCFS, FALLOCATE, LSEEK.
//!
//! Cache policy: writes go through to the service at once, unless the mount writes back (decision
//! 56): a write that is answered is in the service, where fsync finds it. Reads come from the page
//! cache, which the kernel drops when a file is opened and when it sees another mtime
//! (close-to-open, as NFS clients do it). Shared mappings work: their dirty pages are written like
//! any others. Files opened with `O_DIRECT` go past the page cache, and direct writes to one file
//! that do not extend it run in parallel.
//!
//! On a mount that writes back the kernel owns size and times of the files that it knows. So:
//! - a write goes to the offset that the kernel gives, also of a file opened with `O_APPEND`: the
//!   service's end of the file is not the end that the program sees;
//! - the kernel reads through files that are open for writing only, to fill pages;
//! - what is written comes through any descriptor of the file that is open for writing;
//! - the kernel's own `O_DIRECT` is used, which knows of dirty pages. With `FOPEN_DIRECT_IO` it
//!   would leave the file's times as they were, and take the service's end of the file, before
//!   which dirty pages may lie, for the end.

use super::{Handled, Server, empty_done};
use crate::abi::{
    AllocateIn, CreateIn, FOPEN_DIRECT_IO, FOPEN_PARALLEL_DIRECT_WRITES, O_ACCMODE, O_APPEND,
    O_DIRECT, O_DSYNC, O_EXCL, O_RDONLY, OpenIn, OpenOut, ROOT_NODE, ReadIn, ReleaseIn, SeekIn,
    SeekOut, WRITE_CACHE, WRITE_KILL_PRIVILEGE, WriteIn, WriteOut,
};
use crate::convert;
use crate::errno::Errno;
use crate::reply::Reply;
use crate::request::Request;
use file_service::{
    CreateMode, Done, Entry, FsError, Hold, NodeChange, ReadData, SeekTarget, Stability,
    WriteResult, calls,
};
use std::sync::Arc;

/// Whether a file is opened for writing.
const fn is_for_writing(flags: u32) -> bool {
    flags & O_ACCMODE != O_RDONLY
}

impl Server {
    /// What an open file is told to the kernel as, by its number ([`crate::opens`]).
    fn open_out(&self, flags: u32, number: u64) -> OpenOut {
        let direct = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
        let is_direct = flags & O_DIRECT != 0 && !self.writes_back();
        OpenOut { handle: number, open_flags: if is_direct { direct } else { 0 }, backing: 0 }
    }

    /// `O_TRUNC` is not part of it (the feature `ATOMIC_O_TRUNC` is not asked for): the kernel
    /// would send it before it looks whether the file is being executed, and refuse the open only
    /// after the program is gone. It truncates by a SETATTR of its own.
    pub(super) fn open(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: OpenIn = request.take()?;
        // Stores through a mapping are written when nobody hears of an error any more.
        if file.is_read_only() && is_for_writing(arguments.flags) {
            return Err(FsError::ReadOnly.into());
        }
        let (server, reply) = (Arc::clone(self), request.reply());
        let held: Done<Hold> = Box::new(move |held| match held {
            Ok(hold) => {
                let number = server.opens.add(hold, is_for_writing(arguments.flags));
                if !reply.structure(&server.open_out(arguments.flags, number)) {
                    // Nobody heard the answer, so no RELEASE will come.
                    server.let_go(number);
                }
            }
            Err(error) => reply.error(error),
        });
        self.service.hold(&self.caller, calls::HoldFile { file }, held);
        Ok(())
    }

    fn let_go(&self, number: u64) {
        if let Some(opened) = self.opens.remove(number) {
            self.closed(opened);
        }
    }

    /// The kernel sends CREATE for a name that it believes free. If it is not, and the program did
    /// not ask for `O_EXCL`, ESTALE makes the kernel look again and open what is there, with all
    /// its checks.
    pub(super) fn create(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let arguments: CreateIn = request.take()?;
        let name = request.name()?;
        let (caller, set) = self.ownership(request, (arguments.mode, arguments.umask));
        let (server, reply) = (Arc::clone(self), request.reply());
        let done: Done<(Entry, NodeChange)> = Box::new(move |made| match made {
            Ok((entry, _)) => server.hold_created(reply, entry, arguments.flags),
            Err(FsError::Exists) if arguments.flags & O_EXCL == 0 => reply.error(Errno::STALE),
            Err(error) => reply.error(error),
        });
        self.service.create(
            &caller,
            calls::Create { directory, name: name.to_vec(), mode: CreateMode::Guarded, set },
            done,
        );
        Ok(())
    }

    fn hold_created(self: &Arc<Self>, reply: Reply, entry: Entry, flags: u32) {
        let server = Arc::clone(self);
        let file = entry.handle;
        let held: Done<Hold> = Box::new(move |held| match held {
            Ok(hold) => server.opened(reply, (&entry, hold), flags),
            Err(error) => reply.error(error),
        });
        self.service.hold(&self.caller, calls::HoldFile { file }, held);
    }

    /// Answers with a file that was made and is held.
    fn opened(&self, reply: Reply, (entry, hold): (&Entry, Hold), flags: u32) {
        let number = self.opens.add(hold, is_for_writing(flags));
        let out = self.entry_out(entry);
        if !reply.structures(&out, &self.open_out(flags, number)) {
            self.nodes.forget(out.node, 1);
            self.let_go(number);
        }
    }

    /// `O_TMPFILE`. That a file opened with `O_EXCL` gets no name is the kernel's to see to.
    pub(super) fn create_unnamed(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let arguments: CreateIn = request.take()?;
        let (caller, set) = self.ownership(request, (arguments.mode, arguments.umask));
        let (server, reply) = (Arc::clone(self), request.reply());
        let done: Done<(Entry, Hold)> = Box::new(move |made| match made {
            Ok((entry, hold)) => server.opened(reply, (&entry, hold), arguments.flags),
            Err(error) => reply.error(error),
        });
        self.service.create_unnamed(&caller, calls::CreateUnnamed { directory, set }, done);
        Ok(())
    }

    pub(super) fn release(&self, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: ReleaseIn = request.take()?;
        self.release_locks(file, &arguments);
        self.let_go(arguments.handle);
        request.reply().done();
        Ok(())
    }

    pub(super) fn read(&self, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: ReadIn = request.take()?;
        let reply = request.reply();
        let done: Done<ReadData> = Box::new(move |answer| match answer {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        });
        self.service.read(
            &self.caller,
            calls::Read { file, offset: arguments.offset, count: arguments.size },
            done,
        );
        Ok(())
    }

    pub(super) fn write(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: WriteIn = request.take()?;
        let data = request.payload(arguments.size)?;
        let kills = arguments.write_flags & WRITE_KILL_PRIVILEGE != 0;
        let caller = if kills { self.unprivileged(request) } else { self.caller.clone() };
        // Of a file opened with O_DIRECT and O_SYNC no FSYNC follows the write.
        let synchronous = arguments.flags & O_DSYNC != 0;
        let stability = if synchronous { Stability::FileSync } else { Stability::Unstable };
        let (number, unstable) =
            (arguments.handle, if synchronous { 0 } else { u64::from(arguments.size) });
        self.opens.writes(number, unstable);
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<WriteResult> = Box::new(move |answer| {
            // Before the reply: an FSYNC may come right after it.
            server.opens.wrote(number, unstable);
            match answer {
                Ok(written) => {
                    if kills {
                        server.privilege_is_gone(&reply, node);
                    }
                    reply.structure(&WriteOut { size: written.count, padding: 0 });
                }
                Err(error) => reply.error(error),
            }
        });
        // The kernel takes the size that it knows for the end, and somebody else may have written
        // behind that: where the file ends is decided where all writers meet. The kernel asks for
        // the size after each write, and drops what it has of the file if that is another; a shared
        // mapping has the data at the kernel's place until then. One direct write may come as
        // several at a time, whose order is that of their offsets.
        let is_append = arguments.flags & (O_APPEND | O_DIRECT) == O_APPEND;
        let is_cached = arguments.write_flags & WRITE_CACHE != 0;
        let appends = is_append && !is_cached && !self.writes_back();
        if appends {
            self.service.append(&caller, calls::Append { file, stability, data }, done);
        } else {
            let offset = arguments.offset;
            self.service.write(&caller, calls::Write { file, offset, data, stability }, done);
        }
        Ok(())
    }

    /// FSYNCDIR. One that was removed has its removal made durable, with all that came before.
    pub(super) fn commit_directory(&self, request: &Request<'_>) -> Handled {
        let is_removed = self.removed.attributes(request.header.node).is_some();
        let file = if is_removed { self.node(ROOT_NODE)? } else { self.file(request)? };
        self.service.commit(&self.caller, calls::Commit::of(file), empty_done(request.reply()));
        Ok(())
    }

    /// SYNCFS, `sync` and `syncfs`: from the kernels that send it for this kind of mount.
    pub(super) fn sync(&self, request: &Request<'_>) -> Handled {
        let file = self.node(ROOT_NODE)?;
        self.service.sync(&self.caller, calls::SyncVolume { file }, empty_done(request.reply()));
        Ok(())
    }

    /// FSYNC. Of a file that was opened before its aggregate was away EIO: what was written and not
    /// synced may be lost, and its program would not know otherwise.
    pub(super) fn commit_file(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let number: u64 = request.take()?;
        let hold = self.opens.hold(number).ok_or(Errno::STALE)?;
        let call = calls::Commit { file, known_losses: Some(hold.losses) };
        let (server, reply, bytes) = (Arc::clone(self), request.reply(), self.opens.syncs(number));
        let done: Done<_> = Box::new(move |answer| match answer {
            Ok(_) => {
                server.opens.synced(number, bytes);
                reply.done();
            }
            Err(error) => reply.error(error),
        });
        self.service.commit(&self.caller, call, done);
        Ok(())
    }

    pub(super) fn allocate(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: AllocateIn = request.take()?;
        let allocation = convert::allocation(arguments.mode).ok_or(Errno::NOT_SUPPORTED)?;
        // The kernel does not say who keeps setuid here; it is kept by root only.
        let kills = request.header.uid != 0;
        let caller = if kills { self.unprivileged(request) } else { self.caller.clone() };
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<NodeChange> = Box::new(move |answer| match answer {
            Ok(_) => {
                if kills {
                    server.privilege_is_gone(&reply, node);
                }
                reply.done();
            }
            Err(error) => reply.error(error),
        });
        let (offset, length) = (arguments.offset, arguments.length);
        self.service.allocate(&caller, calls::Allocate { file, allocation, offset, length }, done);
        Ok(())
    }

    /// Where data or a hole is. The kernel does not write back before it asks, and what is only in
    /// its page cache is data: without an answer it takes all up to the end of the file for data.
    pub(super) fn seek(&self, request: &mut Request<'_>) -> Handled {
        const SEEK_DATA: u32 = 3;
        const SEEK_HOLE: u32 = 4;
        if self.writes_back() {
            return Err(Errno::NOT_IMPLEMENTED);
        }
        let file = self.file(request)?;
        let arguments: SeekIn = request.take()?;
        let target = match arguments.whence {
            SEEK_DATA => SeekTarget::Data,
            SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Errno::INVALID),
        };
        let reply = request.reply();
        let done: Done<u64> = Box::new(move |answer| match answer {
            Ok(offset) => {
                reply.structure(&SeekOut { offset });
            }
            Err(error) => reply.error(error),
        });
        self.service.seek(
            &self.caller,
            calls::Seek { file, offset: arguments.offset, target },
            done,
        );
        Ok(())
    }
}
