//! A bound on the page cache of this process: a control group of its own (cgroup v1 or v2).
//!
//! The kernel charges a page of a file to the group of the process that first touches it, and drops
//! pages of that group to stay within its bound. So a file of four times the bound is not in memory
//! on a machine with much more, whoever has the file system.
//!
//! Invariants: only this process is in the group, and only during a load: servers that it starts
//! have the machine's memory. The group is within the groups that this process is in already.
//!
//! Fails: with a sentence, where this machine has no such groups or this process may not make them.

use crate::leftovers::Group;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// See the module.
pub(super) struct Bound(Group);

/// The group of a process, and what bounds one.
#[derive(PartialEq, Eq, Debug)]
struct Home {
    /// Where groups of its kind are made: v2 has no processes in groups with groups.
    parent: PathBuf,
    own: PathBuf,
    limit: &'static str,
}

impl Bound {
    /// A group of at most so many bytes.
    pub fn new(bytes: u64) -> Result<Self, String> {
        let read =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let home = home(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
            .ok_or("this machine has no control groups of memory")?;
        let path = home.parent.join(format!("stroop-bench-{}", std::process::id()));
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let group = Group::at(path.clone(), home.own);
        fs::create_dir(group.path()).map_err(failed)?;
        fs::write(group.path().join(home.limit), bytes.to_string()).map_err(failed)?;
        Ok(Self(group))
    }

    /// Runs a load within it.
    pub fn during<T>(&self, load: impl FnOnce() -> T) -> io::Result<T> {
        self.0.enter()?;
        let done = load();
        self.0.leave()?;
        Ok(done)
    }
}

/// Finds where this process is, in the tables of mounts and of its groups.
fn home(mounts: &str, groups: &str) -> Option<Home> {
    // A mount's line has its place fifth, and behind a dash its type, its source and its options.
    let mounted = |is_it: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut words = kind.split(' ');
            let (kind, options) = (words.next()?, words.nth(1)?);
            is_it(kind, options).then(|| PathBuf::from(place.split(' ').nth(4).unwrap_or("/")))
        })
    };
    let member = |names_it: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names_it(names).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let is_memory = |names: &str| names.split(',').any(|name| name == "memory");
    if let Some(path) = member(&is_memory) {
        let own = mounted(&|kind, options| kind == "cgroup" && is_memory(options))?.join(path);
        return Some(Home { parent: own.clone(), own, limit: "memory.limit_in_bytes" });
    }
    let (root, path) = (mounted(&|kind, _| kind == "cgroup2")?, member(&|names| names.is_empty())?);
    let own = root.join(path);
    // The root may have processes beside its groups.
    let parent = if own == root { root } else { own.parent().map(Path::to_owned)? };
    Some(Home { parent, own, limit: "memory.max" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
        30 23 0:26 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        31 23 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &str =
        "35 24 0:29 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_group_is_made_where_its_kind_allows_it() {
        let home = |mounts, groups| home(mounts, groups).map(|it| (it.parent, it.own, it.limit));
        let v1 = PathBuf::from("/sys/fs/cgroup/memory/jobs/7");
        let found = home(V1, "9:name=systemd:/\n4:cpu,memory:/jobs/7\n0::/\n");
        assert_eq!(found, Some((v1.clone(), v1, "memory.limit_in_bytes")));
        let root = PathBuf::from("/sys/fs/cgroup");
        let found = home(V2, "0::/user.slice/session.scope\n");
        let own = root.join("user.slice/session.scope");
        assert_eq!(found, Some((root.join("user.slice"), own, "memory.max")));
        assert_eq!(home(V2, "0::/\n"), Some((root.clone(), root, "memory.max")));
        assert_eq!(home("", "0::/\n"), None);
        assert_eq!(home(V2, "4:memory:/\n"), None);
    }

    /// The bound is too large to be felt: other tests run in this process meanwhile.
    #[test]
    fn a_load_is_in_the_group_and_nobody_is_afterwards() {
        const BYTES: u64 = 1 << 40;
        let bound = match Bound::new(BYTES) {
            Ok(bound) => bound,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let path = bound.0.path().to_owned();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let is_there = || fs::read_to_string("/proc/self/cgroup").unwrap().contains(&name);
        assert!(!is_there());
        assert!(bound.during(is_there).unwrap());
        assert!(!is_there());
        let limits = ["memory.limit_in_bytes", "memory.max"].map(|it| path.join(it));
        let limit = limits.iter().find_map(|limit| fs::read_to_string(limit).ok()).unwrap();
        assert_eq!(limit.trim(), BYTES.to_string());
        // Also where a load was not left as it should be.
        bound.0.enter().unwrap();
        drop(bound);
        assert!(!path.exists() && !is_there());
    }
}
