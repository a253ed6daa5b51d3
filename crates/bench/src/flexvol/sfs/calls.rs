//! The operations of the mix as calls, and what is checked of each answer.
//!
//! | operation | call |
//! | --- | --- |
//! | READ, WRITE | one transfer: the whole file, or 32 KiB of a larger one at a multiple of that |
//! | LOOKUP | the name of a file in its directory |
//! | SETATTR | the mode of a file |
//! | READDIR, READDIRPLUS | a directory from its beginning, up to 32 KiB |
//! | CREATE | a new name; the next WRITE goes to this file, up to 32 KiB of it |
//! | REMOVE | the oldest file that was created and written |
//!
//! WRITEs are FILE_SYNC: the mix has no COMMIT. SPEC SFS reads and writes up to the whole file
//! with several transfers, and counts them once.
//!
//! Invariants: a file is not removed while anything else is asked of it. Fails: with an answer that
//! is too short, a READ or a WRITE of another length than asked, a WRITE that is not durable, a
//! directory or a link without anything in it.

use super::files::{DataSet, Passing, at, file_name, passing_name, written_bytes};
use super::mix::{MIX, Operation, TRANSFER_BYTES_MAX, drawn};
use crate::nfs::wire::{
    ATTRIBUTES_BYTES, Call, DirectoryPlace, Handle, Malformed, Procedure, Reply, Stability,
};
use crate::numbers::Numbers;

/// All rights that ACCESS asks about.
const ALL_RIGHTS: u32 = 0x3f;
/// Bytes of FSSTAT behind the attributes.
const STATUS_BYTES: usize = 6 * 8 + 4;

/// What was asked, as far as the answer is to be checked by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// An operation whose answer needs nothing to be checked by.
    Plain(Operation),
    /// So many bytes.
    Read(u32),
    /// So many bytes, perhaps to a file that was created.
    Write(u32, Option<Passing>),
    /// A file with this number in a directory.
    Create(Handle, u64),
}

impl Asked {
    pub const fn operation(self) -> Operation {
        match self {
            Self::Plain(operation) => operation,
            Self::Read(_) => Operation::Read,
            Self::Write(..) => Operation::Write,
            Self::Create(..) => Operation::Create,
        }
    }
}

/// Draws an operation and asks for it.
pub(super) fn ask(set: &mut DataSet, numbers: &mut Numbers, call: Call<'_>) -> Asked {
    let operation = drawn(&MIX, numbers);
    match operation {
        Operation::Read | Operation::Write => transfer(set, operation, numbers, call),
        Operation::Create => create(set, call),
        Operation::Remove => match set.written.pop_front() {
            Some(Passing { directory, number, .. }) => {
                call.named(Procedure::Remove, &directory, &passing_name(number));
                Asked::Plain(operation)
            }
            None => create(set, call),
        },
        Operation::GetAttributes
        | Operation::Lookup
        | Operation::Access
        | Operation::SetAttributes => of_file(set, operation, numbers, call),
        Operation::ReadDirectory
        | Operation::ReadDirectoryPlus
        | Operation::ReadLink
        | Operation::FileSystemStatus => of_directory(set, operation, numbers, call),
    }
}

fn create(set: &mut DataSet, call: Call<'_>) -> Asked {
    let (directory, number) = set.new_name();
    call.create(&directory, &passing_name(number));
    Asked::Create(directory, number)
}

/// READ and WRITE.
fn transfer(
    set: &mut DataSet,
    operation: Operation,
    numbers: &mut Numbers,
    call: Call<'_>,
) -> Asked {
    let is_write = operation == Operation::Write;
    if is_write && let Some(passing) = set.unwritten.pop_front() {
        let count = written_bytes(numbers);
        call.write(&passing.handle, 0, count, Stability::FileSync);
        return Asked::Write(count, Some(passing));
    }
    let (handle, bytes) = match set.file(numbers) {
        Some(file) => (file.handle, file.bytes),
        None => (set.root, 0),
    };
    let count = bytes.min(TRANSFER_BYTES_MAX);
    let offset = numbers.next(u64::from(bytes.div_ceil(TRANSFER_BYTES_MAX).max(1)))
        * u64::from(TRANSFER_BYTES_MAX);
    if is_write {
        call.write(&handle, offset, count, Stability::FileSync);
        return Asked::Write(count, None);
    }
    call.read(&handle, offset, count);
    Asked::Read(count)
}

/// What asks about a file, or sets its mode.
fn of_file(set: &DataSet, operation: Operation, numbers: &mut Numbers, call: Call<'_>) -> Asked {
    let (handle, directory, number) = match set.file(numbers) {
        Some(file) => (file.handle, file.directory, file.number),
        None => (set.root, set.root, 0),
    };
    match operation {
        Operation::Lookup => call.named(Procedure::Lookup, &directory, &file_name(number)),
        Operation::Access => call.nfs(Procedure::Access, |calls| {
            calls.handle(&handle);
            calls.u32(ALL_RIGHTS);
        }),
        Operation::SetAttributes => {
            let mode = if numbers.next(2) == 0 { 0o600 } else { 0o644 };
            call.nfs(Procedure::SetAttributes, |calls| {
                calls.handle(&handle);
                calls.mode(mode);
                // Whatever the file's time of change is.
                calls.u32(0);
            });
        }
        _ => call.get_attributes(&handle),
    }
    Asked::Plain(operation)
}

/// What asks about a directory, a link in it, or the whole file system.
fn of_directory(
    set: &DataSet,
    operation: Operation,
    numbers: &mut Numbers,
    call: Call<'_>,
) -> Asked {
    let number = numbers.next(set.directories.len().max(1) as u64);
    let directory = at(&set.directories, number, set.root);
    match operation {
        Operation::ReadDirectoryPlus => {
            call.read_directory(&directory, &DirectoryPlace::default(), TRANSFER_BYTES_MAX);
        }
        Operation::ReadDirectory => call.nfs(Procedure::ReadDirectory, |calls| {
            calls.handle(&directory);
            // From the beginning: no cookie, no verifier.
            calls.u64(0);
            calls.u64(0);
            calls.u32(TRANSFER_BYTES_MAX);
        }),
        Operation::ReadLink => call.nfs(Procedure::ReadLink, |calls| {
            calls.handle(&at(&set.links, number, set.root));
        }),
        _ => call.nfs(Procedure::FileSystemStatus, |calls| calls.handle(&set.root)),
    }
    Asked::Plain(operation)
}

const fn holds(it: bool) -> Result<(), Malformed> {
    if it { Ok(()) } else { Err(Malformed) }
}

/// Checks the answer behind a status OK.
pub(super) fn answered(
    set: &mut DataSet,
    asked: Asked,
    mut reply: Reply<'_>,
) -> Result<(), Malformed> {
    match asked {
        Asked::Read(count) => holds(reply.read()? == count),
        Asked::Write(count, passing) => {
            holds(reply.written()? == (count, true))?;
            set.written.extend(passing);
            Ok(())
        }
        Asked::Create(directory, number) => {
            let handle = reply.post_handle()?;
            set.unwritten.push_back(Passing { directory, number, handle });
            Ok(())
        }
        Asked::Plain(operation) => plain(operation, &mut reply),
    }
}

fn plain(operation: Operation, reply: &mut Reply<'_>) -> Result<(), Malformed> {
    match operation {
        Operation::GetAttributes => reply.skip(ATTRIBUTES_BYTES).map(drop),
        Operation::Lookup => reply.handle().map(drop),
        Operation::Access => {
            reply.post_attributes()?;
            holds(reply.u32()? != 0)
        }
        Operation::ReadLink => {
            reply.post_attributes()?;
            holds(!reply.opaque()?.is_empty())
        }
        Operation::ReadDirectory => {
            reply.post_attributes()?;
            // The verifier, and whether an entry follows.
            reply.u64()?;
            holds(reply.u32()? != 0)
        }
        Operation::ReadDirectoryPlus => holds(reply.entries(&mut DirectoryPlace::default())? > 0),
        Operation::FileSystemStatus => {
            reply.post_attributes()?;
            reply.skip(STATUS_BYTES).map(drop)
        }
        // The others have an `Asked` of their own.
        Operation::SetAttributes
        | Operation::Remove
        | Operation::Read
        | Operation::Write
        | Operation::Create => reply.change(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(asked: Asked, words: &[u32]) -> Result<(), Malformed> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        answered(&mut DataSet::empty(), asked, Reply(&bytes))
    }

    #[test]
    fn an_answer_of_another_length_than_asked_is_wrong() {
        let read = [0, 8, 1, 8, 0, 0];
        assert_eq!(check(Asked::Read(8), &read), Ok(()));
        assert_eq!(check(Asked::Read(12), &read), Err(Malformed));
        let written = |count, kept| [0, 0, count, kept, 0, 7];
        assert_eq!(check(Asked::Write(8, None), &written(8, 2)), Ok(()));
        assert_eq!(check(Asked::Write(8, None), &written(4, 2)), Err(Malformed));
        assert_eq!(check(Asked::Write(8, None), &written(8, 0)), Err(Malformed), "not durable");
    }

    #[test]
    fn an_answer_without_anything_in_it_is_wrong() {
        for (operation, good) in [
            (Operation::Access, [0, 0x1f].as_slice()),
            (Operation::ReadLink, &[0, 1, 0x6100_0000]),
            (Operation::ReadDirectory, &[0, 0, 7, 1]),
            (Operation::FileSystemStatus, &[0; 14]),
            (Operation::GetAttributes, &[0; 21]),
            (Operation::SetAttributes, &[0; 2]),
        ] {
            assert_eq!(check(Asked::Plain(operation), good), Ok(()), "{operation:?}");
            let short = &good[..good.len() - 1];
            assert_eq!(check(Asked::Plain(operation), short), Err(Malformed), "{operation:?}");
        }
        for operation in [Operation::Access, Operation::ReadLink, Operation::ReadDirectory] {
            assert_eq!(check(Asked::Plain(operation), &[0; 4]), Err(Malformed), "{operation:?}");
        }
    }
}
