//! A memory file system out of an [`Image`], and how the image's handles translate.
//!
//! So the model follows a volume to where it did not come by operations: back to a snapshot, or to
//! what a crash left of it.
//!
//! Invariants: the new tree's image equals the one that it was made from. Handles of files that
//! are not in the image translate to one that is stale for ever.

use crate::answer::Answer;
use crate::image::{Image, ImageNode};
use bytes::Bytes;
use file_service::memory::MemoryFileSystem;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileKind, FileService, FsError, NewNode, SetAttributes,
    SetTime, Stability, XattrSetMode, calls,
};
use std::collections::HashMap;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64};

/// How handles of one service translate to those of another.
#[derive(Clone, Debug)]
pub enum Translation {
    /// They are the same.
    Identity,
    /// By a table.
    Table {
        /// Of the files that there are.
        table: HashMap<FileHandle, FileHandle>,
        /// For all others: a stale one.
        lost: FileHandle,
    },
}

impl Translation {
    /// What `handle` is now.
    #[must_use]
    pub fn get(&self, handle: FileHandle) -> FileHandle {
        match self {
            Self::Identity => handle,
            Self::Table { table, lost } => table.get(&handle).copied().unwrap_or(*lost),
        }
    }

    /// What `handle` is now, unless its file is gone.
    #[must_use]
    pub fn known(&self, handle: FileHandle) -> Option<FileHandle> {
        match self {
            Self::Identity => Some(handle),
            Self::Table { table, .. } => table.get(&handle).copied(),
        }
    }
}

/// The answer of the memory backend, which comes at once; to a call that cannot be refused.
fn now<T: Send + 'static>(call: impl FnOnce(Done<T>)) -> T {
    match Answer::to(call).take() {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => unreachable!("the memory backend refuses root: {error}"),
        Err(error) => unreachable!("the memory backend answers once, at once: {error:?}"),
    }
}

struct Builder<'a> {
    service: &'a MemoryFileSystem,
    caller: Caller,
    table: HashMap<FileHandle, FileHandle>,
}

/// Fills the empty volume below `root` with `image`.
pub(crate) fn build(service: &MemoryFileSystem, root: FileHandle, image: &Image) -> Translation {
    let mut builder = Builder { service, caller: Caller::root(), table: HashMap::new() };
    let lost = builder.stale_handle(root);
    // Paths ascend, so directories come before what is in them, and first names before others.
    for (path, node) in &image.nodes {
        if path.is_empty() {
            builder.table.insert(node.handle, root);
            continue;
        }
        let (parent, name) = split(path);
        let parent = image.nodes.get(parent).and_then(|node| builder.table.get(&node.handle));
        let Some(parent) = parent.copied() else { unreachable!("a directory has a path") };
        if let Some(&file) = builder.table.get(&node.handle) {
            now(|done| {
                service.link(
                    &builder.caller,
                    calls::Link { file, directory: parent, name: name.to_vec() },
                    done,
                )
            });
        } else {
            builder.make(parent, name, node);
        }
    }
    // Times last: making entries and writing data changes them.
    for node in image.nodes.values() {
        if let Some(&file) = builder.table.get(&node.handle) {
            builder.decorate(file, node);
        }
    }
    Translation::Table { table: builder.table, lost }
}

/// A path's directory and name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (&[], path),
    }
}

impl Builder<'_> {
    fn stale_handle(&self, root: FileHandle) -> FileHandle {
        let (name, set) = (b"stale", SetAttributes::default());
        let (caller, mode) = (&self.caller, CreateMode::Guarded);
        let made = now(|done| {
            self.service.create(
                caller,
                calls::Create { directory: root, name: name.to_vec(), mode, set },
                done,
            )
        });
        now(|done| {
            self.service.remove(
                caller,
                calls::Remove { directory: root, name: name.to_vec() },
                done,
            )
        });
        made.0.handle
    }

    fn make(&mut self, parent: FileHandle, name: &[u8], node: &ImageNode) {
        let (caller, set) = (&self.caller, SetAttributes::default());
        let new = match node.kind {
            FileKind::Regular => None,
            FileKind::Directory => Some(NewNode::Directory),
            FileKind::Symlink => Some(NewNode::Symlink(node.text.clone())),
            FileKind::BlockDevice => Some(NewNode::BlockDevice(node.device.0, node.device.1)),
            FileKind::CharacterDevice => {
                Some(NewNode::CharacterDevice(node.device.0, node.device.1))
            }
            FileKind::Fifo => Some(NewNode::Fifo),
            FileKind::Socket => Some(NewNode::Socket),
        };
        let made = match new {
            Some(new) => {
                now(|done| {
                    self.service.make_node(
                        caller,
                        calls::MakeNode { directory: parent, name: name.to_vec(), node: new, set },
                        done,
                    )
                })
                .0
            }
            None => {
                let mode = CreateMode::Guarded;
                now(|done| {
                    self.service.create(
                        caller,
                        calls::Create { directory: parent, name: name.to_vec(), mode, set },
                        done,
                    )
                })
                .0
            }
        };
        self.table.insert(node.handle, made.handle);
        if node.is_tree == Some(true) && self.service.make_tree(made.handle).is_err() {
            unreachable!("a new directory in no tree becomes one")
        }
        if node.kind == FileKind::Regular {
            self.fill(made.handle, node);
        }
    }

    fn fill(&self, file: FileHandle, node: &ImageNode) {
        self.set(file, SetAttributes { size: Some(node.size), ..SetAttributes::default() });
        for (number, block) in &node.blocks {
            let offset = number * BLOCK_SIZE_U64;
            let length = node.size.saturating_sub(offset).min(BLOCK_SIZE_U64) as usize;
            let data = Bytes::copy_from_slice(&block.bytes()[..length.min(BLOCK_SIZE)]);
            let (caller, stability) = (&self.caller, Stability::FileSync);
            now(|done| {
                self.service.write(caller, calls::Write { file, offset, data, stability }, done)
            });
        }
    }

    fn set(&self, file: FileHandle, set: SetAttributes) {
        now(|done| {
            self.service.set_attributes(&self.caller, calls::SetFileAttributes { file, set }, done)
        });
    }

    /// Owner, mode, extended attributes and times.
    fn decorate(&self, file: FileHandle, node: &ImageNode) {
        let none = SetAttributes::default;
        // The owner before the mode, because a change of owner clears setuid and setgid.
        self.set(file, SetAttributes { uid: Some(node.uid), gid: Some(node.gid), ..none() });
        self.set(file, SetAttributes { mode: Some(node.mode), ..none() });
        for (name, value) in &node.xattrs {
            let mode = XattrSetMode::Either;
            now(|done| {
                self.service.set_xattr(
                    &self.caller,
                    calls::SetXattr {
                        file,
                        name: name.to_vec(),
                        value: value.to_vec(),
                        mode,
                        drops_setgid: false,
                    },
                    done,
                )
            });
        }
        let atime = node.atime.map(SetTime::To);
        let mtime = node.mtime.map(SetTime::To);
        if atime.is_some() || mtime.is_some() {
            self.set(file, SetAttributes { atime, mtime, ..none() });
        }
    }
}

/// The root of volume `name` of a memory file system.
pub(crate) fn root_of(service: &MemoryFileSystem, name: &str) -> Result<FileHandle, FsError> {
    match Answer::to(|done| {
        service.root(&Caller::root(), calls::Root { name: name.to_owned() }, done)
    })
    .take()
    {
        Ok(root) => root.map(|root| root.handle),
        Err(_) => unreachable!("the memory backend answers once, at once"),
    }
}
