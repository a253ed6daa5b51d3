//! Data and aggregates that are lost with disks taken by `--force`, and the question before that.
//!
//! Invariants: every disk that is not known to be unused is asked about, by name, and with it the
//! aggregate that it belongs to. The server takes a disk of an aggregate that is out of service
//! only if the request names the aggregate, so none is lost that was not shown here.

use crate::arguments::Options;
use crate::confirm::confirm;
use crate::terminal::Terminal;
use admin_api::{AdminError, DiskInfo, DiskState, Removal};

/// The data and the aggregates that are lost with disks.
pub(super) struct Losses {
    /// In prose.
    lines: Vec<String>,
    /// The aggregates that the disks belong to.
    pub aggregates: Vec<String>,
}

impl Losses {
    /// Of the disks that are `wanted`, if they may be taken by force.
    pub(super) fn of(known: &[DiskInfo], wanted: &[String], force: bool) -> Self {
        let mut losses = Self { lines: Vec::new(), aggregates: Vec::new() };
        let is_wanted = |disk: &&DiskInfo| force && wanted.contains(&disk.name);
        for disk in known.iter().filter(is_wanted) {
            if disk.state == DiskState::Unused {
                continue;
            }
            losses.lines.push(loss(disk));
            let owner = disk.aggregate.iter().filter(|one| !losses.aggregates.contains(one));
            losses.aggregates.extend(owner.cloned().collect::<Vec<_>>());
        }
        losses
    }

    /// Asks if all of it may be lost, unless there is nothing. Before, `rehearse` tells whether
    /// the server would do it at all.
    pub(super) fn confirm<T>(
        &self,
        (options, terminal): (&Options, &mut Terminal<'_>),
        (action, name): (&str, &str),
        rehearse: impl FnOnce() -> Result<T, AdminError>,
    ) -> Result<(), AdminError> {
        if self.lines.is_empty() {
            return Ok(());
        }
        rehearse()?;
        let (object, consequences) = (name.to_owned(), self.lines.clone());
        let removal = Removal::new(object, consequences, true);
        confirm(terminal, options, action, &removal)
    }
}

fn loss(disk: &DiskInfo) -> String {
    let (name, note) = (&disk.name, disk.note.as_deref());
    match (&disk.aggregate, disk.state) {
        (Some(owner), state) if state != DiskState::Foreign => format!(
            "{name} belongs to aggregate {owner}, which is out of service: without it {owner} comes \
             back degraded, or is lost"
        ),
        // By its label, which may be an old one, or of an aggregate that nobody knows here.
        (Some(owner), _) => format!(
            "{name}: {}; if it is a disk of {owner}, {owner} comes back degraded, or is lost",
            note.unwrap_or("it belongs to an aggregate")
        ),
        (None, _) => format!("{name} holds {}", note.unwrap_or("data")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::Administration as _;
    use admin_api::memory::MemoryAdministration;

    #[test]
    fn disks_that_are_not_unused_are_asked_about_with_their_aggregate() {
        let mut disks = MemoryAdministration::with_disks(5).disk_list().unwrap();
        let wanted: Vec<String> = disks.iter().map(|disk| disk.name.clone()).take(4).collect();
        let owner = Some("a1".to_owned());
        // As it was in an outage; of an aggregate that was not opened; foreign.
        (disks[1].state, disks[1].aggregate) = (DiskState::InUse, owner.clone());
        (disks[2].state, disks[2].aggregate) = (DiskState::Failed, owner);
        (disks[3].state, disks[3].note) = (DiskState::Foreign, Some("an ext4 file system".into()));
        (disks[4].state, disks[4].aggregate) = (DiskState::Failed, Some("a2".to_owned()));
        let losses = Losses::of(&disks, &wanted, true);
        assert_eq!(losses.aggregates, ["a1"]);
        assert_eq!(losses.lines.len(), 3);
        for (line, name) in losses.lines.iter().zip(["/disks/d2", "/disks/d3"]) {
            assert!(line.starts_with(name) && line.contains("aggregate a1"), "{line}");
            assert!(line.ends_with("a1 comes back degraded, or is lost"), "{line}");
        }
        assert_eq!(losses.lines[2], "/disks/d4 holds an ext4 file system");
        assert!(Losses::of(&disks, &wanted, false).lines.is_empty());
    }
}
