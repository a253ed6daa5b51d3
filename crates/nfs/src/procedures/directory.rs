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

use crate::export::Sealer;
use crate::request::{Answer, Refusal, Request, Wanted};
use crate::wire::{self, SealedBytes};
use file_service::{DirectoryEntry, DirectoryPage, FileHandle, FsError, Limits, calls};
use onc_rpc::{Reader, Writer, XdrError, xdr};
use std::sync::Arc;

const VERIFIER: u64 = 0;
/// Bytes of the status before the results.
const STATUS_SIZE: usize = 4;
/// Longest list in one answer, however much room the client gives: 3,000 names. The backend's page
/// of them, which there is for a moment, takes several times as much.
const LIST_BYTES_MAX: u32 = 128 << 10;
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

    /// How many of the entries fit, and the bytes of the results with them. None if no entry fits
    /// though there are some.
    fn fitting(&self, entries: &[DirectoryEntry]) -> Option<(usize, usize)> {
        let (mut count, mut bytes, mut information_bytes) = (0, FRAME_SIZE, 0);
        for entry in entries {
            let (size, information) = self.entry_sizes(entry);
            information_bytes += information;
            let fits = count == 0 || information_bytes <= self.information_bytes;
            if !fits || bytes + size > self.bytes {
                break;
            }
            bytes += size;
            count += 1;
        }
        let is_of_use = FRAME_SIZE <= self.bytes && (count > 0 || entries.is_empty());
        is_of_use.then_some((count, bytes))
    }

    /// Writes the results after the status, with so many of the entries.
    fn write(
        writer: &mut Writer,
        (page, count): (&DirectoryPage, usize),
        with_attributes: bool,
        mut seal: impl FnMut(&FileHandle) -> Option<SealedBytes>,
    ) {
        wire::post_attributes(writer, Some(&page.attributes));
        writer.u64(VERIFIER);
        for entry in page.entries.iter().take(count) {
            writer.bool(true);
            writer.u64(entry.inode.get());
            writer.opaque(&entry.name);
            writer.u64(entry.cookie);
            if with_attributes {
                let found = entry.entry.as_ref();
                wire::post_attributes(writer, found.map(|found| &found.attributes));
                wire::post_handle(writer, found.and_then(|found| seal(&found.handle)));
            }
        }
        writer.bool(false);
        writer.bool(page.end && count == page.entries.len());
    }
}

/// What the client gives room for, of the arguments behind handle, cookie and verifier.
fn read_room(
    limits: &Limits,
    arguments: &mut Reader<'_>,
    with_attributes: bool,
) -> Result<Room, XdrError> {
    let limit = limits.transfer_bytes_max.min(LIST_BYTES_MAX);
    let first = arguments.u32()?.min(limit) as usize;
    let bytes = if with_attributes { arguments.u32()?.min(limit) as usize } else { first };
    Ok(Room { bytes, information_bytes: first, with_attributes })
}

/// At most what the list takes, of the arguments.
pub(super) fn reply_bytes(
    limits: &Limits,
    mut arguments: Reader<'_>,
    with_attributes: bool,
) -> Result<usize, XdrError> {
    arguments.opaque(wire::HANDLE_BYTES_MAX)?;
    arguments.u64()?;
    arguments.u64()?;
    Ok(read_room(limits, &mut arguments, with_attributes)?.bytes)
}

/// READDIR.
pub(super) fn read(request: &mut Request<'_>) -> Result<(), Refusal> {
    list(request, false)
}

/// READDIRPLUS.
pub(super) fn read_with_attributes(request: &mut Request<'_>) -> Result<(), Refusal> {
    list(request, true)
}

fn list(request: &mut Request<'_>, with_attributes: bool) -> Result<(), Refusal> {
    let target = request.target(Wanted::Look)?;
    let cookie = request.arguments.u64()?;
    let verifier = request.arguments.u64()?;
    let room = read_room(&request.context.limits, &mut request.arguments, with_attributes)?;
    if cookie != 0 && verifier != VERIFIER {
        return Err(FsError::BadCookie.into());
    }
    let answer: Answer = request.take_answer();
    let context = Arc::clone(request.context);
    let done = move |result: Result<DirectoryPage, FsError>| match result {
        Err(error) => answer.fail(error),
        Ok(page) => {
            let Some((count, bytes)) = room.fitting(&page.entries) else {
                return answer.status(wire::TOO_SMALL);
            };
            // All that it will take, and no more: this is what the client's account has paid.
            let mut writer = answer.begin(STATUS_SIZE + bytes);
            let mut sealer = Sealer::new(&*context.policy);
            Room::write(&mut writer, (&page, count), with_attributes, |file| sealer.seal(file));
            answer.send(writer, None);
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

#[cfg(test)]
mod tests;
