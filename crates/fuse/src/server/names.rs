//! LOOKUP, FORGET and what makes, moves and removes names.
//!
//! A new file belongs to the requester: its user is set by name, its group is the caller's unless
//! the directory has setgid (the service's rule).

use super::{Handled, Server, empty_done, is_special};
use crate::abi::{
    BatchForgetIn, ForgetIn, ForgetOne, LinkIn, MakeDirectoryIn, MakeNodeIn, Rename2In, RenameIn,
    opcode,
};
use crate::convert;
use crate::errno::Errno;
use crate::reply::Reply;
use crate::request::Request;
use file_service::{
    Caller, CreateMode, Done, Entry, FileHandle, FileKind, FsError, NewNode, NodeChange,
    RenameFlags, SetAttributes, calls,
};
use std::sync::Arc;

const PERMISSION_BITS: u32 = 0o7777;

impl Server {
    pub(super) fn lookup(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let name = request.name()?;
        let reply = request.reply();
        if name == b"." {
            // An exported mount (NFS, name_to_handle_at) finds any file by its own id so.
            let done = self.entry_done(reply);
            let answer: Done<_> = Box::new(move |answer| {
                done(answer.map(|attributes| Entry { handle: directory, attributes }));
            });
            self.service.attributes(&self.caller, calls::GetAttributes { file: directory }, answer);
            return Ok(());
        }
        let server = Arc::clone(self);
        let done: Done<Entry> = Box::new(move |answer| match answer {
            Ok(entry) => server.answer_entry(reply, &entry),
            Err(FsError::NotFound) if server.valid != convert::Validity::default() => {
                reply.structure(&convert::negative_entry(server.valid));
            }
            Err(error) => reply.error(error),
        });
        self.service.lookup(&self.caller, calls::Lookup { directory, name: name.to_vec() }, done);
        Ok(())
    }

    /// FORGET has no answer; what does not parse is passed over.
    pub(super) fn forget(&self, request: &mut Request<'_>) {
        if request.header.opcode == opcode::FORGET {
            if let Ok(forget) = request.take::<ForgetIn>() {
                self.forget_node(request.header.node, forget.lookups);
            }
        } else if let Ok(batch) = request.take::<BatchForgetIn>() {
            for _ in 0..batch.count {
                let Ok(one) = request.take::<ForgetOne>() else { return };
                self.forget_node(one.node, one.lookups);
            }
        }
    }

    fn forget_node(&self, node: u64, lookups: u64) {
        self.nodes.forget(node, lookups);
        self.removed.forget(node);
        self.privileged.forget(node);
    }

    /// The caller and attributes that, with a mode and a umask, make a file the requester's own.
    pub(super) fn ownership(
        &self,
        request: &Request<'_>,
        (mode, umask): (u32, u32),
    ) -> (Caller, SetAttributes) {
        let caller = Caller { gid: request.header.gid, umask, ..self.caller.clone() };
        let set = SetAttributes {
            mode: Some(mode & PERMISSION_BITS),
            uid: Some(request.header.uid),
            ..SetAttributes::default()
        };
        (caller, set)
    }

    fn made_done(self: &Arc<Self>, request: &Request<'_>) -> Done<(Entry, NodeChange)> {
        let done = self.entry_done(request.reply());
        Box::new(move |answer| done(answer.map(|(entry, _)| entry)))
    }

    fn make(
        self: &Arc<Self>,
        request: &mut Request<'_>,
        mode: (u32, u32),
        node: NewNode,
    ) -> Handled {
        let directory = self.file(request)?;
        let name = request.name()?;
        let (caller, set) = self.ownership(request, mode);
        self.service.make_node(
            &caller,
            calls::MakeNode { directory, name: name.to_vec(), node, set },
            self.made_done(request),
        );
        Ok(())
    }

    pub(super) fn make_directory(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let arguments: MakeDirectoryIn = request.take()?;
        self.make(request, (arguments.mode, arguments.umask), NewNode::Directory)
    }

    pub(super) fn make_node(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let arguments: MakeNodeIn = request.take()?;
        let node = convert::new_node(arguments.mode, arguments.device);
        if let Some(node) = node.map_err(|()| Errno::INVALID)? {
            return self.make(request, (arguments.mode, arguments.umask), node);
        }
        let directory = self.file(request)?;
        let name = request.name()?;
        let (caller, set) = self.ownership(request, (arguments.mode, arguments.umask));
        let done = self.made_done(request);
        self.service.create(
            &caller,
            calls::Create { directory, name: name.to_vec(), mode: CreateMode::Guarded, set },
            done,
        );
        Ok(())
    }

    pub(super) fn symlink(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let name = request.name()?;
        let text = request.name()?.to_vec();
        let (caller, set) = self.ownership(request, (PERMISSION_BITS, 0));
        let node = NewNode::Symlink(text);
        self.service.make_node(
            &caller,
            calls::MakeNode { directory, name: name.to_vec(), node, set },
            self.made_done(request),
        );
        Ok(())
    }

    pub(super) fn link(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let arguments: LinkIn = request.take()?;
        let file = self.node(arguments.old_node)?;
        let directory = self.file(request)?;
        let name = request.name()?;
        let done = self.entry_done(request.reply());
        let done: Done<_> = Box::new(move |answer| {
            done(answer.map(|(attributes, _)| Entry { handle: file, attributes }));
        });
        self.service.link(&self.caller, calls::Link { file, directory, name: name.to_vec() }, done);
        Ok(())
    }

    pub(super) fn remove(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let name = request.name()?.to_vec();
        if !self.may_lose_special() {
            let call = calls::Remove { directory, name };
            self.service.remove(&self.caller, call, empty_done(request.reply()));
            return Ok(());
        }
        let (server, reply) = (Arc::clone(self), request.reply());
        let call = calls::Remove { directory, name: name.clone() };
        self.with_victim_at((directory, name), move |victim| {
            let done = server.removal_done(victim, reply);
            server.service.remove(&server.caller, call, done);
        });
        Ok(())
    }

    pub(super) fn remove_directory(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let directory = self.file(request)?;
        let name = request.name()?.to_vec();
        let (server, reply) = (Arc::clone(self), request.reply());
        let call = calls::RemoveDirectory { directory, name: name.clone() };
        self.with_victim_at((directory, name), move |victim| {
            let done = server.removal_done(victim, reply);
            server.service.remove_directory(&server.caller, call, done);
        });
        Ok(())
    }

    /// A callback that notes that a name's file is gone, and answers.
    fn removal_done(self: &Arc<Self>, victim: Option<Entry>, reply: Reply) -> Done<NodeChange> {
        let server = Arc::clone(self);
        Box::new(move |answer| match answer {
            Ok(change) => {
                server.removed_by(victim, &change);
                reply.done();
            }
            Err(error) => reply.error(error),
        })
    }

    /// Goes on with the directory or special file that a name leads to, if it does.
    fn with_victim_at(
        &self,
        (directory, name): (FileHandle, Vec<u8>),
        then: impl FnOnce(Option<Entry>) + Send + 'static,
    ) {
        let is_kept =
            |found: &Entry| found.attributes.kind == FileKind::Directory || is_special(found);
        let done: Done<Entry> = Box::new(move |found| then(found.ok().filter(is_kept)));
        self.service.lookup(&self.caller, calls::Lookup { directory, name }, done);
    }

    /// A name that led to `victim` is gone. If another client had given it to another file
    /// meanwhile, or it has other names, the service knows `victim`, and it is not taken for
    /// removed.
    fn removed_by(&self, victim: Option<Entry>, change: &NodeChange) {
        if let Some(victim) = victim
            && let Some(node) = self.nodes.known(victim.handle)
        {
            self.removed.add(node, &victim, change);
        }
    }

    pub(super) fn rename(self: &Arc<Self>, request: &mut Request<'_>, with_flags: bool) -> Handled {
        let (to, flags) = if with_flags {
            let arguments: Rename2In = request.take()?;
            let flags = convert::rename_flags(arguments.flags).ok_or(Errno::INVALID)?;
            (arguments.new_directory, flags)
        } else {
            (request.take::<RenameIn>()?.new_directory, RenameFlags::default())
        };
        let (from, to) = (self.file(request)?, self.node(to)?);
        let (from, to) = ((from, request.name()?), (to, request.name()?));
        let call = calls::Rename::between(from, to, flags);
        if flags != RenameFlags::default() {
            self.service.rename(&self.caller, call, empty_done(request.reply()));
            return Ok(());
        }
        let (server, reply) = (Arc::clone(self), request.reply());
        self.with_victim_at((to.0, to.1.to_vec()), move |victim| {
            let same = Arc::clone(&server);
            let done: Done<(NodeChange, NodeChange)> = Box::new(move |answer| match answer {
                Ok((_, change)) => {
                    same.removed_by(victim, &change);
                    reply.done();
                }
                Err(error) => reply.error(error),
            });
            server.service.rename(&server.caller, call, done);
        });
        Ok(())
    }
}
