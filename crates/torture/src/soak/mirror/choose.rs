//! What a client does next: random calls, weighted by its shape, among those that touch nothing
//! that is under way.

use super::task::{Task, What};
use super::{CHOICES_MAX, DIRECTORIES, Mirror, READ_BYTES};
use crate::tree::{FileNumber, Operation, parent};
use nfs_client::{Creation, Request, Setting};
use std::sync::Arc;

/// Subdirectories of each directory.
const SUBDIRECTORIES: u64 = 4;
/// Longest text of a symbolic link.
const LINK_BYTES_MAX: u64 = 200;

impl Mirror {
    /// A call that can be made now, if one is found soon.
    pub(super) fn choose(&mut self) -> Option<(Task, Request)> {
        (0..CHOICES_MAX).find_map(|_| {
            let kind = self.random.below(100);
            if kind < self.shape.changes {
                let operation = self.any_change();
                self.try_change(operation)
            } else if kind < self.shape.changes + self.shape.writes {
                let operation = self.any_write();
                self.try_change(operation)
            } else {
                self.try_read()
            }
        })
    }

    fn any_directory(&mut self) -> &'static str {
        DIRECTORIES[self.random.below(DIRECTORIES.len() as u64) as usize]
    }

    fn any_path(&mut self) -> String {
        let directory = self.any_directory();
        format!("{directory}/n{}", self.random.below(self.shape.names))
    }

    fn any_change(&mut self) -> Operation {
        let path = self.any_path();
        match self.random.below(20) {
            0..=6 => Operation::Create(path),
            7..=9 => Operation::Remove(path),
            10..=12 => Operation::Rename(path, self.any_path()),
            13 => Operation::Link(path, self.any_path()),
            14 => {
                let length = 1 + self.random.below(LINK_BYTES_MAX);
                Operation::Symlink(path, "x".repeat(length as usize))
            }
            15 => Operation::MakeDirectory(self.any_subdirectory()),
            16 => Operation::RemoveDirectory(self.any_subdirectory()),
            17 => Operation::SetMode(path, 0o400 | self.random.below(0o400) as u32),
            // Often to what is there, so that files do not stay small.
            _ => {
                let size = self.random.below(self.shape.file_bytes_max as u64 + 1) as usize;
                Operation::Truncate(path, size)
            }
        }
    }

    fn any_subdirectory(&mut self) -> String {
        let directory = self.any_directory();
        format!("{directory}/s{}", self.random.below(SUBDIRECTORIES))
    }

    fn any_write(&mut self) -> Operation {
        let path = self.any_path();
        let is_file = self.tree.file_number(&path).is_some();
        let random = &mut self.random;
        // Data for a file that is not there would be made for nothing.
        if !is_file || random.one_in(8) {
            return Operation::Commit(path);
        }
        let shape = self.shape;
        // Small writes are as frequent as large ones.
        let blocks = (shape.write_bytes_max / 4096) as u64;
        let length = match random.below(4) {
            0 => 4096,
            1 => 1 + random.below(8192) as usize,
            _ => (1 + random.below(blocks)) as usize * 4096,
        };
        let size = self.tree.size(&path).unwrap_or(0);
        let last = (shape.file_bytes_max - length) as u64;
        let offset = match random.below(4) {
            0 => size as u64,
            1 => random.below(size as u64 + 1),
            _ => random.below(last + 1) / 4096 * 4096,
        };
        let offset = offset.min(last) as usize;
        let data = Arc::new(random.bytes(length));
        Operation::Write { path, offset, data, stable: random.one_in(3) }
    }

    fn try_read(&mut self) -> Option<(Task, Request)> {
        if self.random.one_in(40) {
            let directory = self.any_directory();
            let inside = format!("{directory}/");
            let is_quiet = !self.busy_names.iter().any(|name| name.starts_with(&inside));
            let request = Request::list_plus(&self.directories[directory], 0, 0);
            return is_quiet.then(|| (Task::list(directory), request));
        }
        let path = self.any_path();
        let number = self.tree.file_number(&path)?;
        if self.is_busy(&path) || self.busy_files.contains(&number) {
            return None;
        }
        let handle = &self.handles[&number];
        match self.random.below(4) {
            0 => Some((Task::attributes(number, true), Request::attributes(handle))),
            1 => {
                let (directory, name) = self.place(&path);
                let request = Request::lookup(directory, name);
                Some((Task::lookup(path, number), request))
            }
            _ => {
                let size = self.tree.size(&path).unwrap_or(0);
                let offset = self.random.below(size as u64 + 1) as usize;
                let count = 1 + self.random.below(READ_BYTES as u64) as usize;
                let request = Request::read(handle, offset as u64, count as u32);
                Some((Task::read(number, offset, count, true), request))
            }
        }
    }

    /// Whether a call under way touches the name, or lists its directory.
    fn is_busy(&self, path: &str) -> bool {
        self.busy_names.contains(path) || self.busy_names.contains(&format!("{}/", parent(path)))
    }

    fn try_change(&mut self, operation: Operation) -> Option<(Task, Request)> {
        if !self.tree.allows(&operation) {
            return None;
        }
        let names: Vec<String> = match &operation {
            Operation::Link(from, to) | Operation::Rename(from, to) => {
                vec![from.clone(), to.clone()]
            }
            Operation::Create(path)
            | Operation::Write { path, .. }
            | Operation::Truncate(path, _)
            | Operation::SetMode(path, _)
            | Operation::Remove(path)
            | Operation::MakeDirectory(path)
            | Operation::RemoveDirectory(path)
            | Operation::Symlink(path, _)
            | Operation::Commit(path) => vec![path.clone()],
            Operation::SyncDirectory => Vec::new(),
        };
        let files: Vec<FileNumber> =
            names.iter().filter_map(|path| self.tree.file_number(path)).collect();
        let is_busy = names.iter().any(|path| self.is_busy(path))
            || files.iter().any(|file| self.busy_files.contains(file));
        if is_busy {
            return None;
        }
        let creation = if self.random.one_in(3) {
            Creation::Exclusive(self.random.number())
        } else {
            Creation::Guarded
        };
        let request = self.request(&operation, creation);
        let what = match &operation {
            Operation::Commit(path) => {
                return Some((Task::commit(self.tree.file_number(path)?, false), request));
            }
            Operation::Create(_) => {
                What::Create { operation, is_exclusive: matches!(creation, Creation::Exclusive(_)) }
            }
            _ => What::Change(operation),
        };
        Some((Task { what, names, files }, request))
    }

    /// The directory's handle, and the name in it.
    pub(super) fn place<'a>(&'a self, path: &'a str) -> (&'a [u8], &'a str) {
        let directory = parent(path);
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        (&self.directories[directory], name)
    }

    /// The call that makes a change.
    pub(super) fn request(&self, operation: &Operation, creation: Creation) -> Request {
        let file = |path: &str| {
            let number = self.tree.file_number(path);
            let Some(handle) = number.and_then(|number| self.handles.get(&number)) else {
                unreachable!("{path} is a file")
            };
            handle.as_slice()
        };
        let place = |path| self.place(path);
        match operation {
            Operation::Create(path) => {
                let (directory, name) = place(path);
                Request::create(directory, name, creation)
            }
            Operation::Write { path, offset, data, stable } => {
                Request::write(file(path), *offset as u64, data, *stable)
            }
            Operation::Truncate(path, size) => {
                Request::set(file(path), Setting::Size(*size as u64))
            }
            Operation::SetMode(path, mode) => Request::set(file(path), Setting::Mode(*mode)),
            Operation::Link(from, to) => {
                let (directory, name) = place(to);
                Request::link(file(from), directory, name)
            }
            Operation::Rename(from, to) => Request::rename(place(from), place(to)),
            Operation::Remove(path) => {
                let (directory, name) = place(path);
                Request::remove(directory, name)
            }
            Operation::MakeDirectory(path) => {
                let (directory, name) = place(path);
                Request::make_directory(directory, name)
            }
            Operation::RemoveDirectory(path) => {
                let (directory, name) = place(path);
                Request::remove_directory(directory, name)
            }
            Operation::Symlink(path, text) => {
                let (directory, name) = place(path);
                Request::symlink(directory, name, text)
            }
            Operation::Commit(path) => Request::commit(file(path)),
            Operation::SyncDirectory => unreachable!("NFS has no such call, and none is chosen"),
        }
    }
}
