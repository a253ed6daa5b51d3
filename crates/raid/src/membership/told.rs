//! What the labels of a group say of it.

use ondisk::label::DiskLabel;

/// What all labels of a group say that may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Told {
    pub missing: u32,
    pub rebuilding: u32,
    pub successor: [u8; 16],
    pub trusted_cp: u64,
    pub away: u32,
    pub settled: u32,
}

impl Told {
    pub(crate) const fn of(label: &DiskLabel) -> Self {
        Self {
            missing: label.missing.get(),
            rebuilding: label.rebuilding.get(),
            successor: label.successor,
            trusted_cp: label.trusted_cp.get(),
            away: label.away.get(),
            settled: label.settled.get(),
        }
    }

    pub(crate) fn write_to(&self, label: &mut DiskLabel) {
        label.missing = self.missing.into();
        label.rebuilding = self.rebuilding.into();
        label.successor = self.successor;
        label.trusted_cp = self.trusted_cp.into();
        label.away = self.away.into();
        label.settled = self.settled.into();
    }
}
