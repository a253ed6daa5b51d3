//! Reading directories.
//!
//! Cookies are the service's and stay good while the directory changes, so an open directory
//! needs no state here.

use super::{Handled, Server};
use crate::abi::{DirEntry, EntryOut, OpenOut, ReadIn};
use crate::convert::{DirectoryBuffer, kind_number};
use crate::node::visible_inode;
use crate::reply::Reply;
use crate::request::Request;
use file_service::{DirectoryEntry, DirectoryPage, Done, FileHandle, FsError, calls};
use std::sync::Arc;

impl Server {
    pub(super) fn open_directory(&self, request: &Request<'_>) -> Handled {
        self.file(request)?;
        request.reply().structure(&OpenOut::default());
        Ok(())
    }

    pub(super) fn read_directory(
        self: &Arc<Self>,
        request: &mut Request<'_>,
        plus: bool,
    ) -> Handled {
        let directory = self.file(request)?;
        let arguments: ReadIn = request.take()?;
        let size = arguments.size.min(self.service.limits().transfer_bytes_max);
        let entries_max = DirectoryBuffer::entries_max(size, plus);
        let (server, reply, node) = (Arc::clone(self), request.reply(), request.header.node);
        let done: Done<DirectoryPage> = Box::new(move |answer| match answer {
            Err(FsError::Stale) if server.removed.attributes(node).is_some() => reply.bytes(&[]),
            Ok(page) => server.answer_page(reply, directory, &page, size, plus),
            Err(error) => reply.error(error),
        });
        let offset = arguments.offset;
        self.service.read_directory(
            &self.caller,
            calls::ReadDirectory { directory, cookie: offset, entries_max, with_attributes: plus },
            done,
        );
        Ok(())
    }

    fn answer_page(
        &self,
        reply: Reply,
        directory: FileHandle,
        page: &DirectoryPage,
        size: u32,
        plus: bool,
    ) {
        let mut buffer = DirectoryBuffer::new(size);
        for entry in &page.entries {
            if !buffer.has_room(entry.name.len(), plus) {
                break;
            }
            let Ok(name_length) = u32::try_from(entry.name.len()) else { break };
            let out = plus.then(|| self.entry_of(entry));
            let ino = match &out {
                Some(out) if out.attr.ino != 0 => out.attr.ino,
                _ => visible_inode(FileHandle { inode: entry.inode, ..directory }),
            };
            let kind = kind_number(entry.kind);
            let record = DirEntry { ino, offset: entry.cookie, name_length, kind };
            buffer.push(out.as_ref(), record, &entry.name);
        }
        reply.bytes(buffer.bytes());
    }

    /// What READDIRPLUS says of an entry: its file, which counts as a lookup; nothing (node 0) for
    /// `.` and `..`, which the kernel knows, and for files that the service could not look into.
    fn entry_of(&self, entry: &DirectoryEntry) -> EntryOut {
        match &entry.entry {
            Some(file) if entry.name != b"." && entry.name != b".." => self.entry_out(file),
            _ => EntryOut::default(),
        }
    }
}
