//! Extended attributes. The kernel has checked who may (`xattr(7)`); what a listing shows is up to
//! the requester.

use super::{Handled, Server, empty_done};
use crate::abi::{GetXattrIn, GetXattrOut, SETXATTR_ACL_KILL_SGID, SetXattrExtension, SetXattrIn};
use crate::convert;
use crate::errno::Errno;
use crate::reply::Reply;
use crate::request::Request;
use file_service::{Caller, Done, FsError, calls};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Answers with a value, or with its length if that is all that was asked (room for 0 bytes).
fn answer_sized(reply: Reply, value: &[u8], room: u32) {
    match u32::try_from(value.len()) {
        Ok(size) if room == 0 => {
            reply.structure(&GetXattrOut { size, padding: 0 });
        }
        Ok(size) if size <= room => reply.bytes(value),
        _ => reply.error(Errno::RANGE),
    }
}

impl Server {
    pub(super) fn set_xattr(&self, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: SetXattrIn = request.take()?;
        let mode = convert::xattr_mode(arguments.flags).ok_or(Errno::INVALID)?;
        // Kernels before 5.13 do not say it: there only root keeps setgid.
        let drops_setgid = match self.sets_xattrs_extended.load(Ordering::Relaxed) {
            true => request.take::<SetXattrExtension>()?.flags & SETXATTR_ACL_KILL_SGID != 0,
            false => request.header.uid != 0,
        };
        let name = request.name()?;
        let value = request.bytes(arguments.size)?;
        self.service.set_xattr(
            &self.caller,
            calls::SetXattr {
                file,
                name: name.to_vec(),
                value: value.to_vec(),
                mode,
                drops_setgid,
            },
            empty_done(request.reply()),
        );
        Ok(())
    }

    pub(super) fn get_xattr(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: GetXattrIn = request.take()?;
        let name = request.name()?;
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<Vec<u8>> = Box::new(move |answer| match answer {
            Ok(value) => answer_sized(reply, &value, arguments.size),
            // The kernel asks for the list of a directory before it lets anybody look into it.
            Err(FsError::Stale) if server.removed.attributes(node).is_some() => {
                reply.error(FsError::NoAttribute);
            }
            // For "try again" the kernel goes on as if there were no list.
            Err(error) if Errno::from(error) == Errno::AGAIN => reply.error(Errno::IO),
            Err(error) => reply.error(error),
        });
        self.service.get_xattr(&self.caller, calls::GetXattr { file, name: name.to_vec() }, done);
        Ok(())
    }

    pub(super) fn list_xattrs(self: &Arc<Self>, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let arguments: GetXattrIn = request.take()?;
        let caller = Caller { uid: request.header.uid, ..self.caller.clone() };
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<Vec<Vec<u8>>> = Box::new(move |answer| match answer {
            Err(FsError::Stale) if server.removed.attributes(node).is_some() => {
                answer_sized(reply, &[], arguments.size);
            }
            Ok(names) => answer_sized(reply, &convert::joined_names(&names), arguments.size),
            Err(error) => reply.error(error),
        });
        self.service.list_xattrs(&caller, calls::ListXattrs { file }, done);
        Ok(())
    }

    pub(super) fn remove_xattr(&self, request: &mut Request<'_>) -> Handled {
        let file = self.file(request)?;
        let name = request.name()?;
        self.service.remove_xattr(
            &self.caller,
            calls::RemoveXattr { file, name: name.to_vec() },
            empty_done(request.reply()),
        );
        Ok(())
    }
}
