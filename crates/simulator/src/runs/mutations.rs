//! Breaks the engine's rules one after the other, and counts the seeds until each is noticed
//! (docs/testing.md, section 5): a check that has never failed is not known to work.
//!
//! Invariants: one rule is broken at a time, in the whole process; none is when this returns. The
//! seed that is named is the lowest that finds something, however many threads looked.

use crate::runs::run::{Outcome, first_finding};
use crate::seed::lives::MixChoice;
use crate::seed::lives::{FrontEnd, Lives};
use ondisk::label::RaidKind;
use platform::mutation::{Rule, break_rule};
use std::fmt;
use std::ops::Range;

/// How a broken rule was noticed, or that it was not.
#[derive(Debug)]
pub struct Row {
    /// The rule.
    pub rule: Rule,
    /// Seeds that were lived, the one that found something included.
    pub seeds: u64,
    /// What it found.
    pub outcome: Option<Outcome>,
}

impl Row {
    /// The finding's first line, cut to what fits a table.
    #[must_use]
    pub fn finding(&self) -> String {
        const LINE_BYTES_MAX: usize = 90;
        let finding = self.outcome.as_ref().and_then(|outcome| outcome.finding.as_ref());
        let text = finding.map_or_else(|| "NOT NOTICED".to_owned(), ToString::to_string);
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        // The first line of a panic is the place, the second the words.
        let line = match first.strip_prefix("panic: panicked at ") {
            Some(_) => format!("panic: {}", lines.next().unwrap_or_default()),
            None => first.to_owned(),
        };
        line.chars().take(LINE_BYTES_MAX).collect()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:26} {:>6}  {}", self.rule.name(), self.seeds, self.finding())
    }
}

/// The lives in which a rule shows: rules of the front ends where there are clients, rules of
/// management where there is an operator.
#[must_use]
pub fn lives_of(rule: Rule) -> Lives {
    let front_end = match rule {
        Rule::XidAnswersAnother
        | Rule::RepeatedCallRunsBeside
        | Rule::RepliesNotKept
        | Rule::RepeatedWriteDoneAgain
        | Rule::SupersededCopyFails
        | Rule::LateCopyDone
        | Rule::RepeatedLockDoneAgain
        | Rule::LocksInGrace
        | Rule::ExclusiveCreateRedone
        | Rule::SealUnchecked
        | Rule::VerifierKept => FrontEnd::Nfs,
        _ => FrontEnd::None,
    };
    let losing = match rule {
        Rule::PartialParityForgotten
        | Rule::WrittenBlocksForgotten
        | Rule::ServedBeforeNamed
        | Rule::LogLeftBehind => Some(RaidKind::Raid4),
        Rule::SuspectRowsKept => Some(RaidKind::Dp),
        _ => None,
    };
    let damaged = matches!(
        rule,
        Rule::DamageNotQuarantined
            | Rule::RevertForgotten
            | Rule::VolumeDamageUnmarked
            | Rule::GivenUpBlocksKept
    );
    // Parity is old where a row that was being written whole was torn. Disks are slow to return
    // where much is written.
    let wide = matches!(rule, Rule::OldParityTrusted | Rule::SuccessorsPlaceTaken);
    let guarantees = matches!(rule, Rule::GuaranteeNotKept | Rule::GuaranteeForgotten);
    let quotas = matches!(
        rule,
        Rule::QuotaPassed
            | Rule::QuotaNotGivenBack
            | Rule::QuotaRefusedEarly
            | Rule::TreeNotInherited
            | Rule::TreeLeft
            | Rule::TreeLimitsKept
    );
    let mix = match rule {
        // Only a new root of snapshots changes more of a superblock than one sector.
        Rule::SuperblockSlotKept => MixChoice::Snapshots,
        // Clones are of snapshots.
        Rule::SplitEndsEarly | Rule::SplitKeepsOwner | Rule::SplitUnsaid | Rule::SplitForgotten => {
            MixChoice::Snapshots
        }
        _ => MixChoice::Any,
    };
    let operator = matches!(
        rule,
        Rule::ResizeForgotten
            | Rule::LastVolumeForgotten
            | Rule::RenameForgotten
            | Rule::GuaranteeForgotten
            | Rule::DeletionUnnoted
            | Rule::DiskNameUnnoted
            | Rule::JobRateForgotten
            | Rule::DeletedRangeCutShort
            | Rule::OfflineForgotten
            | Rule::QueueingForgotten
            | Rule::UndeleteForgotten
            | Rule::PurgedEarly
            | Rule::ChangeAnsweredEarly
            | Rule::RulesToldEarly
            | Rule::RefusedRestoreDone
            | Rule::HeldSnapshotDeleted
            | Rule::HoldUnrecorded
            | Rule::OwnSnapshotRetired
            | Rule::DeletedVolumeExported
            | Rule::HalfMadeNameKept
            | Rule::DeletionToldEarly
            | Rule::GoneVolumeExported
    );
    let lacking = matches!(
        rule,
        Rule::NewerLabelPassedOver
            | Rule::NewerSuperblockPassedOver
            | Rule::NewerLogPassedOver
            | Rule::LackingVolumeLoaded
            | Rule::ReadOnlyFeatureWritten
            | Rule::LackingRecordChanged
            | Rule::CompatibleBitDropped
            | Rule::RefusedStartWrites
    );
    let log_copies =
        matches!(rule, Rule::LogCopyTrusted | Rule::JoiningCopyTrusted | Rule::StaleCopyRead);
    let lives = Lives { front_end, operator, mix, losing, wide, ..Lives::default() };
    let log_on_disks = matches!(
        rule,
        Rule::ServedBeforeNamed
            | Rule::LogLeftBehind
            | Rule::LogCopyLacking
            | Rule::LogStaysInGroup
    );
    Lives { damaged, guarantees, quotas, lacking, log_copies, log_on_disks, ..lives }
}

/// Breaks one rule, and lives seeds until one finds something.
#[must_use]
pub fn try_rule(rule: Rule, seeds: Range<u64>, lives: &Lives, jobs: usize) -> Row {
    let (first, all) = (seeds.start, seeds.end - seeds.start);
    break_rule(Some(rule));
    let outcome = first_finding(seeds, lives, jobs);
    break_rule(None);
    let lived = outcome.as_ref().map_or(all, |outcome| outcome.seed - first + 1);
    Row { rule, seeds: lived, outcome }
}

/// The rule of that name.
#[must_use]
pub fn rule_named(name: &str) -> Option<Rule> {
    Rule::ALL.iter().copied().find(|rule| rule.name() == name)
}
