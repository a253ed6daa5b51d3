//! Lists of a volume's quotas, as of its last commit, beside clients and consistency points
//! ([`crate::beside`]).
//!
//! Invariants: nothing is changed; a list is of one image.
//!
//! Fails: [`aggregate::AggregateError`], where the quota file cannot be read, the aggregate has
//! failed, or the volume is gone meanwhile.

use crate::beside::{MayGoOn, Part, Work, WorkDone};
use crate::flexible::FlexibleVolume;
use crate::front::Front;
use crate::traditional::TraditionalVolume;
use affinity::Access;
use aggregate::Aggregate;
use cowfs::buftree::Root;
use cowfs::pointer::Pointer;
use cowfs::quotas::table::{list_quotas, read_others, read_quota};
use cowfs::quotas::{Limits, QuotaFile};
use cowfs::reader::{Progress, Reader};
use ondisk::quota::{ALL_INODES, QUOTA_KINDS, QuotaKey, QuotaRecord};
use std::sync::Arc;
use units::{Fbn, VolumeId};

/// Records that one call lists at most.
pub const LISTED_QUOTAS_MAX: usize = 1000;

/// A user, a group or a tree, what it uses, and what it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Who.
    pub key: QuotaKey,
    /// Data blocks of its files.
    pub used_blocks: u64,
    /// Its files.
    pub used_files: u64,
    /// Its limits.
    pub limits: Limits,
    /// They are its own, and not those of the others of its kind.
    pub is_own: bool,
}

/// What a list of quotas begins with, and how it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaList {
    /// The volume counts what is used.
    pub is_counting: bool,
    /// All files are counted: limits hold.
    pub are_all_counted: bool,
    /// Inodes below this number are counted.
    pub counted_inodes: u64,
    /// The limits of users, groups and trees that have none of their own.
    pub others: [Limits; QUOTA_KINDS],
    /// In the order of their numbers, by groups of 64 of each kind.
    pub quotas: Vec<Quota>,
    /// Where the next page begins, if there is more.
    pub next: Option<(Fbn, usize)>,
}

/// Which quotas are listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// One.
    One(QuotaKey),
    /// Those that say something, from a place of the quota file on.
    From(Fbn, usize),
}

/// Is told a list.
pub type ListDone = WorkDone<QuotaList>;

/// Lists quotas of a flexible volume as of the last commit, beside everything else.
pub fn of_flexible(
    volume: &Arc<FlexibleVolume>,
    aggregate: &Arc<Aggregate>,
    listed: Listed,
    outcome: (MayGoOn, ListDone),
) {
    begin((volume, |volume| &volume.front), aggregate, listed, outcome);
}

/// The same of a traditional volume.
pub fn of_traditional(
    volume: &Arc<TraditionalVolume>,
    aggregate: &Arc<Aggregate>,
    listed: Listed,
    outcome: (MayGoOn, ListDone),
) {
    begin((volume, |volume| &volume.front), aggregate, listed, outcome);
}

/// The front of a volume.
type FrontOf<V, P> = fn(&V) -> &Front<P>;

fn begin<V: Send + Sync + 'static, P: Pointer>(
    (volume, front_of): (&Arc<V>, FrontOf<V, P>),
    aggregate: &Arc<Aggregate>,
    listed: Listed,
    (may_go_on, done): (MayGoOn, ListDone),
) {
    let affinity = front_of(volume).affinities.logical;
    let volume = Arc::clone(volume);
    let part: Part<QuotaList> = Box::new(move |access: &mut Access<'_>, reader| {
        let logical = front_of(&volume).logical.read(access);
        let (root, number) = (logical.inode_file, logical.volume);
        list((&root, number), listed, reader).map(|list| Ok(Some(list)))
    });
    let (failed, aggregate) = ("its quotas cannot be listed", Arc::clone(aggregate));
    Work { aggregate, affinity, part, failed, may_go_on, done }.send();
}

/// Lists quotas of the image that this inode file is of.
fn list<P: Pointer>(
    (inode_file, volume): (&Root<P>, VolumeId),
    listed: Listed,
    reader: &Reader<'_>,
) -> Progress<QuotaList> {
    let file = QuotaFile::load(inode_file, volume, reader)?;
    let others = read_others(&file.root, volume, reader)?;
    let (records, next) = match listed {
        Listed::One(key) => (vec![(key, read_quota(&file.root, volume, key, reader)?)], None),
        Listed::From(fbn, slot) => {
            list_quotas(&file.root, volume, (fbn, slot), LISTED_QUOTAS_MAX, reader)?
        }
    };
    let quota = |(key, record): (QuotaKey, QuotaRecord)| Quota {
        key,
        used_blocks: record.used_blocks.get(),
        used_files: record.used_files.get(),
        limits: Limits::effective(key, &record, &others[key.kind as usize]),
        is_own: record.is_set(),
    };
    Ok(QuotaList {
        is_counting: file.is_counting(),
        are_all_counted: file.counted_inodes == ALL_INODES,
        counted_inodes: file.counted_inodes,
        quotas: records.into_iter().map(quota).collect(),
        others: others.map(|record| Limits::of(&record)),
        next,
    })
}
