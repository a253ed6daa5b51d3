//! Rules that can be broken on purpose, to see that the simulator notices (docs/testing.md,
//! section 5).
//!
//! The engine asks [`broken`] at the place where a rule lives. Without the feature `mutations` the
//! answer is a constant, so a released binary has nothing of this. With it, one rule at a time is
//! broken in the whole process: `break_rule`.
//!
//! Invariants: nothing is broken unless somebody said so; which rule is broken is the only state
//! of this module.

#[cfg(feature = "mutations")]
use std::sync::atomic::{AtomicU8, Ordering};

/// Declares the rules: variant, name on the command line, what the broken engine does.
macro_rules! rules {
    ($($rule:ident $name:literal $deed:literal)+) => {
        /// A rule of durability, space or exclusion.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Rule {
            $(
                #[doc = concat!("Broken: ", $deed, ".")]
                $rule,
            )+
        }

        impl Rule {
            /// All of them, in the order of the list in docs/testing.md.
            pub const ALL: &[Self] = &[$(Self::$rule),+];

            /// Its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $name),+ }
            }

            /// What the engine does when it is broken.
            #[must_use]
            pub const fn deed(self) -> &'static str {
                match self { $(Self::$rule => $deed),+ }
            }
        }
    };
}

rules! {
    SuperblockBeforeBlocks "superblock-before-blocks"
        "the superblock is written before the blocks that it points at are durable"
    SuperblockNotFlushed "superblock-not-flushed"
        "a consistency point commits though its superblock was not flushed"
    BlocksNotFlushed "blocks-not-flushed"
        "the superblock follows the writes of its blocks, but no flush"
    SuperblockSlotKept "superblock-slot-kept"
        "every superblock goes over the one before"
    ReuseBeforeCommit "reuse-before-commit"
        "a block that a consistency point freed is given again before it has committed"
    PinnedBlockUsed "pinned-block-used"
        "a block that a check still reads is given again"
    DiscardUnchecked "discard-unchecked"
        "what lies beside a freed block is discarded together with it"
    DelayedFreeGiven "delayed-free-given"
        "a number is given while the container map still has the block of its delayed free"
    ChangedBlockMoved "changed-block-moved"
        "a block is moved that the same consistency point writes anew or frees"
    ChangedBlockReallocated "changed-block-reallocated"
        "a block that changes while it is being reallocated keeps the number of its old content"
    ReallocationUnsaid "reallocation-unsaid"
        "readers of snapshots are not told that blocks lie elsewhere"
    GroupLeavesInUse "group-leaves-in-use"
        "a group of disks leaves while something in it is in use"
    OwnBlocksStay "own-blocks-stay"
        "blocks of the aggregate's own files stay in a group of disks that is to leave"
    HotBlockMoved "hot-block-moved"
        "a temperature scan moves what is not cold"
    ActiveBlockMoved "active-block-moved"
        "the policy snapshot-only moves what the active image has"
    ObjectsMiscounted "objects-miscounted"
        "what moves to object stores is not counted"
    FreeForgotten "free-forgotten"
        "now and then a block that nobody uses any more stays in use"
    FreeTwice "free-twice"
        "now and then a block is freed twice"
    ScoreForgotten "score-forgotten"
        "now and then the score of an allocation area does not follow what was freed in it"
    SnapshotHoldIgnored "snapshot-hold-ignored"
        "a block that a snapshot holds is free when the active image lets go of it"
    SummaryMapNotMerged "summary-map-not-merged"
        "a new snapshot's blocks do not come into the summary map"
    SnapshotFreesShared "snapshot-frees-shared"
        "deleting a snapshot frees what its neighbours hold, too"
    LogAcknowledgedEarly "log-acknowledged-early"
        "an operation is acknowledged when its record is in memory"
    LogNotFlushed "log-not-flushed"
        "an operation is acknowledged when its record is written and not flushed"
    LogCopyTrusted "log-copy-trusted"
        "what a copy of the log missed is acknowledged before that copy is known to have missed it"
    JoiningCopyTrusted "joining-copy-trusted"
        "a copy of the log counts as whole from the moment that it is written again"
    StaleCopyRead "stale-copy-read"
        "a copy of the log that missed records is replayed"
    ServedBeforeNamed "served-before-named"
        "an aggregate is served before the labels name all copies of its log"
    LogLeftBehind "log-left-behind"
        "a disk takes the place of another that has a copy of the log"
    LogCopyLacking "log-copy-lacking"
        "a log on the disks of its aggregate makes do with one copy less than it should have"
    LogStaysInGroup "log-stays-in-group"
        "copies of the log stay in a group of disks that is to leave"
    LogBatchUnchecked "log-batch-unchecked"
        "a torn batch of the log is replayed as if it were whole"
    LogHalfMissed "log-half-missed"
        "of two halves of the log with records only the later one is replayed"
    CleanDuringStart "clean-during-start"
        "the first consistency point after a clean stop writes before the log is said to be needed"
    CleanTooSoon "clean-too-soon"
        "a consistency point that began before a stop was asked for says that the log is not needed"
    LostLogReplaced "lost-log-replaced"
        "an aggregate whose log is lost and needed is opened without it, unasked"
    ContradictedParityKept "contradicted-parity-kept"
        "the scrub after a lost log leaves parity that contradicts what disks hold"
    LogRetiredEarly "log-retired-early"
        "a half of the log is retired before the consistency point has committed"
    CommittedRecordsReplayed "committed-records-replayed"
        "records that the superblock's image holds are replayed again"
    RecordReplayedTwice "record-replayed-twice"
        "replay applies a record twice"
    LinkNotReplayed "link-not-replayed"
        "replay of a link enters the name and leaves the count of links"
    StableWriteNotLogged "stable-write-not-logged"
        "a stable write is answered and has no record"
    ParityNotRecovered "parity-not-recovered"
        "after a crash the parity of noted stripes is left as it is"
    StripeNotNoted "stripe-not-noted"
        "a stripe is written in part without a note in the log"
    PartialParityForgotten "partial-parity-forgotten"
        "after a crash what lost disks hold in noted stripes is taken from the other disks alone"
    WrittenBlocksForgotten "written-blocks-forgotten"
        "a note takes blocks for stable that an earlier batch of the same consistency point wrote"
    NotesRetiredUnflushed "notes-retired-unflushed"
        "room of notes is used again before what they protect is flushed"
    OldParityTrusted "old-parity-trusted"
        "new parity is made from old parity without proof of it"
    ParityStale "parity-stale"
        "parity is left as it was where a stripe is written in part"
    IdentityUnchecked "identity-unchecked"
        "blocks are folded into parity without a look at their identities"
    ContentUnchecked "content-unchecked"
        "what a disk gives for a block is taken without a look at the pointer's checksum"
    MissingDiskUnlabelled "missing-disk-unlabelled"
        "the labels do not say that a disk has missed writes"
    ErrorsNotSaved "errors-not-saved"
        "the errors of a disk are counted, and not in its label when the node stops"
    SickTooSoon "sick-too-soon"
        "a disk with two errors is sick"
    SuspectRowsKept "suspect-rows-kept"
        "of a disk that went and is back, rows that it may have lost are taken as they are"
    OrphanForgotten "orphan-forgotten"
        "a file that lost its last name while it was held is not on the orphan list"
    PromiseNotTaken "promise-not-taken"
        "operations are accepted without a promise of space"
    GenerationNotRestarted "generation-not-restarted"
        "after a crash generations go on where the last commit left them"
    InodeReusedEarly "inode-reused-early"
        "a freed inode number is used again before its end has committed"
    CacheEntryKept "cache-entry-kept"
        "the cache keeps what it had of a block number that is used again"
    TruncationKeepsTail "truncation-keeps-tail"
        "a truncated file's last block keeps what lay beyond the new end"
    ConflictingAffinities "conflicting-affinities"
        "an affinity runs beside one that covers it"
    RestartAfterMutation "restart-after-mutation"
        "an operation that has changed something waits and runs again"
    AdoptedSuperblockKept "adopted-superblock-kept"
        "a start does not write the superblock that it found to the disks that have an older one"
    UnreadableSlotIgnored "unreadable-slot-ignored"
        "a superblock slot that cannot be read on any disk is taken for an older one"
    RestoresUnpromised "restores-unpromised"
        "what restores and deletions of snapshots write is promised to nobody"
    RottenSlotIgnored "rotten-slot-ignored"
        "a superblock that has rotted on all disks is taken for one that was torn"
    RestoredSnapshotDeleted "restored-snapshot-deleted"
        "a snapshot may be deleted at the freeze at which it is restored"
    HoldsByInode "holds-by-inode"
        "a hold is of an inode number, whichever file has it"
    LowerSuperblockWins "lower-superblock-wins"
        "a start takes the superblock of the lowest consistency point"
    DamageNotQuarantined "damage-not-quarantined"
        "a file that cannot be read ends the consistency point, and the service of its aggregate"
    RevertForgotten "revert-forgotten"
        "what was placed and freed for a file before a block of it could not be read is kept"
    VolumeDamageUnmarked "volume-damage-unmarked"
        "nothing on media says that a volume was left out by a consistency point"
    GivenUpBlocksKept "given-up-blocks-kept"
        "what a volume had placed stays in use when its consistency point is given up"
    MemoryCountedTogether "memory-counted-together"
        "an aggregate may fill all of the node's dirty memory, whatever others are guaranteed"
    WrittenTakenTwice "written-taken-twice"
        "blocks of an image that disks have taken are taken off the dirty memory again at the commit"
    HalfKeepsIncarnation "half-keeps-incarnation"
        "a log that is opened writes batches of the same incarnation as before"
    CommittedNotesBelieved "committed-notes-believed"
        "notes of stripes are believed though the consistency point that wrote them has committed"
    OperationsDuringRestore "operations-during-restore"
        "operations run while a restore of their volume is under way"
    RenameMakesLoop "rename-makes-loop"
        "a directory may be moved below itself"
    HolesAppliedAgain "holes-applied-again"
        "the holes of a consistency point are applied again in the next one"
    CommitForgetsFrozen "commit-forgets-frozen"
        "COMMIT does not log what a running consistency point is writing"
    BigCommitAnswered "big-commit-answered"
        "a COMMIT of more than the log takes is answered before a consistency point"
    StableWriteHidesUnlogged "stable-write-hides-unlogged"
        "a stable write into a block makes COMMIT leave out what is not in the log of it"
    AppendBeforeUnlogged "append-before-unlogged"
        "an append goes to the first block of the file whose write is not in the log"
    XidAnswersAnother "xid-answers-another"
        "an xid that is used again gets another call's answer"
    RepeatedCallRunsBeside "repeated-call-runs-beside"
        "a call that is repeated while it is being done runs a second time beside the first"
    RepliesNotKept "replies-not-kept"
        "a call that is repeated after its answer is done again"
    RepeatedWriteDoneAgain "repeated-write-done-again"
        "a WRITE that is repeated is done again, beside the first or after it"
    RepeatedLockDoneAgain "repeated-lock-done-again"
        "a LOCK or UNLOCK that is repeated is done again"
    LateCopyDone "late-copy-done"
        "a copy of a call that is read late is done again when its answer was forgotten"
    SupersededCopyFails "superseded-copy-fails"
        "a copy of a call that a newer copy takes the place of is answered an error"
    NewerLabelPassedOver "newer-label-passed-over"
        "a copy of a disk label that a newer build wrote is passed over for the other copy"
    NewerSuperblockPassedOver "newer-superblock-passed-over"
        "a superblock that a newer build wrote is passed over for another"
    NewerLogPassedOver "newer-log-passed-over"
        "a copy of the log's header that a newer build wrote is passed over for the other copy"
    LackingVolumeLoaded "lacking-volume-loaded"
        "a volume with an incompatible feature that the build lacks is loaded"
    ReadOnlyFeatureWritten "read-only-feature-written"
        "a volume with a read-only compatible feature that the build lacks takes changes"
    LackingRecordChanged "lacking-record-changed"
        "the record of a volume with a feature that the build lacks is changed on request"
    CompatibleBitDropped "compatible-bit-dropped"
        "a consistency point drops compatible features that the build lacks"
    RefusedStartWrites "refused-start-writes"
        "a start writes superblocks before it has looked at the log's header"
    WaitersReversed "waiters-reversed"
        "operations that wait for room are woken last in, first out"
    LocksInGrace "locks-in-grace"
        "new locks are granted in the grace period"
    ExclusiveCreateRedone "exclusive-create-redone"
        "an exclusive CREATE that is repeated after a restart does not find its file"
    ResizeForgotten "resize-forgotten"
        "a volume's new size is not written"
    GrowthUnrecorded "growth-unrecorded"
        "the new size of a volume that grew by itself is not written"
    GrowthUnbounded "growth-unbounded"
        "a volume grows beyond the largest size that it was given"
    GrowthRefused "growth-refused"
        "who finds no room is refused though the volume could grow"
    AutodeleteRefused "autodelete-refused"
        "who finds no room is refused though the volume could delete a snapshot by itself"
    OwnSnapshotAutodeleted "own-snapshot-autodeleted"
        "a volume that is to delete snapshots of schedules deletes the oldest, whoever took it"
    GuaranteeNotKept "guarantee-not-kept"
        "room that is guaranteed to a volume is given to others"
    QuotaPassed "quota-passed"
        "an operation is admitted that makes an owner use more than its hard limit"
    QuotaNotGivenBack "quota-not-given-back"
        "what an owner does not use any more is counted on"
    QuotaRefusedEarly "quota-refused-early"
        "an operation is refused though the next image may have room under the limit"
    TreeNotInherited "tree-not-inherited"
        "what is made in a directory of a quota tree does not count to the tree"
    TreeLeft "tree-left"
        "a file gets a name outside of its quota tree"
    TreeLimitsKept "tree-limits-kept"
        "limits of a quota tree stay when its directory is removed"
    GuaranteeForgotten "guarantee-forgotten"
        "a volume's new guarantee is not written"
    LastVolumeForgotten "last-volume-forgotten"
        "of several volumes that are made together the last is not written"
    CloneUnwritten "clone-unwritten"
        "a clone's record does not say what it is a clone of"
    AncestorNotAsked "ancestor-not-asked"
        "where a clone's container map has a hole its parent's is not asked"
    BaseUnpinned "base-unpinned"
        "a snapshot is deleted that a clone began with"
    ParentUnpinned "parent-unpinned"
        "a volume is deleted that has clones"
    InheritedFreeDelayed "inherited-free-delayed"
        "a clone delays frees of blocks that are its parent's"
    SplitEndsEarly "split-ends-early"
        "a clone counts as split from its parent when the first blocks were copied"
    SplitKeepsOwner "split-keeps-owner"
        "what is copied for a split says that it is the parent's still"
    SplitUnsaid "split-unsaid"
        "that copies lie elsewhere than pointers of the clone say is not noted"
    SplitForgotten "split-forgotten"
        "the record of a clone that was split still names its parent"
    DiscardForgotten "discard-forgotten"
        "a clone does not note which trees of its parent's snapshot it has let go of"
    RenameForgotten "rename-forgotten"
        "a volume's new name is not written"
    OfflineForgotten "offline-forgotten"
        "that a volume is offline is not written"
    QueueingForgotten "queueing-forgotten"
        "that a volume was deleted and is kept is not written"
    UndeleteForgotten "undelete-forgotten"
        "that a deleted volume came back is not written"
    PurgedEarly "purged-early"
        "a deleted volume is purged before its time"
    DeletionUnnoted "deletion-unnoted"
        "the labels of an aggregate are erased before it is noted that it is deleted"
    DiskNameUnnoted "disk-name-unnoted"
        "the short name of a disk is shown and not kept"
    JobRateForgotten "job-rate-forgotten"
        "after a start work goes on as fast as it can though its job has a rate"
    SealUnchecked "seal-unchecked"
        "a handle is taken from a client without a look at its code"
    VerifierKept "verifier-kept"
        "the write verifier is not renewed after an outage"
    ChangeAnsweredEarly "change-answered-early"
        "a change of export rules is answered before it is durable"
    RulesToldEarly "rules-told-early"
        "clients are let in by export rules that are not durable yet"
    RefusedRestoreDone "refused-restore-done"
        "a restore that is refused because of newer snapshots is done all the same"
    DeletedVolumeExported "deleted-volume-exported"
        "clients go on to see a volume that was deleted"
    HalfMadeNameKept "half-made-name-kept"
        "an aggregate whose creation was cut off keeps its name"
    DeletionToldEarly "deletion-told-early"
        "clients of a volume that is being deleted are told that it is gone before that is durable"
    GoneVolumeExported "gone-volume-exported"
        "a volume whose deletion an outage cut off stays exported though it is gone"
    SpanCutShort "span-cut-short"
        "blocks that several snapshots share are counted as if each alone had them"
    DeletedRangeCutShort "deleted-range-cut-short"
        "of several snapshots that are deleted together the newest stays"
    HeldSnapshotDeleted "held-snapshot-deleted"
        "a snapshot is deleted though an administrator holds it"
    RenameUntold "rename-untold"
        "a file of which only the names changed is no difference between snapshots"
    OwnSnapshotRetired "own-snapshot-retired"
        "a schedule deletes snapshots that somebody has taken"
    HoldUnrecorded "hold-unrecorded"
        "who holds a snapshot is forgotten at a start"
    InheritedCounted "inherited-counted"
        "what a clone's snapshots inherited is counted as what comes back when they are deleted"
    SuccessorsPlaceTaken "successors-place-taken"
        "a disk that returns takes the place that another disk has had since"
    AccessListIgnored "access-list-ignored"
        "what a file's access control list says is not looked at"
    ListsUnnoted "lists-unnoted"
        "a volume's record does not say that files have access control lists"
    InheritanceNotReplayed "inheritance-not-replayed"
        "a replay makes a file without the access control lists that it inherited"
}

#[cfg(feature = "mutations")]
static BROKEN: AtomicU8 = AtomicU8::new(u8::MAX);

/// Breaks a rule in the whole process, or none.
#[cfg(feature = "mutations")]
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.store(rule.map_or(u8::MAX, |rule| rule as u8), Ordering::Relaxed);
}

/// Whether a rule is broken on purpose.
#[cfg(feature = "mutations")]
#[must_use]
pub fn broken(rule: Rule) -> bool {
    BROKEN.load(Ordering::Relaxed) == rule as u8
}

/// Whether a rule is broken on purpose: never, in a build without the feature `mutations`.
#[cfg(not(feature = "mutations"))]
#[must_use]
#[inline(always)]
pub const fn broken(_: Rule) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_nothing_is_broken_unless_told() {
        let mut names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
        assert!(Rule::ALL.iter().all(|rule| !broken(*rule) && !rule.deed().is_empty()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
    }
}
