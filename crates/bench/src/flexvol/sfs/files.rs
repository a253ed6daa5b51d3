//! The files that the mix works on, and how they are made.
//!
//! SPEC SFS makes a data set that grows with the load that is offered. This one has a fixed size.
//! It has directories of [`DIRECTORY_FILES`] files of the sizes of `mix`, with a symbolic link in
//! each. The mix works on a fixed share of the files, [`WORKING_OF_TEN`] of ten, which are spread
//! over all directories. Which of them an operation takes is uniform; SPEC SFS has favourites.
//! Beside them there are [`SPARE_FILES`] files for the first REMOVEs.
//!
//! Invariants: both kinds of volume get the same files in the same order; the files that are read
//! never change their size; a name is used once. Fails: with the first answer that is not OK.

use super::mix::{FILE_SIZES, TRANSFER_BYTES_MAX, drawn, numbers};
use crate::nfs::driver::{Load, Stopped, run};
use crate::nfs::session::Session;
use crate::nfs::wire::{Call, Handle, Malformed, Procedure, Reply, Stability};
use crate::numbers::Numbers;
use std::collections::VecDeque;

/// Files of a directory.
const DIRECTORY_FILES: usize = 32;
/// Of ten files, those that the mix works on.
const WORKING_OF_TEN: usize = 3;
/// Files that REMOVE finds at first. CREATE and REMOVE have the same share; this is how far chance
/// may let one of them fall behind.
const SPARE_FILES: u64 = 1024;
/// Calls in flight while files are made.
const MAKING_DEPTH: usize = 32;
/// Where a symbolic link leads to.
const LINK_TARGET: &[u8] = b"file-0000000";

/// A file of the working set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DataFile {
    pub handle: Handle,
    pub bytes: u32,
    pub directory: Handle,
    pub number: u64,
}

/// A file that was created, is written once and then removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Passing {
    pub directory: Handle,
    pub number: u64,
    pub handle: Handle,
}

/// See the module.
pub(super) struct DataSet {
    pub root: Handle,
    pub directories: Vec<Handle>,
    pub links: Vec<Handle>,
    files: Vec<DataFile>,
    /// Files that were created and not yet written.
    pub unwritten: VecDeque<Passing>,
    /// Files that were written and may be removed.
    pub written: VecDeque<Passing>,
    passing: u64,
}

pub(super) fn file_name(number: u64) -> String {
    format!("file-{number:07}")
}

pub(super) fn passing_name(number: u64) -> String {
    format!("new-{number:07}")
}

/// The sizes of files that have `bytes` altogether, or a little more.
fn planned(bytes: u64) -> Vec<u32> {
    let (mut numbers, mut sizes, mut sum) = (numbers(0), Vec::new(), 0);
    while sum < bytes {
        let size = drawn(&FILE_SIZES, &mut numbers);
        sizes.push(size);
        sum += u64::from(size);
    }
    sizes
}

impl DataSet {
    /// Makes one of so many bytes in the session's directory.
    pub fn make(session: &mut Session, bytes: u64) -> Result<Self, Stopped> {
        let (sizes, root) = (planned(bytes), session.directory);
        let count = sizes.len().div_ceil(DIRECTORY_FILES);
        let directories = made(session, count as u64, |number, call: Call<'_>| {
            call.make_directory(&root, &format!("dir-{number:06}"));
        })?;
        let home = |number: u64| at(&directories, number / DIRECTORY_FILES as u64, root);
        let handles = made(session, sizes.len() as u64, |number, call: Call<'_>| {
            call.create(&home(number), &file_name(number));
        })?;
        let file = |(number, (handle, bytes)): (usize, (&Handle, &u32))| {
            let (number, handle, bytes) = (number as u64, *handle, *bytes);
            DataFile { handle, bytes, directory: home(number), number }
        };
        let files: Vec<_> = handles.iter().zip(&sizes).enumerate().map(file).collect();
        fill(session, files.iter().map(|file| (file.handle, file.bytes)))?;
        let links = made(session, count as u64, |number, call: Call<'_>| {
            link(call, &at(&directories, number, root));
        })?;
        let (unwritten, written) = (VecDeque::new(), VecDeque::new());
        let mut set = Self { root, directories, links, files, unwritten, written, passing: 0 };
        set.make_spares(session)?;
        Ok(set)
    }

    fn make_spares(&mut self, session: &mut Session) -> Result<(), Stopped> {
        let names: Vec<_> = (0..SPARE_FILES).map(|_| self.new_name()).collect();
        let handles = made(session, SPARE_FILES, |number, call: Call<'_>| {
            if let Some((directory, number)) = names.get(number as usize) {
                call.create(directory, &passing_name(*number));
            }
        })?;
        let mut numbers = numbers(1);
        let mut file = |handle: &Handle| (*handle, written_bytes(&mut numbers));
        fill(session, handles.iter().map(&mut file))?;
        let spare = |((directory, number), handle)| Passing { directory, number, handle };
        self.written = names.into_iter().zip(handles).map(spare).collect();
        Ok(())
    }

    /// A directory, and the number of a name in it that was not used yet.
    pub fn new_name(&mut self) -> (Handle, u64) {
        let number = self.passing;
        self.passing += 1;
        (at(&self.directories, number % self.directories.len().max(1) as u64, self.root), number)
    }

    /// A file of the working set.
    pub fn file(&self, numbers: &mut Numbers) -> Option<DataFile> {
        let number = numbers.next(working_files(self.files.len()) as u64) as usize;
        self.files.get(working_file(number)).copied()
    }
}

/// How many of `files` are in the working set, one at least.
const fn working_files(files: usize) -> usize {
    let (tens, rest) = (files / 10, files % 10);
    let count = tens * WORKING_OF_TEN + if rest < WORKING_OF_TEN { rest } else { WORKING_OF_TEN };
    if count == 0 { 1 } else { count }
}

/// Which file is the one with this number in the working set.
const fn working_file(number: usize) -> usize {
    number / WORKING_OF_TEN * 10 + number % WORKING_OF_TEN
}

/// How much goes to a file that was created: its size, as far as one WRITE takes it.
pub(super) fn written_bytes(numbers: &mut Numbers) -> u32 {
    drawn(&FILE_SIZES, numbers).min(TRANSFER_BYTES_MAX)
}

/// The handle with this number; `other` is for numbers that cannot be.
pub(super) fn at(handles: &[Handle], number: u64, other: Handle) -> Handle {
    handles.get(number as usize).copied().unwrap_or(other)
}

/// SYMLINK.
fn link(call: Call<'_>, directory: &Handle) {
    call.nfs(Procedure::SymbolicLink, |calls| {
        calls.handle(directory);
        calls.opaque(b"link");
        calls.mode(0o777);
        calls.opaque(LINK_TARGET);
    });
}

/// Makes something by number, and gives the handles by number.
fn made(
    session: &mut Session,
    count: u64,
    make: impl FnMut(u64, Call<'_>),
) -> Result<Vec<Handle>, Stopped> {
    let mut handles = vec![session.directory; count as usize];
    each(session, count, make, |number, mut reply| {
        let handle = reply.post_handle()?;
        handles.get_mut(number as usize).map(|place| *place = handle).ok_or(Malformed)
    })?;
    Ok(handles)
}

/// Writes files for the first time, in pieces that a node with little memory takes whole.
fn fill(session: &mut Session, files: impl Iterator<Item = (Handle, u32)>) -> Result<(), Stopped> {
    let pieces = files.flat_map(|(handle, bytes)| {
        let offsets = (0..bytes).step_by(TRANSFER_BYTES_MAX as usize);
        offsets.map(move |offset| (handle, offset, TRANSFER_BYTES_MAX.min(bytes - offset)))
    });
    let pieces: Vec<_> = pieces.collect();
    let write = |number: u64, call: Call<'_>| {
        if let Some((handle, offset, bytes)) = pieces.get(number as usize) {
            call.write(handle, u64::from(*offset), *bytes, Stability::Unstable);
        }
    };
    each(session, pieces.len() as u64, write, |number, mut reply| {
        let (written, _) = reply.written()?;
        let wanted = pieces.get(number as usize).map(|(_, _, bytes)| *bytes);
        if Some(written) == wanted { Ok(()) } else { Err(Malformed) }
    })
}

/// Calls by number, and who knows which one a reply is of.
struct Numbered<C, R> {
    next: u64,
    end: u64,
    /// The number that each lane asked for.
    asked: Vec<u64>,
    call: C,
    reply: R,
}

impl<C, R> Load for Numbered<C, R>
where
    C: FnMut(u64, Call<'_>),
    R: FnMut(u64, Reply<'_>) -> Result<(), Malformed>,
{
    fn call(&mut self, lane: usize, call: Call<'_>) -> bool {
        if self.next == self.end {
            return false;
        }
        if let Some(asked) = self.asked.get_mut(lane) {
            *asked = self.next;
        }
        (self.call)(self.next, call);
        self.next += 1;
        true
    }

    fn reply(&mut self, lane: usize, reply: Reply<'_>) -> Result<bool, Malformed> {
        (self.reply)(*self.asked.get(lane).ok_or(Malformed)?, reply)?;
        Ok(true)
    }
}

fn each(
    session: &mut Session,
    end: u64,
    call: impl FnMut(u64, Call<'_>),
    reply: impl FnMut(u64, Reply<'_>) -> Result<(), Malformed>,
) -> Result<(), Stopped> {
    let mut load = Numbered { next: 0, end, asked: vec![0; MAKING_DEPTH], call, reply };
    let connections = session.connections.get_mut(..1).unwrap_or_default();
    run(connections, MAKING_DEPTH, None, &mut load)?;
    Ok(())
}

#[cfg(test)]
impl DataSet {
    /// One for tests of answers: without files.
    pub(super) fn empty() -> Self {
        let (directories, links, files) = (Vec::new(), Vec::new(), Vec::new());
        let (unwritten, written) = (VecDeque::new(), VecDeque::new());
        let root = Reply(&[0; 4]).handle().unwrap();
        Self { root, directories, links, files, unwritten, written, passing: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planned_files_have_the_size_that_was_asked_for() {
        let bytes = 64 << 20;
        let sum: u64 = planned(bytes).iter().map(|size| u64::from(*size)).sum();
        assert!((bytes..bytes + (1 << 20)).contains(&sum), "{sum}");
        assert_eq!(planned(1).len(), 1);
    }

    #[test]
    fn the_working_set_is_three_files_of_each_ten() {
        let list = |files| (0..working_files(files)).map(working_file).collect::<Vec<_>>();
        assert_eq!(list(1), [0]);
        assert_eq!(list(12), [0, 1, 2, 10, 11]);
        assert_eq!(list(20), [0, 1, 2, 10, 11, 12]);
        assert!((1..100).all(|files| list(files).iter().all(|file| *file < files)));
    }
}
