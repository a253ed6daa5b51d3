//! A max-heap of all areas of a RAID group by their scores (FreeSpace section 3.3.1).
//!
//! At a start only the best areas are known, from TopAA; the others come in as their free blocks
//! are counted. An area that is being filled is *out*: it is not chosen again until it is put back.
//!
//! Invariants:
//! - No area in the heap has a better score than the one above it.
//! - Of areas with the same score the one with the lowest number is better, so that an empty group
//!   is written from its start, and the same calls give the same choice.
//!
//! Memory: twelve bytes for each area.
//!
//! Fails: never. Changes of areas that are not known are left out.

use std::collections::BinaryHeap;

/// What is written at an area's place when it is in the heap nowhere.
const UNKNOWN: u32 = u32::MAX;
/// The same, of an area that is being filled.
const OUT: u32 = u32::MAX - 1;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct AreaHeap {
    /// By area; 0 where it is not known.
    scores: Vec<u32>,
    /// Their sum.
    total: u64,
    /// By area: where it stands in the heap.
    places: Vec<u32>,
    heap: Vec<u32>,
    /// Those that are being filled: a few.
    out: Vec<u32>,
}

impl AreaHeap {
    /// One of so many areas, of which none is known.
    #[must_use]
    pub fn new(areas: u32) -> Self {
        let len = areas as usize;
        Self { scores: vec![0; len], places: vec![UNKNOWN; len], ..Self::default() }
    }

    /// One of areas that all have the score that `score` says.
    #[must_use]
    pub fn of(areas: u32, score: impl Fn(u32) -> u32) -> Self {
        let mut heap = Self::new(areas);
        heap.scores = (0..areas).map(score).collect();
        heap.total = heap.scores.iter().map(|score| u64::from(*score)).sum();
        heap.heap = (0..areas).collect();
        heap.places = (0..areas).collect();
        heap.restore();
        heap
    }

    /// Areas.
    #[must_use]
    pub fn areas(&self) -> u32 {
        self.scores.len() as u32
    }

    /// Whether an area's score is known.
    #[must_use]
    pub fn is_known(&self, area: u32) -> bool {
        self.places[area as usize] != UNKNOWN
    }

    /// An area's score; `None` if it is not known.
    #[must_use]
    pub fn score(&self, area: u32) -> Option<u32> {
        self.is_known(area).then(|| self.scores[area as usize])
    }

    /// The sum of all scores; `None` while some are not known.
    #[must_use]
    pub const fn total(&self) -> Option<u64> {
        if self.heap.len() + self.out.len() < self.scores.len() { None } else { Some(self.total) }
    }

    /// The best area that is not out, and its score.
    #[must_use]
    pub fn best(&self) -> Option<(u32, u32)> {
        let area = *self.heap.first()?;
        Some((area, self.scores[area as usize]))
    }

    /// The area at a place of the heap, wherever that is among the others: a choice that heeds no
    /// score, to measure what heeding it gains.
    #[must_use]
    pub fn any(&self, place: u64) -> Option<u32> {
        let len = self.heap.len() as u64;
        (len > 0).then(|| self.heap[(place % len) as usize])
    }

    /// Takes an area out: it is being filled.
    pub fn take_out(&mut self, area: u32) {
        self.remove(area);
        if std::mem::replace(&mut self.places[area as usize], OUT) != OUT {
            self.out.push(area);
        }
    }

    /// Puts an area back that was filled as far as it will be.
    pub fn put_back(&mut self, area: u32) {
        if self.places[area as usize] == OUT {
            self.out.retain(|other| *other != area);
            self.insert(area);
        }
    }

    /// An area's free blocks were counted.
    pub fn count(&mut self, area: u32, score: u32) {
        self.set_score(area, score);
        if !self.is_known(area) {
            self.insert(area);
        } else {
            self.settle(area);
        }
    }

    /// Free blocks of an area have become more or fewer.
    pub fn change(&mut self, area: u32, by: i64) {
        if self.is_known(area) && by != 0 {
            let score = i64::from(self.scores[area as usize]) + by;
            self.set_score(area, score.clamp(0, i64::from(u32::MAX)) as u32);
            self.settle(area);
        }
    }

    /// Each known area has more free blocks: disks have joined.
    pub fn change_all(&mut self, by: impl Fn(u32) -> u32) {
        for area in 0..self.areas() {
            if self.is_known(area) {
                self.set_score(area, self.scores[area as usize] + by(area));
            }
        }
        self.restore();
    }

    /// The best `count` areas with their scores, best first; those that are out included.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<(u32, u32)> {
        let mut found = self.out.clone();
        found.extend(self.ranked().take(count).map(|(area, _)| area));
        found.sort_unstable_by_key(|area| std::cmp::Reverse(self.rank(*area)));
        found.truncate(count);
        found.into_iter().map(|area| (area, self.scores[area as usize])).collect()
    }

    /// The areas that are not out with their scores, best first.
    pub fn ranked(&self) -> impl Iterator<Item = (u32, u32)> {
        // The next best is below one that was found: a few of each level are looked at.
        let mut below = BinaryHeap::new();
        below.extend(self.heap.first().map(|area| (self.rank(*area), 0)));
        std::iter::from_fn(move || {
            let (_, place) = below.pop()?;
            let children = (2 * place + 1..2 * place + 3).filter(|child| *child < self.heap.len());
            below.extend(children.map(|child| (self.rank(self.heap[child]), child)));
            let area = self.heap[place];
            Some((area, self.scores[area as usize]))
        })
    }

    fn set_score(&mut self, area: u32, score: u32) {
        let before = std::mem::replace(&mut self.scores[area as usize], score);
        self.total = self.total + u64::from(score) - u64::from(before);
    }

    /// What is higher for the better area.
    fn rank(&self, area: u32) -> (u32, std::cmp::Reverse<u32>) {
        (self.scores[area as usize], std::cmp::Reverse(area))
    }

    fn insert(&mut self, area: u32) {
        self.places[area as usize] = self.heap.len() as u32;
        self.heap.push(area);
        self.settle(area);
    }

    fn remove(&mut self, area: u32) {
        let place = self.places[area as usize];
        if place == UNKNOWN || place == OUT {
            return;
        }
        let Some(last) = self.heap.pop() else { unreachable!("the area is in it") };
        if last != area {
            self.put(place as usize, last);
            self.settle(last);
        }
    }

    /// Has an area find its place again after its score has changed.
    fn settle(&mut self, area: u32) {
        let place = self.places[area as usize];
        if place != OUT {
            let place = self.rise(place as usize);
            self.sink(place);
        }
    }

    fn put(&mut self, place: usize, area: u32) {
        self.heap[place] = area;
        self.places[area as usize] = place as u32;
    }

    fn rise(&mut self, mut place: usize) -> usize {
        let area = self.heap[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.rank(self.heap[above]) >= self.rank(area) {
                break;
            }
            self.put(place, self.heap[above]);
            place = above;
        }
        self.put(place, area);
        place
    }

    fn sink(&mut self, mut place: usize) {
        let area = self.heap[place];
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(&first) = self.heap.get(left) else { break };
            let second = self
                .heap
                .get(right)
                .copied()
                .filter(|second| self.rank(*second) > self.rank(first));
            let (below, child) = second.map_or((first, left), |second| (second, right));
            if self.rank(below) <= self.rank(area) {
                break;
            }
            self.put(place, below);
            place = child;
        }
        self.put(place, area);
    }

    /// Puts everything in order.
    fn restore(&mut self) {
        for place in (0..self.heap.len() / 2).rev() {
            self.sink(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Count(usize, u32),
        Change(usize, i64),
        TakeBest,
        PutBack(usize),
        ChangeAll(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let area = 0..200_usize;
        let step = prop_oneof![
            4 => (area.clone(), 0..5000_u32).prop_map(|(area, score)| Step::Count(area, score)),
            6 => (area.clone(), -3000..3000_i64).prop_map(|(area, by)| Step::Change(area, by)),
            3 => Just(Step::TakeBest),
            3 => area.prop_map(Step::PutBack),
            1 => (0..100_u32).prop_map(Step::ChangeAll),
        ];
        proptest::collection::vec(step, 1..400)
    }

    /// Areas, best first.
    fn sorted(scores: &[Option<u32>], without: &[bool]) -> Vec<(u32, u32)> {
        let known = scores.iter().enumerate().filter(|(area, _)| !without[*area]);
        let known = known.filter_map(|(area, score)| Some((area as u32, (*score)?)));
        let mut all: Vec<_> = known.collect();
        all.sort_by_key(|(area, score)| (std::cmp::Reverse(*score), *area));
        all
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_sort_of_everything(areas in 1..200_usize, steps in steps()) {
            let mut heap = AreaHeap::new(areas as u32);
            let (mut scores, mut out) = (vec![None; areas], vec![false; areas]);
            for step in steps {
                match step {
                    Step::Count(area, score) => {
                        let area = area % areas;
                        heap.count(area as u32, score);
                        scores[area] = Some(score);
                    }
                    Step::Change(area, by) => {
                        let area = area % areas;
                        heap.change(area as u32, by);
                        scores[area] = scores[area].map(|old| {
                            i64::from(old).saturating_add(by).max(0) as u32
                        });
                    }
                    Step::TakeBest => {
                        if let Some((area, _)) = heap.best() {
                            heap.take_out(area);
                            out[area as usize] = true;
                        }
                    }
                    Step::PutBack(area) => {
                        heap.put_back((area % areas) as u32);
                        out[area % areas] = false;
                    }
                    Step::ChangeAll(by) => {
                        heap.change_all(|_| by);
                        scores.iter_mut().flatten().for_each(|score| *score += by);
                    }
                }
                let inside = sorted(&scores, &out);
                prop_assert_eq!(heap.best(), inside.first().copied());
                for count in [1, 7, areas] {
                    let all = sorted(&scores, &vec![false; areas]);
                    let best: Vec<_> = all.into_iter().take(count).collect();
                    prop_assert_eq!(heap.top(count), best);
                }
                for (area, score) in scores.iter().enumerate() {
                    prop_assert_eq!(heap.score(area as u32), *score);
                }
                let total: Option<u64> = scores.iter().map(|score| score.map(u64::from)).sum();
                prop_assert_eq!(heap.total(), total);
            }
        }

        #[test]
        fn one_of_known_scores_is_in_order(scores in proptest::collection::vec(0..50_u32, 1..300)) {
            let mut heap = AreaHeap::of(scores.len() as u32, |area| scores[area as usize]);
            prop_assert_eq!(heap.total(), Some(scores.iter().map(|score| u64::from(*score)).sum()));
            let known: Vec<_> = scores.iter().copied().map(Some).collect();
            for expected in sorted(&known, &vec![false; scores.len()]) {
                prop_assert_eq!(heap.best(), Some(expected));
                heap.take_out(expected.0);
            }
            prop_assert_eq!(heap.best(), None);
            prop_assert_eq!(heap.any(3), None);
        }
    }
}
