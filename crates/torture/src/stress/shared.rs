//! Names and files that all clients change at the same time: no answer is known, but what may never
//! be seen is.
//!
//! - *Ring:* names of a directory that are only ever exchanged, and what lies behind them: a
//!   listing has each name and each file once, whenever it is made.
//! - *Records:* files of which records are written stably and whole: a read of a record is all of
//!   one write, or zeros, also after a crash.
//! - *Names:* anything goes; each unit of a file is one that somebody wrote there, and a read that
//!   ends before it was asked to ends at the length that it tells.
//! - *At rest* ([`check_tree`]): every entry leads somewhere; files have as many links as names.
//!
//! Fails: [`Failure::Lost`]; [`Failure::Refused`] with an error that no race explains.

use crate::Failure;
use crate::random::Random;
use crate::stress::content::UNIT;
use crate::stress::node::{Node, SHARED};
use file_service::{
    Allocation, Caller, CreateMode, Entry, FileHandle, FileService, FsError, NewNode, RenameFlags,
    SeekTarget, SetAttributes, Stability, XattrSetMode, calls,
};
use std::collections::BTreeSet;

/// Names of the ring.
const RING: u64 = 8;
/// Files of records.
const RECORD_FILES: u64 = 3;
/// Records of a file.
const RECORDS: u64 = 12;
/// Units of a record.
const RECORD_UNITS: usize = 64;
/// Directories in which anything goes.
const DIRECTORIES: u64 = 3;
/// Names in each.
const NAMES: u64 = 6;
/// Units of the longest file there.
const UNITS: u64 = 256;

mod rules;
pub use rules::check_tree;
use rules::{check_places, check_record, lost, place_word, record_word, unit_bytes};

type Outcome<T> = Result<Result<T, FsError>, Failure>;

/// Whether others, who change the same names, explain this answer.
fn is_of_a_race(error: FsError) -> bool {
    matches!(
        error,
        FsError::NotFound
            | FsError::Exists
            | FsError::NotDirectory
            | FsError::IsDirectory
            | FsError::NotEmpty
            | FsError::Stale
            | FsError::NoSpace
            | FsError::Invalid
            | FsError::NoAttribute
            | FsError::NoSuchOffset
            | FsError::NotPermitted
    )
}

/// One client's part in it.
pub struct Shared<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its choices.
    pub random: &'a mut Random,
    /// Operations that were answered.
    pub operations: u64,
}

impl Shared<'_> {
    fn ask<T: Send + 'static>(
        &mut self,
        start: impl FnOnce(&dblade::Service, file_service::Done<T>),
    ) -> Outcome<T> {
        let outcome = self.node.ask(start)?;
        self.operations += 1;
        match outcome {
            Err(error) if !is_of_a_race(error) => Err(Failure::Refused {
                worker: SHARED.to_owned(),
                operation: "an operation on shared names".to_owned(),
                reason: error.to_string(),
            }),
            outcome => Ok(outcome),
        }
    }

    fn find(&mut self, directory: FileHandle, name: &str) -> Outcome<Entry> {
        let caller = Caller::root();
        self.ask(|service, done| {
            service.lookup(
                &caller,
                calls::Lookup { directory, name: name.as_bytes().to_vec() },
                done,
            )
        })
    }

    /// Makes what all lives need, once.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn prepare(&mut self) -> Result<(), Failure> {
        let root = self.node.root(SHARED)?;
        let caller = Caller::root();
        let directories = (0..DIRECTORIES).map(|number| format!("d{number}"));
        for name in directories.chain(["ring".to_owned(), "records".to_owned()]) {
            let (kind, set) = (NewNode::Directory, SetAttributes::default());
            let made = self.ask(|service, done| {
                service.make_node(
                    &caller,
                    calls::MakeNode {
                        directory: root,
                        name: name.as_bytes().to_vec(),
                        node: kind,
                        set,
                    },
                    done,
                );
            })?;
            let Ok((entry, _)) = made else { return lost(format!("{name}: {made:?}")) };
            let files = match name.as_str() {
                "ring" => RING,
                "records" => RECORD_FILES,
                _ => 0,
            };
            for file in 0..files {
                let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
                let file = format!("r{file}");
                let made = self.ask(|service, done| {
                    service.create(
                        &caller,
                        calls::Create {
                            directory: entry.handle,
                            name: file.as_bytes().to_vec(),
                            mode,
                            set,
                        },
                        done,
                    );
                })?;
                if made.is_err() {
                    return lost(format!("{name}/{file}: {made:?}"));
                }
            }
        }
        Ok(())
    }

    /// One operation.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn step(&mut self) -> Result<(), Failure> {
        let root = self.node.root(SHARED)?;
        match self.random.below(8) {
            0 => self.turn_ring(root),
            1 => self.look_at_ring(root),
            2 => self.write_record(root),
            3 => self.read_record(root),
            _ => self.anything(root),
        }
    }

    fn turn_ring(&mut self, root: FileHandle) -> Result<(), Failure> {
        let Ok(ring) = self.find(root, "ring")? else { return lost("the ring is gone") };
        let (from, to) = (self.random.below(RING), self.random.below(RING));
        let (from, to) = (format!("r{from}"), format!("r{to}"));
        let flags = RenameFlags { exchange: true, ..RenameFlags::default() };
        let caller = Caller::root();
        let turned = self.ask(|service, done| {
            let (from, to) = ((ring.handle, from.as_bytes()), (ring.handle, to.as_bytes()));
            service.rename(&caller, calls::Rename::between(from, to, flags), done);
        })?;
        match turned {
            // A restore has put another directory in its place, or there is no room.
            Ok(_) | Err(FsError::Stale | FsError::NoSpace) => Ok(()),
            Err(error) => lost(format!("an exchange in the ring gives {error}")),
        }
    }

    fn look_at_ring(&mut self, root: FileHandle) -> Result<(), Failure> {
        let Ok(ring) = self.find(root, "ring")? else { return lost("the ring is gone") };
        let caller = Caller::root();
        let with_attributes = self.random.one_in(2);
        let page = self.ask(|service, done| {
            service.read_directory(
                &caller,
                calls::ReadDirectory {
                    directory: ring.handle,
                    cookie: 0,
                    entries_max: 100,
                    with_attributes,
                },
                done,
            );
        })?;
        let Ok(page) = page else { return Ok(()) };
        let real = |name: &[u8]| name != b"." && name != b"..";
        let entries: Vec<_> = page.entries.iter().filter(|entry| real(&entry.name)).collect();
        let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        let inodes: BTreeSet<_> = entries.iter().map(|entry| entry.inode).collect();
        let count = RING as usize;
        if (entries.len(), names.len(), inodes.len()) != (count, count, count) {
            return lost(format!("the ring is {entries:?}"));
        }
        Ok(())
    }

    fn record(&mut self, root: FileHandle) -> Result<Option<(FileHandle, u64)>, Failure> {
        let Ok(records) = self.find(root, "records")? else { return lost("no records") };
        let file = format!("r{}", self.random.below(RECORD_FILES));
        let record = self.random.below(RECORDS) * (RECORD_UNITS * UNIT) as u64;
        Ok(self.find(records.handle, &file)?.ok().map(|found| (found.handle, record)))
    }

    fn write_record(&mut self, root: FileHandle) -> Result<(), Failure> {
        let Some((file, offset)) = self.record(root)? else { return Ok(()) };
        let caller = Caller::root();
        if self.random.one_in(12) {
            let set = SetAttributes { size: Some(offset), ..SetAttributes::default() };
            self.ask(|service, done| {
                service.set_attributes(&caller, calls::SetFileAttributes { file, set }, done)
            })?
            .ok();
            return Ok(());
        }
        // Never the number that makes a word zero.
        let write = self.random.number() | 1 << 63;
        let data = unit_bytes((0..RECORD_UNITS).map(|unit| record_word(write, unit)));
        let stability =
            if self.random.one_in(2) { Stability::FileSync } else { Stability::DataSync };
        self.ask(|service, done| {
            service.write(&caller, calls::Write { file, offset, data, stability }, done)
        })?
        .ok();
        Ok(())
    }

    fn read_record(&mut self, root: FileHandle) -> Result<(), Failure> {
        let Some((file, offset)) = self.record(root)? else { return Ok(()) };
        let (caller, count) = (Caller::root(), (RECORD_UNITS * UNIT) as u32);
        let read = self.ask(|service, done| {
            service.read(&caller, calls::Read { file, offset, count }, done)
        })?;
        let Ok(read) = read else { return Ok(()) };
        if !read.is_empty() && read.len() != RECORD_UNITS * UNIT {
            return lost(format!("{} bytes of a record at {offset}", read.len()));
        }
        check_record(&read.to_vec()).or_else(|what| lost(format!("the record at {offset}: {what}")))
    }

    /// A handle of one of the directories in which anything goes, and a name there.
    fn name(&mut self, root: FileHandle) -> Result<Option<(FileHandle, String)>, Failure> {
        let directory = format!("d{}", self.random.below(DIRECTORIES));
        let name = format!("n{}", self.random.below(NAMES));
        Ok(self.find(root, &directory)?.ok().map(|found| (found.handle, name)))
    }

    fn anything(&mut self, root: FileHandle) -> Result<(), Failure> {
        let Some((directory, name)) = self.name(root)? else { return lost("a directory is gone") };
        let (caller, name_bytes) = (Caller::root(), name.as_bytes());
        match self.random.below(10) {
            0 | 1 => {
                let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
                self.ask(|service, done| {
                    service.create(
                        &caller,
                        calls::Create { directory, name: name_bytes.to_vec(), mode, set },
                        done,
                    );
                })?
                .map(drop)
                .ok();
            }
            2 => {
                let kinds = [NewNode::Directory, NewNode::Symlink(b"n0".to_vec()), NewNode::Fifo];
                let kind = kinds[self.random.below(3) as usize].clone();
                let set = SetAttributes::default();
                self.ask(|service, done| {
                    service.make_node(
                        &caller,
                        calls::MakeNode { directory, name: name_bytes.to_vec(), node: kind, set },
                        done,
                    );
                })?
                .map(drop)
                .ok();
            }
            3 => {
                self.ask(|service, done| {
                    service.remove(
                        &caller,
                        calls::Remove { directory, name: name_bytes.to_vec() },
                        done,
                    )
                })?
                .ok();
            }
            4 => {
                self.ask(|service, done| {
                    service.remove_directory(
                        &caller,
                        calls::RemoveDirectory { directory, name: name_bytes.to_vec() },
                        done,
                    );
                })?
                .ok();
            }
            5 | 6 => {
                let Some((to, other)) = self.name(root)? else { return Ok(()) };
                let no_replace = self.random.one_in(4);
                let flags =
                    RenameFlags { no_replace, exchange: !no_replace && self.random.one_in(3) };
                self.ask(|service, done| {
                    let to = (to, other.as_bytes());
                    service.rename(
                        &caller,
                        calls::Rename::between((directory, name_bytes), to, flags),
                        done,
                    );
                })?
                .map(drop)
                .ok();
            }
            _ => {
                if let Ok(entry) = self.find(directory, &name)? {
                    return self.file(root, &entry);
                }
            }
        }
        Ok(())
    }

    /// Something with what a name led to; it may be gone by now.
    fn file(&mut self, root: FileHandle, entry: &Entry) -> Result<(), Failure> {
        let (caller, file) = (Caller::root(), entry.handle);
        let first = self.random.below(UNITS);
        let units = 1 + self.random.below(UNITS - first);
        let (offset, length) = (first * UNIT as u64, units * UNIT as u64);
        match self.random.below(12) {
            0..3 => {
                let write = self.random.number() >> 17 | 1;
                let data = unit_bytes((first..first + units).map(|unit| place_word(write, unit)));
                let stability =
                    if self.random.one_in(4) { Stability::FileSync } else { Stability::Unstable };
                self.ask(|service, done| {
                    service.write(&caller, calls::Write { file, offset, data, stability }, done);
                })?
                .map(drop)
                .ok();
            }
            3..6 => return self.read(file, offset, length as u32),
            6 => {
                let set = SetAttributes { size: Some(offset), ..SetAttributes::default() };
                self.ask(|service, done| {
                    service.set_attributes(&caller, calls::SetFileAttributes { file, set }, done)
                })?
                .ok();
            }
            7 => {
                self.ask(|service, done| service.commit(&caller, calls::Commit::of(file), done))?
                    .ok();
            }
            8 => {
                let Some((directory, name)) = self.name(root)? else { return Ok(()) };
                self.ask(|service, done| {
                    service.link(
                        &caller,
                        calls::Link { file, directory, name: name.as_bytes().to_vec() },
                        done,
                    );
                })?
                .map(drop)
                .ok();
            }
            9 => {
                let value = vec![7; self.random.below(3000) as usize];
                let mode = XattrSetMode::Either;
                self.ask(|service, done| {
                    service.set_xattr(
                        &caller,
                        calls::SetXattr {
                            file,
                            name: b"user.x".to_vec(),
                            value: value.to_vec(),
                            mode,
                            drops_setgid: false,
                        },
                        done,
                    );
                })?
                .ok();
                let got = self.ask(|service, done| {
                    service.get_xattr(
                        &caller,
                        calls::GetXattr { file, name: b"user.x".to_vec() },
                        done,
                    );
                })?;
                if got.is_ok_and(|got| got.iter().any(|byte| *byte != 7)) {
                    return lost("an extended attribute holds what nobody wrote");
                }
            }
            10 => {
                self.ask(|service, done| {
                    let hole = Allocation::PunchHole;
                    service.allocate(
                        &caller,
                        calls::Allocate { file, allocation: hole, offset, length },
                        done,
                    );
                })?
                .ok();
            }
            _ => {
                self.ask(|service, done| {
                    service.seek(
                        &Caller::root(),
                        calls::Seek { file, offset, target: SeekTarget::Hole },
                        done,
                    )
                })?
                .ok();
            }
        }
        Ok(())
    }

    fn read(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<(), Failure> {
        let caller = Caller::root();
        let read = self.ask(|service, done| {
            service.read(&caller, calls::Read { file, offset, count }, done)
        })?;
        let Ok(read) = read else { return Ok(()) };
        let count = count.min(self.node.service.limits().transfer_bytes_max);
        let end = offset + read.len() as u64;
        if let Some(attributes) = &read.attributes {
            let is_short = read.len() < count as usize;
            let behind = offset >= attributes.size && read.is_empty();
            let ends = end >= attributes.size;
            let is_wrong = read.end_of_file != ends || is_short && end != attributes.size;
            if is_wrong && !behind {
                let length = attributes.size;
                return lost(format!("a read of {offset}..{end} in a file of {length} bytes"));
            }
        }
        check_places(&read.to_vec(), offset / UNIT as u64).or_else(lost)
    }
}
