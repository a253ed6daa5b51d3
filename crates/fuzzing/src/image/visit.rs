//! What a client and an administrator do with a mounted image that may lie.
//!
//! Invariants: bounded by what is asked, not by what the image says: a directory that never ends, a
//! tree without a bottom and a file of 2^60 bytes are left after a while.

use crate::node::Node;
use bytes::Bytes;
use file_service::{
    Allocation, Call, Caller, CreateMode, FileHandle, FileKind, FileService, FsError, NewNode,
    RenameFlags, SeekTarget, SetAttributes, Stability, XattrSetMode, calls,
};
use std::collections::BTreeSet;
use volume::SnapshotRequest;

/// Files that are looked at.
const FILES_MAX: usize = 400;
/// Pages of one directory.
const PAGES_MAX: usize = 20;
const PAGE_ENTRIES: u32 = 40;
/// Reads of one file, each of so many bytes.
const READS_MAX: u64 = 8;
const READ_BYTES: u32 = 1 << 16;
/// Names of one directory that are removed or renamed.
const NAMES_MAX: usize = 24;

struct Visitor<'a> {
    node: &'a Node,
    caller: Caller,
    seen: BTreeSet<FileHandle>,
    /// What is to be looked at.
    left: Vec<FileHandle>,
    /// Names that were seen, with where they were.
    names: Vec<(FileHandle, Vec<u8>)>,
    files: Vec<FileHandle>,
}

/// Reads everything, changes some of it, makes consistency points, works on snapshots, stops.
pub(crate) fn visit(node: &Node, volume: &str) {
    let Ok(root) = node.wait("root", |done| {
        node.service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, done)
    }) else {
        return;
    };
    let mut visitor = Visitor {
        node,
        caller: Caller::root(),
        seen: BTreeSet::new(),
        left: vec![root.handle],
        names: Vec::new(),
        files: Vec::new(),
    };
    visitor.walk();
    visitor.change(root.handle);
    node.consistency_point();
    visitor.manage(volume);
    visitor.walk_again(root.handle);
    let _ = node.wait("stop", |done| node.engine.stop(done));
}

impl Visitor<'_> {
    fn ask<C: Call>(&self, call: C) -> Result<C::Reply, FsError> {
        let service = &*self.node.service;
        self.node.wait(C::KIND.name, |done| call.send(service, &self.caller, done))
    }

    fn walk(&mut self) {
        while let Some(file) = self.left.pop() {
            if self.seen.len() == FILES_MAX {
                return;
            }
            if self.seen.insert(file) {
                self.look(file);
            }
        }
    }

    fn walk_again(&mut self, root: FileHandle) {
        self.seen.clear();
        self.left = vec![root];
        self.walk();
    }

    fn look(&mut self, file: FileHandle) {
        let kind = match self.ask(calls::GetAttributes { file }) {
            Ok(attributes) => attributes.kind,
            Err(_) => return,
        };
        let names = self.ask(calls::ListXattrs { file });
        for name in names.unwrap_or_default().iter().take(NAMES_MAX) {
            let _ = self.ask(calls::GetXattr { file, name: name.to_vec() });
        }
        match kind {
            FileKind::Directory => self.list(file),
            FileKind::Symlink => {
                let _ = self.ask(calls::ReadLink { file });
            }
            _ => self.read(file),
        }
    }

    fn list(&mut self, directory: FileHandle) {
        let mut cookie = 0;
        for _ in 0..PAGES_MAX {
            let page = self.ask(calls::ReadDirectory {
                directory,
                cookie,
                entries_max: PAGE_ENTRIES,
                with_attributes: true,
            });
            let Ok(page) = page else { break };
            for entry in &page.entries {
                assert!(entry.cookie > cookie, "cookies ascend");
                cookie = entry.cookie;
                self.left.extend(entry.entry.as_ref().map(|found| found.handle));
                self.names.push((directory, entry.name.to_vec()));
            }
            if page.end || page.entries.is_empty() {
                break;
            }
        }
        for name in [b"..".as_slice(), b".snapshot", b"s0", b"s1", b"nowhere"] {
            let found = self.ask(calls::Lookup { directory, name: name.to_vec() });
            self.left.extend(found.ok().map(|found| found.handle));
        }
    }

    fn read(&mut self, file: FileHandle) {
        self.files.push(file);
        let mut offset = 0;
        for _ in 0..READS_MAX {
            let data = self.ask(calls::Seek { file, offset, target: SeekTarget::Data });
            let Ok(start) = data else { break };
            let read = self.ask(calls::Read { file, offset: start, count: READ_BYTES });
            let Ok(read) = read else { break };
            assert!(read.len() <= READ_BYTES as usize, "more than was asked for");
            if read.end_of_file {
                break;
            }
            offset = start.saturating_add(u64::from(READ_BYTES));
        }
        let _ = self.ask(calls::Read { file, offset: u64::MAX - 9, count: 8 });
    }

    fn change(&mut self, root: FileHandle) {
        let set = SetAttributes::default;
        for file in self.files.clone().into_iter().take(NAMES_MAX) {
            self.change_file(file);
        }
        let made = self.ask(calls::MakeNode {
            directory: root,
            name: b"new-directory".to_vec(),
            node: NewNode::Directory,
            set: set(),
        });
        let target = made.map_or(root, |(made, _)| made.handle);
        let names: Vec<_> = self.names.iter().rev().take(NAMES_MAX).cloned().collect();
        for (index, (directory, name)) in names.into_iter().enumerate() {
            let _ = match index % 4 {
                0 | 1 => self.ask(calls::Remove { directory, name: name.to_vec() }),
                2 => self.ask(calls::RemoveDirectory { directory, name: name.to_vec() }),
                _ => self
                    .ask(calls::Rename::between(
                        (directory, &name),
                        (target, &name),
                        RenameFlags::default(),
                    ))
                    .map(|(from, _)| from),
            };
        }
        for number in 0..4 {
            let name = format!("new-{number}");
            let made = self.ask(calls::Create {
                directory: target,
                name: name.as_bytes().to_vec(),
                mode: CreateMode::Unchecked,
                set: set(),
            });
            if let Ok((made, _)) = made {
                self.change_file(made.handle);
            }
        }
    }

    fn change_file(&self, file: FileHandle) {
        let data = Bytes::from_static(&[7; 9000]);
        for offset in [0, 5000, 1 << 22] {
            let _ = self.ask(calls::Write {
                file,
                offset,
                data: data.clone(),
                stability: Stability::Unstable,
            });
        }
        let _ = self.ask(calls::Allocate {
            file,
            allocation: Allocation::Reserve { keep_size: true },
            offset: 0,
            length: 1 << 16,
        });
        let _ = self.ask(calls::SetXattr {
            file,
            name: b"user.new".to_vec(),
            value: b"value".to_vec(),
            mode: XattrSetMode::Either,
            drops_setgid: false,
        });
        let shorter = SetAttributes { size: Some(4097), ..SetAttributes::default() };
        let _ = self.ask(calls::SetFileAttributes { file, set: shorter });
        let _ = self.ask(calls::Commit::of(file));
    }

    fn manage(&self, volume: &str) {
        let engine = &self.node.engine;
        let summaries = (engine.volume_summaries(), engine.aggregate_summaries());
        drop(summaries);
        let _ = self.node.wait("snapshots", |done| engine.snapshots(volume, done));
        let (create, delete) = (SnapshotRequest::Create, SnapshotRequest::Delete);
        for request in [create("s7".to_owned()), delete("s0".to_owned()), delete("s1".to_owned())] {
            let _ = self.node.wait("snapshot request", |done| {
                engine.request_snapshot(volume, request, done);
            });
        }
        self.node.consistency_point();
        self.node.consistency_point();
    }
}
