//! Directories against a naive model, with hashes that collide, blocks that are not in memory,
//! and blocks that are damaged.

use super::hash::name_hash;
use super::tree::{HashFunction, Tree};
use super::verify::verify_with;
use super::*;
use ondisk::directory::{COLLISION_MAX, COOKIE_LIMIT, COOKIE_MIN, DirectoryContent, DirectoryNode};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use units::BLOCK_SIZE;

/// A directory's file in memory; blocks in `absent` must be waited for.
#[derive(Clone, Default)]
struct Blocks {
    blocks: Vec<BlockRef>,
    absent: BTreeSet<u64>,
    changed: BTreeSet<u64>,
    /// Blocks that were validated, if that is to be remembered.
    validated: Option<BTreeSet<u64>>,
}

type Failure = DirectoryError<u64>;

impl DirectoryBlocks for Blocks {
    type Wait = u64;

    fn size_blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, Failure> {
        assert!(fbn.get() < self.size_blocks(), "read of {fbn} past the end");
        if self.absent.contains(&fbn.get()) {
            return Err(DirectoryError::Wait(fbn.get()));
        }
        Ok(Arc::clone(&self.blocks[fbn.get() as usize]))
    }

    fn write(&mut self, fbn: Fbn) -> Result<&mut Block, Failure> {
        assert!(fbn.get() <= self.size_blocks(), "write of {fbn} past the end");
        if fbn.get() == self.size_blocks() {
            self.blocks.push(Arc::new(Block::zeroed()));
        }
        if self.absent.contains(&fbn.get()) {
            return Err(DirectoryError::Wait(fbn.get()));
        }
        self.changed.insert(fbn.get());
        Ok(Arc::make_mut(&mut self.blocks[fbn.get() as usize]))
    }

    fn truncate(&mut self, size_blocks: u64) {
        assert!(size_blocks <= self.size_blocks() && size_blocks > 0);
        self.blocks.truncate(size_blocks as usize);
        self.absent.retain(|&fbn| fbn < size_blocks);
    }

    fn is_validated(&self, fbn: Fbn) -> bool {
        self.validated.as_ref().is_some_and(|validated| validated.contains(&fbn.get()))
    }

    fn set_validated(&mut self, fbn: Fbn) {
        if let Some(validated) = &mut self.validated {
            validated.insert(fbn.get());
        }
    }
}

fn member(inode: u64) -> Member {
    Member::of_this_volume(InodeNumber(inode), Generation(1))
}

fn entry(inode: u64) -> Entry {
    Entry { member: member(inode), kind: (inode % 7 + 1) as u8 }
}

fn created() -> Blocks {
    let mut blocks = Blocks::default();
    create(&mut blocks, member(64), member(2), [0x1234_5678, 0x9abc_def0]).unwrap();
    blocks
}

fn weak_hash(seed: [u64; 2], name: &[u8]) -> u64 {
    // Eight prefixes, the least and the greatest among them.
    (name_hash(seed, name) & 7) * (u64::MAX / 7)
}

fn constant_hash(_: [u64; 2], _: &[u8]) -> u64 {
    0
}

/// A stream of numbers from a seed (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

/// The directory and what it must hold.
struct Pair {
    blocks: Blocks,
    hash: HashFunction,
    by_name: HashMap<Vec<u8>, (u64, Entry)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
}

impl Pair {
    fn new(hash: HashFunction) -> Self {
        let (by_name, by_cookie) = (HashMap::new(), BTreeMap::new());
        let blocks = Blocks { validated: Some(BTreeSet::new()), ..created() };
        Self { blocks, hash, by_name, by_cookie }
    }

    fn tree(&mut self) -> Tree<'_, Blocks> {
        self.blocks.changed.clear();
        Tree::new(&mut self.blocks, self.hash)
    }

    fn assert_few_changed(&self) {
        assert!(self.blocks.changed.len() as u64 <= BLOCKS_CHANGED_MAX);
    }

    fn insert(&mut self, name: &[u8], entry: Entry) {
        let inserted = self.tree().insert(name, entry);
        if self.by_name.contains_key(name) {
            assert_eq!(inserted, Err(DirectoryError::Exists));
            return;
        }
        let cookie = inserted.unwrap();
        self.assert_few_changed();
        assert!((COOKIE_MIN..COOKIE_LIMIT - 1).contains(&cookie));
        assert_eq!(self.by_cookie.insert(cookie, name.to_vec()), None, "cookie given twice");
        self.by_name.insert(name.to_vec(), (cookie, entry));
    }

    fn remove(&mut self, name: &[u8]) {
        let removed = self.tree().remove(name).unwrap();
        self.assert_few_changed();
        let expected = self.by_name.remove(name);
        assert_eq!(removed, expected.map(|(_, entry)| entry));
        if let Some((cookie, _)) = expected {
            self.by_cookie.remove(&cookie);
        }
    }

    fn replace(&mut self, name: &[u8], entry: Entry) {
        let replaced = self.tree().replace(name, entry).unwrap();
        let slot = self.by_name.get_mut(name);
        assert_eq!(replaced, slot.as_ref().map(|slot| slot.1));
        if let Some(slot) = slot {
            slot.1 = entry;
        }
    }

    fn lookup(&mut self, name: &[u8]) {
        let found = self.tree().lookup(name).unwrap();
        assert_eq!(found, self.by_name.get(name).map(|(_, entry)| *entry));
        assert!(self.blocks.changed.is_empty());
    }

    fn list(&mut self, after_cookie: u64, entries_max: usize) {
        let listing = list(&mut self.blocks, after_cookie, entries_max).unwrap();
        let from = after_cookie.saturating_add(1);
        let expected: Vec<Listed> = self
            .by_cookie
            .range(from..)
            .take(entries_max)
            .map(|(&cookie, name)| Listed {
                cookie,
                name: name.clone(),
                entry: self.by_name[name].1,
            })
            .collect();
        assert_eq!(listing.entries, expected);
        let rest = self.by_cookie.range(from..).count() - expected.len();
        assert_eq!(listing.end, rest == 0);
    }

    fn check(&mut self) -> DirectorySummary {
        let summary = verify_with(&mut self.blocks, self.hash).unwrap();
        assert_eq!(summary.entries, self.by_name.len() as u64);
        assert_eq!(entry_count(&mut self.blocks).unwrap(), summary.entries);
        assert_eq!(is_empty(&mut self.blocks).unwrap(), self.by_name.is_empty());
        if self.by_name.is_empty() {
            assert_eq!(self.blocks.size_blocks(), 1, "an empty directory is one block");
        }
        summary
    }
}

#[derive(Clone, Debug)]
enum Action {
    Insert(Vec<u8>, u64),
    InsertMany(u16),
    Remove(Vec<u8>),
    RemoveMany(u16),
    Replace(Vec<u8>, u64),
    Lookup(Vec<u8>),
    List(u16, usize),
}

/// Names of a small alphabet: a few hundred of them, short and long.
fn name() -> impl Strategy<Value = Vec<u8>> {
    (0_u16..400).prop_map(numbered)
}

fn numbered(number: u16) -> Vec<u8> {
    let mut name = format!("n{number}").into_bytes();
    let length = [0, 20, 90, 255][usize::from(number % 4)].max(name.len());
    name.resize(length, b'x');
    name
}

fn action() -> impl Strategy<Value = Action> {
    let inode = 1_u64..1000;
    prop_oneof![
        3 => (name(), inode.clone()).prop_map(|(name, inode)| Action::Insert(name, inode)),
        2 => (0_u16..400).prop_map(Action::InsertMany),
        3 => name().prop_map(Action::Remove),
        1 => (0_u16..400).prop_map(Action::RemoveMany),
        1 => (name(), inode).prop_map(|(name, inode)| Action::Replace(name, inode)),
        2 => name().prop_map(Action::Lookup),
        1 => (0_u16..400, 0_usize..200).prop_map(|(after, max)| Action::List(after, max)),
    ]
}

fn run(hash: HashFunction, actions: Vec<Action>) {
    let mut pair = Pair::new(hash);
    for action in actions {
        match action {
            Action::Insert(name, inode) => pair.insert(&name, entry(inode)),
            Action::InsertMany(first) => {
                for number in first..first + 60 {
                    pair.insert(&numbered(number % 400), entry(u64::from(number) + 1));
                }
            }
            Action::Remove(name) => pair.remove(&name),
            Action::RemoveMany(first) => {
                (first..first + 120).for_each(|number| pair.remove(&numbered(number % 400)));
            }
            Action::Replace(name, inode) => pair.replace(&name, entry(inode)),
            Action::Lookup(name) => pair.lookup(&name),
            Action::List(after, max) => {
                let nth = pair.by_cookie.keys().nth(usize::from(after)).copied();
                pair.list(nth.unwrap_or(0), max.max(1));
            }
        }
        pair.check();
    }
    let names: Vec<_> = pair.by_name.keys().cloned().collect();
    for name in names {
        pair.lookup(&name);
        pair.remove(&name);
    }
    pair.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_the_model(actions in prop::collection::vec(action(), 1..80)) {
        run(name_hash, actions);
    }

    #[test]
    fn agrees_with_the_model_when_hashes_collide(
        actions in prop::collection::vec(action(), 1..80),
    ) {
        run(weak_hash, actions);
    }
}

#[test]
fn a_small_directory_is_one_block() {
    let mut pair = Pair::new(name_hash);
    (1..=100).for_each(|inode| pair.insert(format!("file{inode}").as_bytes(), entry(inode)));
    assert_eq!(pair.blocks.size_blocks(), 1);
    assert_eq!(pair.check().levels, 0);
    assert_eq!(this(&mut pair.blocks), Ok(member(64)));
    assert_eq!(parent(&mut pair.blocks), Ok(member(2)));
    set_parent(&mut pair.blocks, member(9)).unwrap();
    assert_eq!(parent(&mut pair.blocks), Ok(member(9)));
    assert_eq!(this(&mut pair.blocks), Ok(member(64)));
    pair.check();
}

#[test]
fn names_that_no_entry_can_have() {
    let mut blocks = created();
    for name in [&b""[..], b".", b"..", b"a/b", b"nul\0", &[b'x'; 256]] {
        assert_eq!(insert(&mut blocks, name, entry(1)), Err(DirectoryError::BadName));
        assert_eq!(replace(&mut blocks, name, entry(1)), Err(DirectoryError::BadName));
        assert_eq!(lookup(&mut blocks, name), Ok(None));
        assert_eq!(remove(&mut blocks, name), Ok(None));
    }
}

#[test]
fn one_prefix_takes_only_so_many_names() {
    let mut blocks = created();
    let mut tree = Tree::new(&mut blocks, constant_hash);
    let names_max = COLLISION_MAX + 1 - COOKIE_MIN; // prefix 0 lacks the reserved cookies
    for number in 0..names_max {
        let cookie = tree.insert(&numbered(number as u16), entry(1)).unwrap();
        assert_eq!(cookie, COOKIE_MIN + number);
    }
    assert_eq!(tree.insert(b"another", entry(1)), Err(DirectoryError::Full));
    assert_eq!(tree.remove(&numbered(17)), Ok(Some(entry(1))));
    assert_eq!(tree.insert(b"another", entry(2)), Ok(COOKIE_MIN + 17));
    assert_eq!(tree.lookup(&numbered(200)), Ok(Some(entry(1))));
    let summary = verify_with(&mut blocks, constant_hash).unwrap();
    assert!(summary.leaves > 3, "one prefix spans leaves: {summary:?}");
}

#[test]
fn two_hundred_thousand_entries_come_and_go() {
    let mut blocks = created();
    let mut numbers = Numbers(1);
    let mut inodes: Vec<u64> = (1..=200_000).collect();
    for &inode in &inodes {
        insert(&mut blocks, format!("some-file-{inode}.dat").as_bytes(), entry(inode)).unwrap();
    }
    let full = verify(&mut blocks).unwrap();
    assert_eq!((full.entries, full.free_blocks), (200_000, 0));
    assert!(full.levels <= 2 && full.leaves < 5000, "{full:?}");
    numbers.shuffle(&mut inodes);
    for (index, inode) in inodes.iter().enumerate() {
        let name = format!("some-file-{inode}.dat");
        assert_eq!(remove(&mut blocks, name.as_bytes()).unwrap(), Some(entry(*inode)));
        if index % 20_000 == 0 {
            assert_eq!(verify(&mut blocks).unwrap().entries, 199_999 - index as u64);
        }
    }
    assert!(is_empty(&mut blocks).unwrap());
    assert_eq!(blocks.size_blocks(), 1);
}

/// `rm -r` removes in the order of a listing: the first branch below the root goes whole while the
/// next is full, and hands its range over to one whose first key was its own bound.
#[test]
fn regression_entries_are_removed_in_the_order_of_a_listing() {
    const COUNT: u64 = 80_000;
    let mut blocks = Blocks { validated: Some(BTreeSet::new()), ..created() };
    for number in 0..COUNT {
        insert(&mut blocks, format!("file-{number}.dat").as_bytes(), entry(100 + number)).unwrap();
    }
    assert!(verify(&mut blocks).unwrap().levels >= 2, "there are branches below the root");
    let mut left = COUNT;
    while left > 0 {
        let page = list(&mut blocks, 0, 500).unwrap();
        for listed in &page.entries {
            assert_eq!(remove(&mut blocks, &listed.name).unwrap(), Some(listed.entry));
            left -= 1;
        }
        assert_eq!(verify(&mut blocks).unwrap().entries, left);
    }
    assert_eq!(blocks.size_blocks(), 1);
}

#[test]
fn freed_blocks_are_used_again() {
    let mut pair = Pair::new(name_hash);
    let mut numbers = Numbers(5);
    let mut names: Vec<Vec<u8>> = (0..6000).map(|n| format!("{n:040}").into_bytes()).collect();
    let mut largest = 0;
    for round in 0..4 {
        names.iter().for_each(|name| pair.insert(name, entry(1)));
        largest = if round == 0 { pair.blocks.size_blocks() } else { largest };
        assert!(pair.blocks.size_blocks() <= largest + largest / 8);
        numbers.shuffle(&mut names);
        names[..5500].iter().for_each(|name| pair.remove(name));
        let summary = pair.check();
        assert!(summary.leaves * 3 < largest, "thin leaves were merged: {summary:?}");
    }
}

#[test]
fn a_listing_sees_what_stays_exactly_once() {
    for (seed, hash) in [(1, name_hash as HashFunction), (2, weak_hash as HashFunction)] {
        let mut pair = Pair::new(hash);
        let mut numbers = Numbers(seed);
        let stays: BTreeSet<Vec<u8>> = (0..300).map(|n| numbered(4 * n)).collect();
        stays.iter().for_each(|name| pair.insert(name, entry(7)));
        let (mut seen, mut cookie) = (Vec::new(), 0);
        loop {
            let page = list(&mut pair.blocks, cookie, 7).unwrap();
            seen.extend(page.entries.iter().map(|listed| listed.name.clone()));
            cookie = page.entries.last().map_or(cookie, |listed| listed.cookie);
            if page.end {
                break;
            }
            for _ in 0..40 {
                let name = numbered(numbers.below(300) as u16 * 4 + 3);
                let grows = seen.len() < 120;
                if grows { pair.insert(&name, entry(8)) } else { pair.remove(&name) }
            }
        }
        let seen_that_stay: Vec<_> = seen.iter().filter(|name| stays.contains(*name)).collect();
        assert_eq!(seen_that_stay.len(), stays.len(), "each once");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "nothing twice");
        pair.check();
    }
}

/// Runs `operation` as the engine does: a transaction is dropped on `Wait`, the block loaded, and
/// the operation run again from the top.
fn run_restarting<T>(
    blocks: &mut Blocks,
    operation: impl Fn(&mut Blocks) -> Result<T, Failure>,
) -> T {
    blocks.absent = (0..blocks.size_blocks()).collect();
    loop {
        let mut transaction = blocks.clone();
        match operation(&mut transaction) {
            Err(DirectoryError::Wait(fbn)) => {
                assert!(blocks.absent.remove(&fbn), "waits for what is there");
            }
            other => {
                *blocks = transaction;
                blocks.absent.clear();
                return other.unwrap();
            }
        }
    }
}

#[test]
fn operations_restart_when_blocks_are_absent() {
    let mut blocks = created();
    for number in 0..300 {
        run_restarting(&mut blocks, |blocks| insert(blocks, &numbered(number), entry(1)));
    }
    let summary = run_restarting(&mut blocks, verify);
    assert_eq!(summary.entries, 300);
    let found = run_restarting(&mut blocks, |blocks| lookup(blocks, &numbered(7)));
    assert_eq!(found, Some(entry(1)));
    blocks.absent = (1..blocks.size_blocks()).skip(2).collect();
    let whole = list(&mut blocks.clone(), 0, 300);
    assert!(
        matches!(&whole, Err(DirectoryError::Wait(_)))
            || whole.is_ok_and(|page| !page.end && !page.entries.is_empty())
    );
    for number in 0..300 {
        let removed = run_restarting(&mut blocks, |blocks| remove(blocks, &numbered(number)));
        assert_eq!(removed, Some(entry(1)));
    }
    assert_eq!(
        run_restarting(&mut blocks, verify),
        DirectorySummary { leaves: 1, ..DirectorySummary::default() }
    );
}

/// A directory of three levels' worth of block kinds: leaves, a branch, free blocks.
fn varied() -> Blocks {
    let mut blocks = created();
    for number in 0..400 {
        insert(&mut blocks, &numbered(number), entry(5)).unwrap();
    }
    for number in 0..200 {
        remove(&mut blocks, &numbered(number)).unwrap();
    }
    let summary = verify(&mut blocks).unwrap();
    assert!(summary.leaves > 1 && summary.branches == 1 && summary.free_blocks > 0);
    blocks
}

fn use_damaged(mut blocks: Blocks) {
    let _ = verify(&mut blocks);
    let _ = list(&mut blocks, 0, 1000);
    for number in 150..400 {
        let _ = lookup(&mut blocks, &numbered(number));
        let _ = replace(&mut blocks.clone(), &numbered(number), entry(6));
        let mut transaction = blocks.clone();
        if remove(&mut transaction, &numbered(number)).is_ok() && number % 3 == 0 {
            blocks = transaction;
        }
        let mut transaction = blocks.clone();
        if insert(&mut transaction, &numbered(number / 2), entry(6)).is_ok() {
            blocks = transaction;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_blocks_never_panic(
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..8_u8, any::<u32>()),
            1..6,
        ),
    ) {
        let mut blocks = varied();
        for (index, how, value) in damage {
            let fbn = index.index(blocks.blocks.len());
            let other = Arc::clone(&blocks.blocks[value as usize % blocks.blocks.len()]);
            let block = Arc::make_mut(&mut blocks.blocks[fbn]);
            let bytes = value.to_le_bytes();
            match how {
                0 => *block = Block::zeroed(),
                1 => *block = (*other).clone(),
                2 => {
                    // Somebody else's content under the right number.
                    let own: [u8; 4] = block[12..16].try_into().unwrap();
                    *block = (*other).clone();
                    block[12..16].copy_from_slice(&own);
                }
                3 => block[4 + value as usize % 124] = bytes[3],
                4 => block[32 + value as usize % 400] ^= bytes[2],
                5 => block[value as usize % BLOCK_SIZE..].fill(bytes[1]),
                6 => block[32..].chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&bytes)),
                _ => block[BLOCK_SIZE - 1 - value as usize % 900] = bytes[0],
            }
        }
        use_damaged(blocks);
    }
}

#[test]
fn every_single_byte_of_the_root_may_be_wrong() {
    let sound = varied();
    for at in 0..200 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut blocks = sound.clone();
            Arc::make_mut(&mut blocks.blocks[0])[at] = value;
            let _ = verify(&mut blocks);
            for number in 190..210 {
                let _ = remove(&mut blocks.clone(), &numbered(number));
                let _ = insert(&mut blocks.clone(), &numbered(number), entry(1));
            }
        }
    }
}

/// A block that was validated and whose parent says something else of it now is refused.
#[test]
fn a_validated_block_in_another_ones_place_is_refused() {
    let mut blocks = varied();
    blocks.validated = Some(BTreeSet::new());
    verify(&mut blocks).unwrap();
    for fbn in 1..blocks.size_blocks() {
        let mut wrong = blocks.clone();
        let node = DirectoryNode::view(&blocks.blocks[fbn as usize], Fbn(fbn)).unwrap();
        let DirectoryContent::Leaf(records) = node.content else { continue };
        assert!(blocks.is_validated(Fbn(fbn)));
        // The least cookie goes down, out of the parent's bounds for all leaves but the first.
        let is_first =
            list(&mut blocks.clone(), 0, 1).unwrap().entries[0].cookie == records[0].cookie.get();
        let at = ondisk::directory::NODE_START;
        Arc::make_mut(&mut wrong.blocks[fbn as usize])[at..at + 8]
            .copy_from_slice(&COOKIE_MIN.to_le_bytes());
        let listed = list(&mut wrong, 0, usize::MAX);
        assert_eq!(matches!(listed, Err(DirectoryError::Damaged(_))), !is_first, "block {fbn}");
    }
}

#[test]
fn an_empty_file_is_no_directory() {
    let mut blocks = Blocks::default();
    let problem = DirectoryProblem::Magic(0);
    let damage = DirectoryDamage { fbn: Fbn(0), problem };
    assert_eq!(lookup(&mut blocks, b"a"), Err(DirectoryError::Damaged(damage)));
}
