//! READDIR and READDIRPLUS, within the bytes that the client gives (RFC 1813 sections 3.3.16 and
//! 3.3.17).
//!
//! Invariants: the results after the status never exceed `count` (`maxcount`); what `dircount`
//! limits (file ids, names and cookies) never exceeds it, except for a first entry, without which
//! the client would not get on. Cookies are the backend's and stay good for ever, so the cookie
//! verifier is always zero.
//!
//! Fails: `NFS3ERR_TOOSMALL` when not even one entry fits; `NFS3ERR_BAD_COOKIE` for a verifier
//! that is not ours.

use crate::request::{Answer, Refusal, Request, Wanted};
use crate::wire::{self, SealedBytes};
use file_service::{DirectoryEntry, DirectoryPage, FileHandle, FsError, calls};
use onc_rpc::{Reader, Writer, xdr};
use std::sync::Arc;

const VERIFIER: u64 = 0;
/// Results without entries: attributes, verifier, end of the list, end of the directory.
const FRAME_SIZE: usize = wire::POST_ATTRIBUTES_SIZE + 8 + 4 + 4;
/// An entry with a name of the usual length (16), for guessing how many to ask the backend for.
const ENTRY_SIZE_USUAL: usize = 4 + 8 + 4 + 16 + 8;
/// What `dircount` counts of it.
const INFORMATION_SIZE_USUAL: usize = ENTRY_SIZE_USUAL - 4;
const EXTRA_SIZE: usize = wire::POST_ATTRIBUTES_SIZE + wire::POST_HANDLE_SIZE;

/// What the client gives room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Room {
    /// Bytes of the results after the status.
    bytes: usize,
    /// Bytes of file ids, names and cookies.
    information_bytes: usize,
    with_attributes: bool,
}

impl Room {
    /// How many entries to ask for: as many as fit if their names are of the usual length. More
    /// would be read in vain, fewer make a shorter answer.
    fn entries_usual(&self) -> u32 {
        let extra = if self.with_attributes { EXTRA_SIZE } else { 0 };
        let fit = self.bytes.saturating_sub(FRAME_SIZE) / (ENTRY_SIZE_USUAL + extra);
        let fit = fit.min(self.information_bytes / INFORMATION_SIZE_USUAL);
        u32::try_from(fit).unwrap_or(u32::MAX).max(1)
    }

    /// Bytes of an entry's results, and what `dircount` counts of them.
    fn entry_sizes(&self, entry: &DirectoryEntry) -> (usize, usize) {
        let information = 8 + 4 + xdr::padded(entry.name.len()) + 8;
        let extra = match &entry.entry {
            _ if !self.with_attributes => 0,
            Some(_) => EXTRA_SIZE,
            None => 8,
        };
        (4 + information + extra, information)
    }

    /// How many of the entries fit.
    fn fitting(&self, entries: &[DirectoryEntry]) -> usize {
        let (mut bytes, mut information_bytes) = (FRAME_SIZE, 0);
        let fits = |entry: &&DirectoryEntry| {
            let (size, information) = self.entry_sizes(entry);
            let first = information_bytes == 0;
            bytes += size;
            information_bytes += information;
            bytes <= self.bytes && (first || information_bytes <= self.information_bytes)
        };
        entries.iter().take_while(fits).count()
    }

    /// Writes the results after the status; false, and nothing of use, if no entry fits though
    /// there are some.
    fn write(
        &self,
        writer: &mut Writer,
        page: &DirectoryPage,
        seal: impl Fn(&FileHandle) -> Option<SealedBytes>,
    ) -> bool {
        let count = self.fitting(&page.entries);
        if FRAME_SIZE > self.bytes || (count == 0 && !page.entries.is_empty()) {
            return false;
        }
        wire::post_attributes(writer, Some(&page.attributes));
        writer.u64(VERIFIER);
        for entry in page.entries.iter().take(count) {
            writer.bool(true);
            writer.u64(entry.inode.get());
            writer.opaque(&entry.name);
            writer.u64(entry.cookie);
            if self.with_attributes {
                let found = entry.entry.as_ref();
                wire::post_attributes(writer, found.map(|found| &found.attributes));
                wire::post_handle(writer, found.and_then(|found| seal(&found.handle)));
            }
        }
        writer.bool(false);
        writer.bool(page.end && count == page.entries.len());
        true
    }
}

/// READDIR.
pub(super) fn read(request: &mut Request<'_>) -> Result<(), Refusal> {
    list(request, |arguments, limit| {
        let bytes = arguments.u32()?.min(limit) as usize;
        Ok(Room { bytes, information_bytes: bytes, with_attributes: false })
    })
}

/// READDIRPLUS.
pub(super) fn read_with_attributes(request: &mut Request<'_>) -> Result<(), Refusal> {
    list(request, |arguments, limit| {
        let information_bytes = arguments.u32()?.min(limit) as usize;
        let bytes = arguments.u32()?.min(limit) as usize;
        Ok(Room { bytes, information_bytes, with_attributes: true })
    })
}

fn list(
    request: &mut Request<'_>,
    read_room: impl FnOnce(&mut Reader<'_>, u32) -> Result<Room, Refusal>,
) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let cookie = request.arguments.u64()?;
    let verifier = request.arguments.u64()?;
    let room = read_room(&mut request.arguments, request.context.limits.transfer_bytes_max)?;
    if cookie != 0 && verifier != VERIFIER {
        return Err(FsError::BadCookie.into());
    }
    let answer: Answer = request.take_answer();
    let context = Arc::clone(request.context);
    let done = move |result: Result<DirectoryPage, FsError>| match result {
        Err(error) => answer.fail(error),
        Ok(page) => {
            let mut writer = answer.begin(room.bytes.min(ANSWER_CAPACITY_MAX));
            if room.write(&mut writer, &page, |file| context.seal(file)) {
                answer.send(writer, None);
            } else {
                answer.status(wire::TOO_SMALL);
            }
        }
    };
    request.service().read_directory(
        &target.caller,
        calls::ReadDirectory {
            directory: target.file,
            cookie,
            entries_max: room.entries_usual(),
            with_attributes: room.with_attributes,
        },
        Box::new(done),
    );
    Ok(())
}

/// Capacity reserved for an answer at once: what most clients give room for.
const ANSWER_CAPACITY_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
