//! What an aggregate survives, as a whole: as much as the weakest of its groups.
//!
//! A group in an object store has no parity and survives what its store promises. Nothing is known
//! of that, so such groups are told beside the others and not counted among them.
//!
//! Fails: never.

use crate::replies::{DiskInfo, DiskRole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a medium is called that is an object store.
const OBJECT: &str = "object";

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Protection {
    /// So many disks may fail, whichever they are; nothing if all groups are in object stores.
    pub disk_failures: Option<u64>,
    /// Groups in object stores.
    pub object_groups: u64,
}

impl Protection {
    /// That of an aggregate with these disks.
    #[must_use]
    pub fn of(disks: &[DiskInfo]) -> Self {
        let mut parity: BTreeMap<u32, u64> = BTreeMap::new();
        let mut protection = Self::default();
        for disk in disks {
            let Some(group) = disk.group else { continue };
            match disk.role {
                Some(DiskRole::Data) if disk.media.as_deref() == Some(OBJECT) => {
                    protection.object_groups += 1;
                }
                Some(DiskRole::Data) => *parity.entry(group).or_default() += 0,
                Some(DiskRole::Parity) => *parity.entry(group).or_default() += 1,
                _ => {}
            }
        }
        protection.disk_failures = parity.into_values().min();
        protection
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.disk_failures {
            None => return formatter.write_str("as safe as its object store"),
            Some(0) => formatter.write_str("loses data with any disk that fails")?,
            Some(1) => formatter.write_str("survives 1 disk failure")?,
            Some(count) => write!(formatter, "survives {count} disk failures")?,
        }
        match self.object_groups {
            0 => Ok(()),
            1 => formatter.write_str("; its object range is as safe as the store"),
            _ => formatter.write_str("; its object ranges are as safe as the stores"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Administration as _;
    use crate::memory::MemoryAdministration;

    fn disk(group: Option<u32>, role: DiskRole, media: &str) -> DiskInfo {
        let known = MemoryAdministration::with_disks(1).disk_list().unwrap().remove(0);
        DiskInfo { group, role: Some(role), media: Some(media.to_owned()), ..known }
    }

    #[test]
    fn the_whole_survives_what_its_weakest_group_does() {
        let hdd = |group, role| disk(Some(group), role, "hdd");
        let (data, parity) = (DiskRole::Data, DiskRole::Parity);
        let mut disks = vec![
            hdd(0, parity),
            hdd(0, parity),
            hdd(0, data),
            hdd(1, parity),
            hdd(1, data),
            disk(None, DiskRole::Spare, "hdd"),
        ];
        assert_eq!(Protection::of(&disks).to_string(), "survives 1 disk failure");
        disks.push(disk(Some(2), data, "object"));
        assert_eq!(
            Protection::of(&disks).to_string(),
            "survives 1 disk failure; its object range is as safe as the store"
        );
        disks.push(hdd(3, data));
        assert_eq!(Protection::of(&disks).disk_failures, Some(0));
        let object = [disk(Some(0), data, "object")];
        assert_eq!(Protection::of(&object).to_string(), "as safe as its object store");
    }
}
