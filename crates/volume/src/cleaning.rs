//! The cleaning of a flexible volume's image at a consistency point: its files by several messages
//! at once ([`crate::shares`]), then what belongs to all of them by one.
//!
//! Invariants: the vol_info block is the last that a cleaning writes. While shares are cleaned
//! nothing else of the cleaning runs.
//!
//! Fails: where a file's tree cannot be read that file is given up (`cowfs::image`). Where the
//! volume's maps or its inode file cannot be read, or contradict one another, the volume stays as
//! the last commit has it, read-only from then on ([`crate::damage`]).

use crate::backend::{DualBackend, Holdings};
use crate::damage::VolumeDamage;
use crate::flexible::{FlexibleVolume, VbnSide};
use crate::front::SHARES_MAX;
use crate::shares::{Share, Shares};
use crate::under_way::{Cleaned, Finished, VolumeCleaning};
use crate::work::file_work;
use affinity::{Access, Outcome};
use aggregate::{Aggregate, AggregateError, FreezeContext, MemberCleaned, vol_info_place};
use cowfs::image::{ImageCleaner, ImageFiles};
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::space::{Base, DiscardPlace};
use ondisk::pointer::DualPointer;
use ondisk::root::{FileSystemRoot, VOL_INFO_VVBN, VolInfo};
use platform::mutation::{self, Rule};
use platform::stage::{self, Stage};
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::Pvbn;
use zerocopy::little_endian::{I64, U32, U64};

/// Blocks that one message keeps loaded before it lets go of them.
const HELD_BLOCKS_MAX: usize = 4096;
const UNREADABLE: &str = "what it cannot live without cannot be read";

impl FlexibleVolume {
    /// Begins the cleaning, and goes on with it.
    pub(crate) fn clean(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        access: &mut Access<'_>,
    ) -> Outcome {
        if aggregate.is_failed() {
            return Outcome::Done;
        }
        let side = self.vbn.write(access);
        let Some(mut cleaning) = side.cleaning.take() else {
            unreachable!("a volume's cleaning runs until it is finished")
        };
        match self.go_on(aggregate, side, &mut cleaning) {
            Ok(true) => {
                self.finish(aggregate, side, cleaning);
                Outcome::Done
            }
            Ok(false) => {
                side.cleaning = Some(cleaning);
                Outcome::Done
            }
            Err(Stop::Wait(wait)) => {
                cleaning.held.trim(HELD_BLOCKS_MAX);
                let held = cleaning.held.clone();
                side.cleaning = Some(cleaning);
                aggregate.suspend(wait, &held)
            }
            Err(stop) => {
                self.give_up(aggregate, side, cleaning, &stop);
                Outcome::Done
            }
        }
    }

    /// Whether the cleaning is finished; if not, shares of the files are being cleaned.
    fn go_on(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        side: &mut VbnSide,
        cleaning: &mut VolumeCleaning,
    ) -> Progress<bool> {
        if cleaning.cleaner.is_none() {
            let Some((facts, mut image)) = cleaning.image.take() else {
                unreachable!("a cleaning begins once")
            };
            let work = file_work(&mut image);
            side.space.choice = aggregate.parts.tuning.volume_choice;
            let mut cleaner = ImageCleaner::new(facts, work, &side.space)
                .with_scan(cleaning.scan_blocks_max)
                .with_delay(cleaning.delay_limits);
            cleaning.files = Some(cleaner.take_files().split(SHARES_MAX));
            cleaning.cleaner = Some(cleaner);
        }
        if let Some(shares) = self.share_out(aggregate, side, cleaning)? {
            self.send_shares(aggregate, cleaning, shares);
            return Ok(false);
        }
        if let Some(shares) = cleaning.shares.take() {
            if let Some(stop) = shares.take_failure() {
                shares.take().into_iter().for_each(|share| cleaning.holdings.join(share.holdings));
                return Err(stop);
            }
            join(side, cleaning, &shares);
        }
        self.step(aggregate, side, cleaning)?;
        Ok(true)
    }

    /// The files in shares, if there are enough of them for several, and numbers.
    fn share_out(
        &self,
        aggregate: &Aggregate,
        side: &mut VbnSide,
        cleaning: &mut VolumeCleaning,
    ) -> Progress<Option<Vec<Share>>> {
        let files = cleaning.files.take();
        let (Some(files), Some(cleaner)) = (files, &mut cleaning.cleaner) else { return Ok(None) };
        let reader = Reader { cache: &aggregate.parts.cache, held: &cleaning.held };
        let numbers = files.iter().map(ImageFiles::numbers_max).sum();
        // Looking for more than there is would go through all maps.
        let is_worth_it = files.len() > 1 && numbers as u64 <= side.space.free_numbers() / 2;
        let filled = is_worth_it.then(|| side.space.fill_pool(numbers, &reader));
        match filled {
            Some(Ok(())) => {}
            Some(Err(stop @ Stop::Wait(_))) => {
                cleaning.files = Some(files);
                return Err(stop);
            }
            // Little to do, or the volume is nearly full: one after another they need no more than
            // was promised.
            None | Some(Err(_)) => {
                files.into_iter().for_each(|share| cleaner.put_files(share, 0));
                return Ok(None);
            }
        }
        let share = |files: ImageFiles<DualPointer>| {
            let numbers = side.space.reserve(files.numbers_max());
            Share::new(files, numbers)
        };
        Ok(Some(files.into_iter().map(share).collect()))
    }

    fn finish(&self, aggregate: &Arc<Aggregate>, side: &mut VbnSide, cleaning: VolumeCleaning) {
        let VolumeCleaning { cleaner, holdings, dirty_blocks, .. } = cleaning;
        let Holdings { reserved, used, updates, wasted, reallocated_from, reallocated } = holdings;
        aggregate.pool.forfeit(used, reserved.into_iter());
        let Some(mut cleaner) = cleaner else { unreachable!("what is finished was begun") };
        let written = cleaner.written();
        aggregate.statistics.blocks_written.fetch_add(written, Ordering::Relaxed);
        let given_up = cleaner.take_given_up();
        let cleaned = cleaner.take_cleaned();
        side.finished = Some(Cleaned::Whole(Finished { cleaned, dirty_blocks, given_up }));
        if reallocated.is_no_better_than(&reallocated_from) {
            self.front.pause_reallocation(cleaning.context.cp);
        }
        aggregate.member_cleaned(MemberCleaned {
            updates,
            wasted,
            reallocated,
            has_snapshots: !side.space.snapshots.is_empty(),
            ..MemberCleaned::of(self.front.id)
        });
    }

    /// The volume cannot go on: nothing of the cleaning stays, and its blocks are nobody's.
    fn give_up(
        &self,
        aggregate: &Arc<Aggregate>,
        side: &mut VbnSide,
        cleaning: VolumeCleaning,
        stop: &Stop,
    ) {
        if aggregate.may_pass(stop) {
            return aggregate.fail(match stop {
                Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
                    AggregateError::Unreadable { what: "a metafile of a volume", pvbn: *pvbn }
                }
                Stop::OtherBuild(damage) => AggregateError::other_build("a volume", *damage),
                _ => AggregateError::Contradiction { what: "a volume", problem: UNREADABLE },
            });
        }
        let damage = VolumeDamage::of(stop);
        if mutation::broken(Rule::DamageNotQuarantined) {
            let problem = UNREADABLE;
            return aggregate.fail(AggregateError::Contradiction { what: "a volume", problem });
        }
        self.front.set_damage(damage);
        let Holdings { reserved, used, updates, wasted, .. } = cleaning.holdings;
        // Addresses are taken before there is an update of them, and those of shares are forfeited.
        let mut placed: FxHashSet<Pvbn> = used.iter().chain(&wasted).copied().collect();
        placed.extend(updates.iter().filter_map(|(_, pointer)| pointer.map(|one| one.pvbn)));
        let mut wasted: Vec<Pvbn> = placed.into_iter().collect();
        wasted.sort_unstable();
        aggregate.pool.forfeit(used, reserved.into_iter());
        side.finished = Some(Cleaned::Damaged);
        let cleaned = MemberCleaned::of(self.front.id);
        if mutation::broken(Rule::GivenUpBlocksKept) {
            wasted.clear();
        }
        aggregate.member_cleaned(MemberCleaned { wasted, is_damaged: true, ..cleaned });
    }

    /// Cleans what belongs to all files, and writes the vol_info.
    fn step(
        &self,
        aggregate: &Arc<Aggregate>,
        side: &mut VbnSide,
        cleaning: &mut VolumeCleaning,
    ) -> Progress<()> {
        let _stage = stage::enter(Stage::Clean);
        let reader = Reader { cache: &aggregate.parts.cache, held: &cleaning.held };
        let cp = cleaning.context.cp;
        let mut backend = DualBackend { aggregate, holdings: &mut cleaning.holdings, cp };
        let Some(cleaner) = &mut cleaning.cleaner else { unreachable!("made before") };
        cleaner.run(&mut side.space, &mut backend, &reader)?;
        if !cleaning.restore_ready {
            match side.requests.prepare_restore(&mut side.space, &reader) {
                // The image is whole: what cannot be read is the snapshot's.
                Err(
                    stop @ (Stop::Damaged(_)
                    | Stop::MetafileDamaged(_)
                    | Stop::Contradiction(_)
                    | Stop::OtherBuild(_)),
                ) => {
                    side.requests.refuse_restore(&stop);
                }
                prepared => prepared?,
            }
            cleaning.restore_ready = true;
        }
        backend.reserve(1)?;
        let root = cleaner.root(&side.space);
        let discarded = side.space.base.as_ref().map(Base::place);
        let vol_info = self.vol_info(root, &cleaning.context, discarded.unwrap_or_default());
        let block = Arc::new(vol_info.to_block());
        backend.write_at(VOL_INFO_VVBN, block, vol_info_place(self.front.id));
        let released = side.space.drain_released();
        cleaning.holdings.updates.extend(released.into_iter().map(|vvbn| (vvbn, None)));
        Ok(())
    }

    fn send_shares(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        cleaning: &mut VolumeCleaning,
        files: Vec<Share>,
    ) {
        let shares = Arc::new(Shares::new(files.len()));
        let count = &aggregate.statistics.cleaned_shares;
        count.fetch_add(files.len() as u64, Ordering::Relaxed);
        cleaning.shares = Some(Arc::clone(&shares));
        for (share, affinity) in files.into_iter().zip(&self.front.affinities.ranges) {
            let (this, of, shares) = (Arc::clone(self), Arc::clone(aggregate), Arc::clone(&shares));
            let (cp, mut share) = (cleaning.context.cp, Some(share));
            let message = move |_: &mut Access<'_>| {
                let Some(mut files) = share.take().filter(|_| !of.is_failed()) else {
                    return Outcome::Done;
                };
                let failure = match files.run(&of, cp) {
                    Ok(()) => None,
                    Err(Stop::Wait(wait)) => {
                        files.held.trim(HELD_BLOCKS_MAX);
                        let held = files.held.clone();
                        share = Some(files);
                        return of.suspend(wait, &held);
                    }
                    Err(stop) => Some(stop),
                };
                if shares.end(files, failure) {
                    this.send_clean(&of);
                }
                Outcome::Done
            };
            aggregate.parts.scheduler.send(*affinity, Box::new(message));
        }
    }

    /// All shares are cleaned.
    fn send_clean(self: &Arc<Self>, aggregate: &Arc<Aggregate>) {
        let (this, of) = (Arc::clone(self), Arc::clone(aggregate));
        let message = move |access: &mut Access<'_>| this.clean(&of, access);
        aggregate.parts.scheduler.send(self.front.affinities.vbn, Box::new(message));
    }

    fn vol_info(
        &self,
        root: FileSystemRoot,
        context: &FreezeContext,
        discarded: DiscardPlace,
    ) -> VolInfo {
        let mut vol_info = VolInfo::new();
        vol_info.volume = U32::new(self.front.id.get());
        vol_info.cp = U64::new(context.cp.get());
        vol_info.time = I64::new(context.time.get());
        if !mutation::broken(Rule::DiscardForgotten) {
            vol_info.discard_tree = U32::new(discarded.tree as u32);
            vol_info.discard_next = U64::new(discarded.next.get());
        }
        vol_info.root = root;
        vol_info
    }
}

/// What shares have done is the image's and the block side's.
fn join(side: &mut VbnSide, cleaning: &mut VolumeCleaning, shares: &Shares) {
    let Some(cleaner) = &mut cleaning.cleaner else { unreachable!("made before its shares") };
    let mut unused = Vec::new();
    for Share { files, holdings, numbers, written, .. } in shares.take() {
        numbers.taken.into_iter().for_each(|vvbn| side.space.take(vvbn));
        numbers.freed.into_iter().for_each(|vvbn| side.space.free(vvbn));
        unused.extend(numbers.free);
        cleaning.holdings.join(holdings);
        cleaner.put_files(files, written);
    }
    side.space.forfeit(unused);
}
