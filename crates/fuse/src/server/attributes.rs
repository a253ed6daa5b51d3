//! GETATTR, SETATTR, STATX, READLINK, STATFS.

use super::{Handled, Server};
use crate::abi::{ROOT_NODE, SetAttrIn, StatxOut, set_attr};
use crate::convert;
use crate::node::visible_inode;
use crate::request::Request;
use file_service::{Attributes, Done, FileHandle, NodeChange, SetAttributes, SetTime, calls};
use std::sync::Arc;

impl Server {
    pub(super) fn get_attributes(self: &Arc<Self>, request: &Request<'_>) -> Handled {
        let file = self.file(request)?;
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<_> = Box::new(move |answer| match server.or_removed(node, answer) {
            Ok(attributes) => {
                reply.structure(&server.attr_out((node, file), &attributes));
            }
            Err(error) => reply.error(error),
        });
        self.service.attributes(&self.caller, calls::GetAttributes { file }, done);
        Ok(())
    }

    /// As GETATTR, with the time of creation.
    pub(super) fn statx(self: &Arc<Self>, request: &Request<'_>) -> Handled {
        let file = self.file(request)?;
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<_> = Box::new(move |answer| match server.or_removed(node, answer) {
            Ok(attributes) => {
                server.privileged.told(node, &attributes);
                reply.structure(&StatxOut {
                    attr_valid: server.valid.seconds,
                    attr_valid_nanoseconds: server.valid.nanoseconds,
                    flags: 0,
                    spare: [0; 2],
                    stat: convert::statx(visible_inode(file), &attributes),
                });
            }
            Err(error) => reply.error(error),
        });
        self.service.attributes(&self.caller, calls::GetAttributes { file }, done);
        Ok(())
    }

    pub(super) fn set_attributes(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: SetAttrIn = request.take()?;
        let mut set = convert::set_attributes(&arguments);
        let kills = arguments.valid & set_attr::KILL_PRIVILEGE != 0 && set.size.is_some();
        let caller = if kills { self.unprivileged(request) } else { self.caller.clone() };
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let mut done: Done<NodeChange> = Box::new(move |answer| match answer {
            Ok(change) => {
                reply.structure(&server.attr_out((node, file), &change.after));
            }
            Err(error) => reply.error(error),
        });
        // The kernel's own time of a truncation, where it writes back: whoever may truncate need
        // not be the owner, who alone may set a time.
        if let Some(time) = set.mtime.filter(|_| kills) {
            set.mtime = None;
            done = self.then_set_mtime((file, time), done);
        }
        self.service.set_attributes(&caller, calls::SetFileAttributes { file, set }, done);
        Ok(())
    }

    /// Sets a file's time after a change that succeeds, as root, before the answer.
    fn then_set_mtime(
        self: &Arc<Self>,
        (file, time): (FileHandle, SetTime),
        done: Done<NodeChange>,
    ) -> Done<NodeChange> {
        let server = Arc::clone(self);
        Box::new(move |answer| {
            if answer.is_err() {
                return done(answer);
            }
            let set = SetAttributes { mtime: Some(time), ..SetAttributes::default() };
            let call = calls::SetFileAttributes { file, set };
            server.service.set_attributes(&server.caller, call, done);
        })
    }

    pub(super) fn read_link(&self, request: &Request<'_>) -> Handled {
        let file = self.file(request)?;
        let reply = request.reply();
        let done: Done<(Vec<u8>, Attributes)> = Box::new(move |answer| match answer {
            Ok((text, _)) => reply.bytes(&text),
            Err(error) => reply.error(error),
        });
        self.service.read_link(&self.caller, calls::ReadLink { file }, done);
        Ok(())
    }

    pub(super) fn statistics(&self, request: &Request<'_>) -> Handled {
        // What was removed was on the same file system as the root.
        let is_removed = self.removed.attributes(request.header.node).is_some();
        let file = if is_removed { self.node(ROOT_NODE)? } else { self.file(request)? };
        let name_length = self.service.limits().name_bytes_max;
        let reply = request.reply();
        let done: Done<_> = Box::new(move |answer| match answer {
            Ok(statistics) => {
                reply.structure(&convert::statistics(&statistics, name_length));
            }
            Err(error) => reply.error(error),
        });
        self.service.statistics(&self.caller, calls::Statistics { file }, done);
        Ok(())
    }
}
