//! What a client does next, and the call that it is.

use super::content::{RANGES, bytes_of};
use super::{Client, Deed, FILES, File, NAMES, Named, PENDING_MAX, SPAN_MAX};
use crate::nfs::plan::VOLUME;
use nfs_client::{Creation, Request, Setting};

impl Client {
    pub(super) fn choose(&mut self) -> Option<Deed> {
        let oldest = self.pending.first_key_value().map_or(self.next_xid, |(xid, _)| *xid);
        if self.pending.len() >= PENDING_MAX || self.next_xid - oldest >= SPAN_MAX {
            return None;
        }
        if self.home.is_none() || self.is_starting {
            return match (self.is_starting, &self.root) {
                (true, _) => None,
                (false, None) => Some(Deed::Mount),
                (false, Some(_)) => Some(Deed::MakeHome),
            };
        }
        if self.choices.chance(60) { self.choose_data() } else { self.choose_name() }
    }

    fn choose_data(&mut self) -> Option<Deed> {
        let file = self.choices.index(FILES);
        let range = self.choices.index(RANGES.len());
        let File { handle, content, busy, is_committing } = &self.files[file];
        if handle.is_none() {
            return (!busy[0]).then_some(Deed::CreateFile(file));
        }
        let is_unstable = content.is_unstable(range);
        match self.choices.below(20) {
            0..3 if !is_committing => Some(Deed::Commit { file, sent: self.moment }),
            3 if !busy.contains(&true) => Some(Deed::Truncate(file)),
            _ if busy[range] => None,
            4..8 => Some(Deed::Read { file, range }),
            _ => {
                let is_stable = self.choices.chance(if is_unstable { 20 } else { 50 });
                self.next_value += 1;
                let value = self.next_value << 8 | self.number as u64;
                Some(Deed::Write { file, range, value, is_stable })
            }
        }
    }

    fn choose_name(&mut self) -> Option<Deed> {
        let at = self.choices.index(NAMES);
        let to = self.choices.index(NAMES);
        let is_to_free = at != to && !self.names[to].is_busy;
        if self.names[at].is_busy {
            return None;
        }
        let verifier = self.choices.next();
        let way = self.choices.below(12);
        let is_nothing = self.names[to].what == Named::Nothing;
        let is_file = matches!(self.names[to].what, Named::File(_));
        Some(match (&self.names[at].what, way) {
            (_, 0..2) => Deed::Lookup(at),
            (Named::Nothing, 2..7) => Deed::Create(at, Some(verifier)),
            (Named::Nothing, 7..9) => Deed::Create(at, None),
            (Named::Nothing, 9) => Deed::MakeDirectory(at),
            (Named::Nothing, 10) => Deed::Symlink(at),
            (Named::File(_), 2) => Deed::Create(at, None),
            (Named::File(_), 3..6) if is_to_free && (is_nothing || is_file) => Deed::Rename(at, to),
            (Named::File(Some(_)), 6..8) if is_to_free && is_nothing => Deed::Link(at, to),
            (Named::Directory(_), 2..4) => Deed::MakeDirectory(at),
            (Named::Directory(_), _) => Deed::RemoveDirectory(at),
            _ => Deed::Remove(at),
        })
    }

    pub(super) fn request(&self, deed: &Deed) -> Option<Request> {
        let name = |at: usize| format!("n{at}");
        let home_name = format!("home{}", self.number);
        if matches!(deed, Deed::Mount) {
            return Some(Request::mount(VOLUME));
        }
        let root = self.root.as_ref()?;
        match deed {
            Deed::MakeHome => return Some(Request::make_directory(root, &home_name)),
            Deed::FindHome => return Some(Request::lookup(root, &home_name)),
            _ => {}
        }
        let home = self.home.as_ref()?;
        let data = |file: usize| self.files[file].handle.as_ref();
        Some(match deed {
            Deed::Mount | Deed::MakeHome | Deed::FindHome => return None,
            Deed::CreateFile(file) => {
                Request::create(home, &format!("d{file}"), Creation::Unchecked)
            }
            Deed::Create(at, Some(verifier)) => {
                Request::create(home, &name(*at), Creation::Exclusive(*verifier))
            }
            Deed::Create(at, None) => Request::create(home, &name(*at), Creation::Guarded),
            Deed::MakeDirectory(at) => Request::make_directory(home, &name(*at)),
            Deed::Symlink(at) => Request::symlink(home, &name(*at), "text"),
            Deed::Remove(at) => Request::remove(home, &name(*at)),
            Deed::RemoveDirectory(at) => Request::remove_directory(home, &name(*at)),
            Deed::Rename(at, to) => Request::rename((home, &name(*at)), (home, &name(*to))),
            Deed::Link(at, to) => Request::link(self.names[*at].what.handle()?, home, &name(*to)),
            Deed::Lookup(at) => Request::lookup(home, &name(*at)),
            Deed::Write { file, range, value, is_stable } => {
                let (start, end) = RANGES[*range];
                Request::write(data(*file)?, start, &bytes_of(*value, start, end), *is_stable)
            }
            Deed::Read { file, range } => {
                let (start, end) = RANGES[*range];
                Request::read(data(*file)?, start, (end - start) as u32)
            }
            Deed::Commit { file, .. } => Request::commit(data(*file)?),
            Deed::Truncate(file) => Request::set(data(*file)?, Setting::Size(0)),
        })
    }

    pub(super) fn set_busy(&mut self, deed: &Deed, is_busy: bool) {
        match deed {
            Deed::Mount | Deed::MakeHome | Deed::FindHome => self.is_starting = is_busy,
            Deed::CreateFile(file) | Deed::Truncate(file) => {
                self.files[*file].busy = [is_busy; RANGES.len()];
            }
            Deed::Create(at, _)
            | Deed::MakeDirectory(at)
            | Deed::Symlink(at)
            | Deed::Remove(at)
            | Deed::RemoveDirectory(at)
            | Deed::Lookup(at) => self.names[*at].is_busy = is_busy,
            Deed::Rename(at, to) | Deed::Link(at, to) => {
                self.names[*at].is_busy = is_busy;
                self.names[*to].is_busy = is_busy;
            }
            Deed::Write { file, range, .. } | Deed::Read { file, range } => {
                self.files[*file].busy[*range] = is_busy;
            }
            Deed::Commit { file, .. } => self.files[*file].is_committing = is_busy,
        }
    }
}
