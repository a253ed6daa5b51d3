//! Which blocks of volumes have been damaged for good, and what follows from that.

use crate::seed::finding::Finding;
use inspect::{Finding as MediaFinding, Report};
use std::collections::BTreeSet;
use units::{InodeNumber, Pvbn, VolumeId};

/// What has been damaged.
#[derive(Default)]
pub struct Damages {
    blocks: u64,
    /// Volumes of which a metafile or the container map was damaged: what the reader of media says
    /// of them follows from that.
    metafiles: BTreeSet<VolumeId>,
    /// Files of which a block was damaged.
    files: BTreeSet<(VolumeId, InodeNumber)>,
    /// Where they lay.
    places: BTreeSet<Pvbn>,
    /// A container map was damaged: the aggregate's blocks below it are reached by nothing.
    has_container: bool,
}

impl Damages {
    /// Whether anything has been damaged.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.blocks > 0
    }

    /// How many blocks have been.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// A block was damaged, at this place: one of a file of a volume, of no file but the volume's
    /// own, or of its container map.
    pub fn add(
        &mut self,
        (volume, file): (VolumeId, Option<InodeNumber>),
        is_container: bool,
        place: Pvbn,
    ) {
        self.places.insert(place);
        self.blocks += 1;
        match file {
            None => self.metafiles.insert(volume),
            Some(file) => self.files.insert((volume, file)),
        };
        self.has_container |= is_container;
    }

    /// Whether any block of a volume has been.
    #[must_use]
    pub fn is_of(&self, volume: VolumeId) -> bool {
        self.metafiles.contains(&volume) || self.files.iter().any(|(of, _)| *of == volume)
    }

    /// Whether a block of a file has been, or the one at this place.
    #[must_use]
    pub fn is_of_file(&self, volume: VolumeId, file: InodeNumber, place: Pvbn) -> bool {
        self.files.contains(&(volume, file)) || self.places.contains(&place)
    }

    fn explains(&self, finding: &MediaFinding, is_traditional: bool) -> bool {
        let is_of_aggregate = finding.volume() == Some(VolumeId(0)) && !is_traditional;
        let is_kept = matches!(finding, MediaFinding::MapExtra { .. });
        if is_of_aggregate && is_kept {
            // What a volume frees the aggregate frees, whatever becomes of the volume.
            return self.has_container;
        }
        let is_of_metafile = |volume| self.metafiles.contains(&volume);
        is_of_damage(finding) || finding.volume().is_some_and(is_of_metafile)
    }

    /// What the reader of media may find after blocks were damaged.
    pub fn check_media(&self, report: &Report, is_traditional: bool) -> Result<(), Finding> {
        let wrong: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| !self.explains(finding, is_traditional))
            .map(ToString::to_string)
            .collect();
        if wrong.is_empty() { Ok(()) } else { Err(Finding::Media(wrong.join("\n"))) }
    }
}

/// Whether a finding says that a file is lost, and no more: blocks that cannot be read, blocks that
/// stay in use because nothing that can be read leads to them, names that a lost block had.
const fn is_of_damage(finding: &MediaFinding) -> bool {
    matches!(
        finding,
        MediaFinding::Damaged { .. }
            | MediaFinding::Unreadable { .. }
            | MediaFinding::MapExtra { .. }
            | MediaFinding::SummaryExtra { .. }
            | MediaFinding::BlockCount { .. }
            | MediaFinding::Directory { .. }
            | MediaFinding::Entry { .. }
            | MediaFinding::Links { .. }
            | MediaFinding::Unreachable { .. }
            | MediaFinding::Attributes { .. }
    )
}
