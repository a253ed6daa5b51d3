//! The ledger: what operations know of quotas. For each user, group and tree that was lately asked
//! for it has what the last image counted, and what operations may come to add to that.
//!
//! A write does not know whether a block takes the place of another: to find out it would have to
//! read the tree. So it is charged for each block, and the next image says what it was. Where that
//! charge would pass a limit the operation looks closer, and is charged for the blocks that are
//! truly new. What is written over in place is never refused.
//!
//! Where the last image leaves room that was promised since, or somebody has freed something, the
//! operation waits for the next image. It is refused where the last image itself leaves no room.
//!
//! Invariants: what is counted and promised is never less than what the next image comes to count.
//! No client's operation is admitted that would make that more than a hard limit; limits hold from
//! the commit on that counts the last inode. Replay is always admitted.
//!
//! Fails: [`Stop::OverQuota`]; what to wait for.

use super::table::{Limits, Passed, QUOTA_BLOCK_COST, QuotaFile, read_others, read_quota};
use crate::budget::Spender;
use crate::buftree::Root;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop, Wait};
use ondisk::quota::{ALL_INODES, Owner, QUOTA_KINDS, QuotaKey, QuotaRecord, place_of};
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{Fbn, InodeNumber, VolumeId};

/// Commits for which it is remembered that somebody freed something. A file that is removed is
/// reaped after the next one, and its inode is freed after that; others may come in between, as
/// whoever waits has them come.
const FREES_COMMITS: u8 = 8;
/// Commits for which somebody waits at most for what others free, while the owner comes to use no
/// less: what they free may be holes, or be written anew.
const WAITED_COMMITS_MAX: u8 = 12;
/// Commits for which the operations of an owner are charged for what is truly new, once one of them
/// had to wait.
const EXACT_COMMITS: u8 = 3;

/// See the module.
#[derive(Debug, Default)]
pub struct Quotas {
    is_counting: AtomicBool,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    header: Option<Header>,
    accounts: FxHashMap<QuotaKey, Account>,
    /// [`Self::trim`] looks for accounts to drop when there are so many.
    trim_at: usize,
    /// Blocks of the quota file that somebody has paid for since the last freeze.
    paid: FxHashSet<Fbn>,
    /// The last operations that were refused.
    refusals: VecDeque<Refusal>,
    /// The last owners that came to use more than a soft limit.
    passed: VecDeque<Passed>,
}

/// What block 0 of the quota file says.
#[derive(Clone, Copy, Debug)]
struct Header {
    are_all_counted: bool,
    of_others: [QuotaRecord; QUOTA_KINDS],
}

/// Accounts that stay in memory whatever they say: 2 MiB.
const ACCOUNTS_MIN: usize = 16 << 10;
/// Refusals, and owners that passed a soft limit, that are remembered until somebody asks.
pub const REFUSALS_MAX: usize = 64;

/// An operation that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Whose limits it would have passed.
    pub key: QuotaKey,
    /// The limits.
    pub limits: Limits,
    /// Blocks and files that the last image counts.
    pub used: (u64, u64),
    /// Blocks and files that the operation asked for.
    pub more: (u64, u64),
    /// Something of the owner's is on its way out.
    pub has_frees: bool,
}

impl Refusal {
    /// Whether the operation would have passed a limit whatever the next images count.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let Limits { hard_blocks, hard_files, .. } = self.limits;
        let passes = |hard: u64, used: u64, more: u64| {
            hard != 0 && more != 0 && used.saturating_add(more) > hard
        };
        !self.has_frees
            && (passes(hard_blocks, self.used.0, self.more.0)
                || passes(hard_files, self.used.1, self.more.1))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Usage {
    blocks: u64,
    files: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Account {
    /// As of the last commit.
    record: Option<QuotaRecord>,
    /// Promised since the last freeze.
    active: Usage,
    /// Promised before, and not committed.
    frozen: Usage,
    frees_commits: u8,
    exact_commits: u8,
    /// Commits for which somebody has waited, and that brought nothing.
    waited_commits: u8,
    /// What the commit before has counted.
    used_before: Option<(u64, u64)>,
}

/// A hard limit, and what it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// The limit.
    pub hard: u64,
    /// What is neither used nor promised of it.
    pub left: u64,
}

/// What the hard limits of an owner leave it; none where there is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaRoom {
    /// Of blocks.
    pub blocks: Option<Room>,
    /// Of files.
    pub files: Option<Room>,
    /// Something of the owner's is on its way out.
    pub has_frees: bool,
}

/// What an operation adds to the files of one inode.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The inode.
    pub inode: InodeNumber,
    /// Whose it is, or will be.
    pub owner: Owner,
    /// Whose it was.
    pub former: Owner,
    /// Blocks that it has, which a new owner takes over.
    pub kept_blocks: u64,
    /// Those of them that no image counts yet: some may be counted twice.
    pub uncounted_blocks: u64,
    /// Blocks that it gets, some of them in the place of others.
    pub written_blocks: u64,
    /// It is a file, and counts as one.
    pub is_file: bool,
    /// It is new.
    pub is_new: bool,
    /// Something of it is freed.
    pub frees: bool,
}

/// What was admitted; see [`Admitted`].
#[derive(Default, Debug)]
#[must_use = "what is admitted is applied or forgone"]
pub struct Admission {
    entries: Vec<(QuotaKey, Usage, bool)>,
    /// The ledger is to know when it is applied.
    is_noted: bool,
    /// Blocks that it may come to cost the next image.
    pub cost_blocks: u64,
}

/// An admission that is forgone unless it is applied.
#[derive(Debug)]
pub struct Admitted {
    /// None if nothing was asked for.
    quotas: Option<Arc<Quotas>>,
    admission: Admission,
}

impl Admitted {
    /// An admission to these quotas.
    #[must_use]
    pub fn new(quotas: &Arc<Quotas>, admission: Admission) -> Self {
        let is_asked = !admission.entries.is_empty();
        Self { quotas: is_asked.then(|| Arc::clone(quotas)), admission }
    }

    /// Blocks that it may come to cost the next image.
    #[must_use]
    pub const fn cost_blocks(&self) -> u64 {
        self.admission.cost_blocks
    }

    /// The operation is done.
    pub fn apply(&mut self) {
        if let Some(quotas) = self.quotas.take() {
            quotas.apply(std::mem::take(&mut self.admission));
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(quotas) = self.quotas.take() {
            quotas.forgo(std::mem::take(&mut self.admission));
        }
    }
}

/// The quota file that accounts are read from: the last commit's.
pub struct Source<'s, P> {
    /// The root of the inode file.
    pub inode_file: &'s Root<P>,
    /// The volume.
    pub volume: VolumeId,
    /// Reads.
    pub reader: &'s Reader<'s>,
}

/// What an operation adds for one owner.
struct Sum {
    key: QuotaKey,
    kept_blocks: u64,
    uncounted_blocks: u64,
    written_blocks: u64,
    files: u64,
    /// It is an owner's that did not have the file before.
    is_taken_over: bool,
    frees: bool,
}

impl Sum {
    const fn new(key: QuotaKey) -> Self {
        Self {
            key,
            kept_blocks: 0,
            uncounted_blocks: 0,
            written_blocks: 0,
            files: 0,
            is_taken_over: false,
            frees: false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fits,
    Wait,
    Refused,
}

impl Quotas {
    /// Whether the volume counts what is used.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        self.is_counting.load(Ordering::Relaxed)
    }

    /// The volume counts from now on, or does not.
    pub fn set_counting(&self, is_counting: bool) {
        self.is_counting.store(is_counting, Ordering::Relaxed);
        if !is_counting {
            *self.ledger.lock() = Ledger::default();
        }
    }

    /// The operations that were refused since the last call: the last one of each owner, and the
    /// last [`REFUSALS_MAX`] owners.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<Refusal> {
        std::mem::take(&mut self.ledger.lock().refusals).into()
    }

    /// A commit has these owners use more than a soft limit.
    pub fn note_passed(&self, passed: Vec<Passed>) {
        if passed.is_empty() {
            return;
        }
        let mut ledger = self.ledger.lock();
        ledger.passed.retain(|known| passed.iter().all(|one| one.key != known.key));
        ledger.passed.extend(passed);
        let more = ledger.passed.len().saturating_sub(REFUSALS_MAX);
        ledger.passed.drain(..more);
    }

    /// The owners that came to use more than a soft limit since the last call, the last
    /// [`REFUSALS_MAX`] of them.
    #[must_use]
    pub fn take_passed(&self) -> Vec<Passed> {
        std::mem::take(&mut self.ledger.lock().passed).into()
    }

    /// Blocks and files that are promised to all owners and that no commit has counted yet.
    #[must_use]
    pub fn promised(&self) -> (u64, u64) {
        let ledger = self.ledger.lock();
        let of = |one: &Account| [one.active, one.frozen];
        let sums = ledger.accounts.values().flat_map(of);
        sums.fold((0, 0), |sum, one| (sum.0 + one.blocks, sum.1 + one.files))
    }

    /// Admits an operation with these charges. `count_new` says how many of the blocks that an
    /// inode gets are truly new.
    ///
    /// # Errors
    /// [`Stop::OverQuota`]; what to wait for.
    pub fn admit<P: Pointer>(
        &self,
        source: &Source<'_, P>,
        spender: Spender,
        charges: &[Charge],
        mut count_new: impl FnMut(InodeNumber) -> Progress<u64>,
    ) -> Progress<Admission> {
        if charges.is_empty() || !self.is_counting() {
            return Ok(Admission::default());
        }
        let mut ledger = self.ledger.lock();
        let sums = sums(charges);
        // What was promised before is always admitted, and freeing always works. A file that gets
        // another owner frees nothing of the new one's.
        let asks = |sum: &Sum| match spender {
            Spender::Owed => false,
            Spender::Common | Spender::Restore => true,
            Spender::Free | Spender::Reclaim => sum.is_taken_over,
        };
        // What is not asked needs no quota file, which may be damaged.
        let header = match sums.iter().any(asks) {
            true => {
                let keys = charges.iter().flat_map(|charge| charge.owner.keys());
                Some(ledger.load(source, keys)?)
            }
            false => None,
        };
        let mut admission = Admission::default();
        // What one owner's limits refuse does not wait for another's.
        let mut verdict = Verdict::Fits;
        for sum in &sums {
            let (key, is_asked) = (sum.key, asks(sum));
            let blocks = sum.kept_blocks + sum.written_blocks;
            let mut usage = Usage { blocks, files: sum.files };
            let limits = ledger.limits(key, header.filter(|_| is_asked).as_ref());
            let account = ledger.accounts.entry(key).or_default();
            let fits = account.fits(&limits, usage, false);
            if is_asked && sum.written_blocks > 0 && (!fits || account.exact_commits > 0) {
                let writes = |charge: &&Charge| charge.written_blocks > 0 && charge.owner.has(key);
                let new = charges.iter().filter(writes).map(|charge| count_new(charge.inode));
                usage.blocks = sum.kept_blocks + new.sum::<Progress<u64>>()?;
            }
            let least_blocks = usage.blocks.saturating_sub(sum.uncounted_blocks);
            match account.judge(&limits, usage, least_blocks) {
                Verdict::Fits => {}
                Verdict::Wait => {
                    account.exact_commits = EXACT_COMMITS;
                    verdict = verdict.max(Verdict::Wait);
                }
                Verdict::Refused => {
                    let refusal = account.refusal(key, limits, usage);
                    ledger.note_refusal(refusal);
                    verdict = Verdict::Refused;
                }
            }
            let is_paid = ledger.paid.contains(&place_of(key).0);
            if !is_paid {
                admission.cost_blocks += QUOTA_BLOCK_COST;
            }
            admission.is_noted |= !is_paid || sum.frees;
            admission.entries.push((key, usage, sum.frees));
        }
        match verdict {
            Verdict::Fits => {}
            Verdict::Wait => return Err(Stop::Wait(Wait::Room)),
            Verdict::Refused => return Err(Stop::OverQuota),
        }
        for (key, usage, _) in &admission.entries {
            let account = ledger.accounts.entry(*key).or_default();
            account.active.blocks += usage.blocks;
            account.active.files += usage.files;
        }
        Ok(admission)
    }

    /// What the hard limits of an owner leave it; none if nothing limits it.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn room<P: Pointer>(
        &self,
        source: &Source<'_, P>,
        key: QuotaKey,
    ) -> Progress<Option<QuotaRoom>> {
        if !self.is_counting() {
            return Ok(None);
        }
        let mut ledger = self.ledger.lock();
        let header = ledger.load(source, [key].into_iter())?;
        let limits = ledger.limits(key, Some(&header));
        let account = ledger.accounts.get(&key).copied().unwrap_or_default();
        let used = account.used().unwrap_or_default();
        let promised = [account.active, account.frozen];
        let room = |hard: u64, used: u64, promised: u64| {
            let used = used.saturating_add(promised);
            (hard != 0).then(|| Room { hard, left: hard.saturating_sub(used) })
        };
        let blocks = promised.iter().map(|one| one.blocks).sum();
        let files = promised.iter().map(|one| one.files).sum();
        let room = QuotaRoom {
            blocks: room(limits.hard_blocks, used.0, blocks),
            files: room(limits.hard_files, used.1, files),
            has_frees: account.frees_commits > 0,
        };
        Ok(Some(room).filter(|room| room.blocks.is_some() || room.files.is_some()))
    }

    /// Whether an owner uses anything, or was promised it; not if the volume counts nothing.
    ///
    /// # Errors
    /// What to wait for, or damage.
    pub fn is_used<P: Pointer>(&self, source: &Source<'_, P>, key: QuotaKey) -> Progress<bool> {
        if !self.is_counting() {
            return Ok(false);
        }
        let mut ledger = self.ledger.lock();
        ledger.load(source, [key].into_iter())?;
        let account = ledger.accounts.get(&key).copied().unwrap_or_default();
        let is_promised = [account.active, account.frozen] != [Usage::default(); 2];
        Ok(is_promised || account.used().unwrap_or_default() != (0, 0))
    }

    /// The operation is done.
    fn apply(&self, admission: Admission) {
        if !admission.is_noted {
            return;
        }
        let mut ledger = self.ledger.lock();
        for (key, _, frees) in admission.entries {
            ledger.paid.insert(place_of(key).0);
            if frees {
                ledger.accounts.entry(key).or_default().frees_commits = FREES_COMMITS;
            }
        }
    }

    /// The operation is not done.
    fn forgo(&self, admission: Admission) {
        let mut ledger = self.ledger.lock();
        for (key, usage, _) in admission.entries {
            if let Some(account) = ledger.accounts.get_mut(&key) {
                account.active.blocks = account.active.blocks.saturating_sub(usage.blocks);
                account.active.files = account.active.files.saturating_sub(usage.files);
            }
        }
    }

    /// A freeze: what was promised is in the image.
    pub fn freeze(&self) {
        let mut ledger = self.ledger.lock();
        ledger.paid.clear();
        for account in ledger.accounts.values_mut() {
            account.frozen = std::mem::take(&mut account.active);
        }
    }

    /// A commit, or a freeze that found nothing changed: accounts are read anew when somebody asks
    /// for them.
    pub fn commit(&self, is_changed: bool) {
        let mut ledger = self.ledger.lock();
        ledger.header = None;
        if !is_changed {
            ledger.paid.clear();
        }
        ledger.accounts.retain(|_, account| {
            account.used_before = account.used().or(account.used_before);
            account.record = None;
            account.waited_commits = match account.exact_commits {
                0 => 0,
                _ => account.waited_commits.saturating_add(1),
            };
            account.frozen = Usage::default();
            if !is_changed {
                account.active = Usage::default();
            }
            account.frees_commits = account.frees_commits.saturating_sub(1);
            account.exact_commits = account.exact_commits.saturating_sub(1);
            account.is_needed()
        });
    }

    /// What is in memory is of another image.
    pub fn forget(&self) {
        *self.ledger.lock() = Ledger::default();
    }
}

impl Ledger {
    /// Reads the records of these owners.
    fn load<P: Pointer>(
        &mut self,
        source: &Source<'_, P>,
        keys: impl Iterator<Item = QuotaKey>,
    ) -> Progress<Header> {
        self.trim();
        let Source { inode_file, volume, reader } = *source;
        let unknown =
            |key: &QuotaKey| self.accounts.get(key).is_none_or(|one| one.record.is_none());
        let unknown: Vec<QuotaKey> = keys.filter(unknown).collect();
        if let (Some(header), true) = (self.header, unknown.is_empty()) {
            return Ok(header);
        }
        let file = QuotaFile::load(inode_file, volume, reader)?;
        for key in unknown {
            let record = read_quota(&file.root, volume, key, reader)?;
            let account = self.accounts.entry(key).or_default();
            account.record = Some(record);
            let (used, before) = (account.used(), account.used_before);
            if let (Some(used), Some(before)) = (used, before)
                && (used.0 < before.0 || used.1 < before.1)
            {
                account.waited_commits = 0;
            }
        }
        let of_others = read_others(&file.root, volume, reader)?;
        let header = Header { are_all_counted: file.counted_inodes == ALL_INODES, of_others };
        self.header = Some(header);
        Ok(header)
    }

    /// Drops accounts that only say what the quota file says: operations that are refused leave
    /// some, and no commit may come.
    fn trim(&mut self) {
        if self.accounts.len() < self.trim_at.max(ACCOUNTS_MIN) {
            return;
        }
        self.accounts.retain(|_, account| account.is_needed());
        self.trim_at = self.accounts.len() * 2;
    }

    fn note_refusal(&mut self, refusal: Refusal) {
        // One owner that tries again and again leaves room for the others.
        self.refusals.retain(|one| one.key != refusal.key);
        if self.refusals.len() == REFUSALS_MAX {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }

    /// The limits that hold for an owner now.
    fn limits(&self, key: QuotaKey, header: Option<&Header>) -> Limits {
        let record = self.accounts.get(&key).and_then(|account| account.record);
        match (header, record) {
            (Some(header), Some(record)) if header.are_all_counted => {
                Limits::effective(key, &record, &header.of_others[key.kind as usize])
            }
            _ => Limits::default(),
        }
    }
}

impl Account {
    /// Blocks and files that the last image counts, if it was looked at.
    fn used(&self) -> Option<(u64, u64)> {
        self.record.map(|one| (one.used_blocks.get(), one.used_files.get()))
    }

    /// Whether it says more than the quota file.
    fn is_needed(&self) -> bool {
        self.active != Usage::default()
            || self.frozen != Usage::default()
            || self.frees_commits > 0
            || self.exact_commits > 0
    }

    /// Whether usage fits under the hard limits: beside what the last image counted, and, unless
    /// only that is asked for, beside what was promised since.
    fn fits(&self, limits: &Limits, usage: Usage, is_promised_left_out: bool) -> bool {
        let (blocks, files) = match is_promised_left_out {
            true => (0, 0),
            false => {
                (self.active.blocks + self.frozen.blocks, self.active.files + self.frozen.files)
            }
        };
        let used = self.used().unwrap_or_default();
        let fits = |hard: u64, used: u64, promised: u64, more: u64| {
            hard == 0 || more == 0 || used.saturating_add(promised).saturating_add(more) <= hard
        };
        fits(limits.hard_blocks, used.0, blocks, usage.blocks)
            && fits(limits.hard_files, used.1, files, usage.files)
    }

    fn refusal(&self, key: QuotaKey, limits: Limits, usage: Usage) -> Refusal {
        let used = self.used().unwrap_or_default();
        let has_frees = self.frees_commits > 0 && self.waited_commits < WAITED_COMMITS_MAX;
        let more = (usage.blocks, usage.files);
        Refusal { key, limits, used, more, has_frees }
    }

    /// What becomes of an operation with this usage, which may come to be no more than
    /// `least_blocks`.
    fn judge(&self, limits: &Limits, usage: Usage, least_blocks: u64) -> Verdict {
        if self.fits(limits, usage, false) || mutation::broken(Rule::QuotaPassed) {
            return Verdict::Fits;
        }
        let least = Usage { blocks: least_blocks, ..usage };
        let may_gain = self.frees_commits > 0 && self.waited_commits < WAITED_COMMITS_MAX;
        let may_fit = self.fits(limits, least, true) || may_gain;
        if may_fit && !mutation::broken(Rule::QuotaRefusedEarly) {
            Verdict::Wait
        } else {
            Verdict::Refused
        }
    }
}

/// What charges come to for each owner. An operation has few: they are in no order.
fn sums(charges: &[Charge]) -> Vec<Sum> {
    let mut sums = Vec::with_capacity(QUOTA_KINDS);
    for charge in charges {
        for key in charge.owner.keys() {
            let sum = sum_of(&mut sums, key);
            let is_taken_over = charge.is_new || !charge.former.has(key);
            if is_taken_over {
                sum.kept_blocks += charge.kept_blocks;
                sum.uncounted_blocks += charge.uncounted_blocks;
                sum.files += u64::from(charge.is_file);
                sum.is_taken_over = true;
            }
            sum.written_blocks += charge.written_blocks;
            sum.frees |= charge.frees;
        }
        // What the former owner has less is in the next image.
        for key in charge.former.keys().filter(|key| !charge.owner.has(*key)) {
            sum_of(&mut sums, key).frees = true;
        }
    }
    sums
}

fn sum_of(sums: &mut Vec<Sum>, key: QuotaKey) -> &mut Sum {
    let at = sums.iter().position(|sum| sum.key == key).unwrap_or(sums.len());
    if at == sums.len() {
        sums.push(Sum::new(key));
    }
    &mut sums[at]
}
