//! MKDIR, SYMLINK and MKNOD: makes anything but a regular file.
//!
//! Fails: as `file_service::rules` refuse; `NoSpace`.

use crate::create::{NewParts, add};
use crate::{Executed, Files, Mutation, Outcome, Scope};
use cowfs::pointer::Pointer;
use file_service::rules::{entries, names};
use file_service::{Entry, FileKind, FsError, NewNode, NodeChange, calls};

/// Makes a directory, symbolic link or special file.
#[derive(Clone, Debug)]
pub struct MakeNode {
    /// Who asks, and when.
    pub scope: Scope,
    /// What is asked.
    pub call: calls::MakeNode,
    /// Random, for a directory's hash: nobody may choose names that collide.
    pub hash_seed: [u64; 2],
}

impl Mutation for MakeNode {
    type Reply = (Entry, NodeChange);

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Self::Reply>> {
        let directory = files.open_for(self.call.directory, &self.scope.caller)?;
        entries::check_search(&self.scope.caller, &directory.attributes)?;
        if files.lookup(directory.inode, &self.call.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        names::check_new_name(&self.call.name)?;
        entries::check_device(&self.scope.caller, &self.call.node)?;
        let (mut device, mut text, mut hash_seed) = ((0, 0), [].as_slice(), [0; 2]);
        let kind = match &self.call.node {
            NewNode::Directory => {
                hash_seed = self.hash_seed;
                FileKind::Directory
            }
            NewNode::Symlink(target) => {
                names::check_symlink(target)?;
                text = target;
                FileKind::Symlink
            }
            NewNode::BlockDevice(major, minor) => {
                device = (*major, *minor);
                FileKind::BlockDevice
            }
            NewNode::CharacterDevice(major, minor) => {
                device = (*major, *minor);
                FileKind::CharacterDevice
            }
            NewNode::Fifo => FileKind::Fifo,
            NewNode::Socket => FileKind::Socket,
        };
        let parts = NewParts { kind, size: 0, device, create_verifier: 0, hash_seed, text };
        let (scope, name) = (&self.scope, self.call.name.as_slice());
        add(files, scope, (&directory, name), &self.call.set, &parts)
    }
}
