//! What the labels of a group say of it.

use crate::layout::Layout;
use crate::membership::group_state::GroupState;
use ondisk::label::DiskLabel;
use ondisk::log_copies::LogCopies;
use ondisk::scrub::ScrubRecord;
use units::DiskUuid;

/// What all labels of a group say that may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Told {
    pub missing: u32,
    pub rebuilding: u32,
    pub replacement: DiskUuid,
    pub trusted_cp: u64,
    pub away: u32,
    pub settled: u32,
}

impl Told {
    pub(crate) const fn of(label: &DiskLabel) -> Self {
        Self {
            missing: label.missing.get(),
            rebuilding: label.rebuilding.get(),
            replacement: label.replacement,
            trusted_cp: label.trusted_cp.get(),
            away: label.away.get(),
            settled: label.settled.get(),
        }
    }

    pub(crate) fn write_to(&self, label: &mut DiskLabel) {
        label.missing = self.missing.into();
        label.rebuilding = self.rebuilding.into();
        label.replacement = self.replacement;
        label.trusted_cp = self.trusted_cp.into();
        label.away = self.away.into();
        label.settled = self.settled.into();
    }
}

/// What the newest of the labels says of the scrub.
///
/// Changes are in the labels of the first group that is left. When it is removed they are in the
/// labels that say so, one of which may be of any other group.
pub(crate) fn newest_scrub(layout: &Layout, groups: &[GroupState]) -> ScrubRecord {
    let records = labels(layout, groups).map(|label| label.scrub);
    let record = records.max_by_key(|record| record.serial.get());
    record.unwrap_or_else(ScrubRecord::never)
}

/// What the newest says of the copies of the log.
pub(crate) fn newest_log_copies(layout: &Layout, groups: &[GroupState]) -> LogCopies {
    let records = labels(layout, groups).map(|label| label.log_copies);
    let record = records.max_by_key(|record| record.serial.get());
    record.unwrap_or_else(LogCopies::first_alone)
}

fn labels<'a>(
    layout: &'a Layout,
    groups: &'a [GroupState],
) -> impl Iterator<Item = DiskLabel> + 'a {
    layout.groups.iter().zip(groups).flat_map(|(group, disks)| {
        let unused = disks.unused();
        let devices = (0..group.members.len()).filter_map(move |at| group.device(at, unused));
        devices.map(|device| device.label())
    })
}
