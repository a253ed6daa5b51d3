//! What a client and an administrator do with a mounted image that may lie.
//!
//! Invariants: bounded by what is asked, not by what the image says: a directory that never ends, a
//! tree without a bottom and a file of 2^60 bytes are left after a while.

use crate::node::Node;
use bytes::Bytes;
use file_service::{
    Allocation, Caller, CreateMode, Done, FileHandle, FileKind, FileService, FsError, NewNode,
    RenameFlags, SeekTarget, SetAttributes, Stability, XattrSetMode,
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
    let Ok(root) = node.wait("root", |done| node.service.root(volume, done)) else { return };
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
    fn ask<T: Send + 'static>(
        &self,
        what: &str,
        call: impl FnOnce(&dyn FileService, &Caller, Done<T>),
    ) -> Result<T, FsError> {
        self.node.wait(what, |done| call(&*self.node.service, &self.caller, done))
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
        let kind = match self.ask("attributes", |s, _, done| s.attributes(file, done)) {
            Ok(attributes) => attributes.kind,
            Err(_) => return,
        };
        let names = self.ask("list xattrs", |s, c, done| s.list_xattrs(c, file, done));
        for name in names.unwrap_or_default().iter().take(NAMES_MAX) {
            let _ = self.ask("get xattr", |s, c, done| s.get_xattr(c, file, name, done));
        }
        match kind {
            FileKind::Directory => self.list(file),
            FileKind::Symlink => {
                let _ = self.ask("read link", |s, c, done| s.read_link(c, file, done));
            }
            _ => self.read(file),
        }
    }

    fn list(&mut self, directory: FileHandle) {
        let mut cookie = 0;
        for _ in 0..PAGES_MAX {
            let page = self.ask("read directory", |s, c, done| {
                s.read_directory(c, directory, cookie, PAGE_ENTRIES, true, done);
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
            let found = self.ask("lookup", |s, c, done| s.lookup(c, directory, name, done));
            self.left.extend(found.ok().map(|found| found.handle));
        }
    }

    fn read(&mut self, file: FileHandle) {
        self.files.push(file);
        let mut offset = 0;
        for _ in 0..READS_MAX {
            let data = self.ask("seek", |s, _, done| s.seek(file, offset, SeekTarget::Data, done));
            let Ok(start) = data else { break };
            let read = self.ask("read", |s, c, done| s.read(c, file, start, READ_BYTES, done));
            let Ok(read) = read else { break };
            assert!(read.len() <= READ_BYTES as usize, "more than was asked for");
            if read.end_of_file {
                break;
            }
            offset = start.saturating_add(u64::from(READ_BYTES));
        }
        let _ = self.ask("read", |s, c, done| s.read(c, file, u64::MAX - 9, 8, done));
    }

    fn change(&mut self, root: FileHandle) {
        let set = SetAttributes::default;
        for file in self.files.clone().into_iter().take(NAMES_MAX) {
            self.change_file(file);
        }
        let made = self.ask("make directory", |s, c, done| {
            s.make_node(c, root, b"new-directory", NewNode::Directory, set(), done);
        });
        let target = made.map_or(root, |(made, _)| made.handle);
        let names: Vec<_> = self.names.iter().rev().take(NAMES_MAX).cloned().collect();
        for (index, (directory, name)) in names.into_iter().enumerate() {
            let _ = match index % 4 {
                0 | 1 => self.ask("remove", |s, c, done| s.remove(c, directory, &name, done)),
                2 => self.ask("remove directory", |s, c, done| {
                    s.remove_directory(c, directory, &name, done);
                }),
                _ => self
                    .ask("rename", |s, c, done| {
                        let (from, to) = ((directory, name.as_slice()), (target, name.as_slice()));
                        s.rename(c, from, to, RenameFlags::default(), done);
                    })
                    .map(|(from, _)| from),
            };
        }
        for number in 0..4 {
            let name = format!("new-{number}");
            let made = self.ask("create", |s, c, done| {
                s.create(c, target, name.as_bytes(), CreateMode::Unchecked, set(), done);
            });
            if let Ok((made, _)) = made {
                self.change_file(made.handle);
            }
        }
    }

    fn change_file(&self, file: FileHandle) {
        let data = Bytes::from_static(&[7; 9000]);
        for offset in [0, 5000, 1 << 22] {
            let data = data.clone();
            let _ = self.ask("write", |s, c, done| {
                s.write(c, file, offset, data, Stability::Unstable, done);
            });
        }
        let _ = self.ask("allocate", |s, c, done| {
            s.allocate(c, file, Allocation::Reserve { keep_size: true }, 0, 1 << 16, done);
        });
        let _ = self.ask("set xattr", |s, c, done| {
            s.set_xattr(c, file, b"user.new", b"value", XattrSetMode::Either, done);
        });
        let shorter = SetAttributes { size: Some(4097), ..SetAttributes::default() };
        let _ = self.ask("truncate", |s, c, done| s.set_attributes(c, file, shorter, done));
        let _ = self.ask("commit", |s, c, done| s.commit(c, file, done));
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
