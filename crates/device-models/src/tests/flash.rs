//! The flash translation layer on flash that knows its own rules.

use crate::flash::{FlashStep, FlashTranslation};
use proptest::prelude::*;

/// Flash: what is in each page, and how many pages of each block are programmed.
struct NaiveFlash {
    pages_per_block: u64,
    pages: Vec<Option<(u64, u32)>>,
    programmed: Vec<u64>,
    programs: u64,
    relocations: u64,
}

impl NaiveFlash {
    fn new(translation: &FlashTranslation, pages_per_block: u64) -> Self {
        let pages = translation.physical_pages();
        Self {
            pages_per_block,
            pages: vec![None; pages as usize],
            programmed: vec![0; (pages / pages_per_block) as usize],
            programs: 0,
            relocations: 0,
        }
    }

    fn program(&mut self, page: u64, content: Option<(u64, u32)>) {
        let block = &mut self.programmed[(page / self.pages_per_block) as usize];
        assert_eq!(page % self.pages_per_block, *block, "pages are programmed in order, once");
        *block += 1;
        assert!(content.is_some(), "what is relocated is valid");
        self.pages[page as usize] = content;
    }

    fn write(&mut self, translation: &mut FlashTranslation, page: u64, version: u32) {
        translation.write(page, |step| match step {
            FlashStep::Program { page: at } => {
                self.programs += 1;
                self.program(at, Some((page, version)));
            }
            FlashStep::Relocate { from, to } => {
                self.relocations += 1;
                self.program(to, self.pages[from as usize]);
            }
            FlashStep::Erase { block } => {
                let first = block * self.pages_per_block;
                let pages = first as usize..(first + self.pages_per_block) as usize;
                self.pages[pages].fill(None);
                self.programmed[block as usize] = 0;
            }
        });
    }

    fn write_amplification(&self) -> f64 {
        (self.programs + self.relocations) as f64 / self.programs as f64
    }
}

#[derive(Clone, Debug)]
enum Action {
    Write(u64, u64),
    Invalidate(u64, u64),
}

const PAGES: u64 = 45;

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let run = (0..PAGES).prop_flat_map(|first| (Just(first), first..=PAGES));
    let action = (run, 0..4_u8).prop_map(|((first, end), kind)| match kind {
        0 => Action::Invalidate(first, end.min(first + 9)),
        _ => Action::Write(first, end.min(first + 12)),
    });
    prop::collection::vec(action, 1..120)
}

proptest! {
    #[test]
    fn every_page_is_found_where_the_flash_has_it(
        actions in actions(),
        pages_per_block in 1..9_u32,
        over_provisioning in 0..60_u32,
    ) {
        let mut translation = FlashTranslation::new(PAGES, pages_per_block, over_provisioning);
        let mut flash = NaiveFlash::new(&translation, u64::from(pages_per_block));
        let mut expected = vec![None; PAGES as usize];
        let mut version = 0;
        for action in actions {
            match action {
                Action::Write(first, end) => {
                    for page in first..end {
                        version += 1;
                        flash.write(&mut translation, page, version);
                        expected[page as usize] = Some((page, version));
                        prop_assert!(translation.free_blocks() > 0);
                    }
                }
                Action::Invalidate(first, end) => {
                    translation.invalidate(first..end);
                    expected[first as usize..end as usize].fill(None);
                }
            }
            translation.check();
            for page in 0..PAGES {
                let found = translation.locate(page).and_then(|at| flash.pages[at as usize]);
                prop_assert_eq!(found, expected[page as usize], "page {}", page);
            }
        }
        prop_assert!(flash.programs == 0 || flash.write_amplification() >= 1.0);
    }
}

#[test]
fn sequential_overwrites_relocate_nothing() {
    // 50 pages are not a whole number of blocks: where a pass begins in a block changes each time.
    for (pages, over_provisioning) in [(64, 7), (50, 0), (50, 30)] {
        let mut translation = FlashTranslation::new(pages, 8, over_provisioning);
        let mut flash = NaiveFlash::new(&translation, 8);
        for pass in 0..20 {
            (0..pages).for_each(|page| flash.write(&mut translation, page, pass));
        }
        assert_eq!((flash.programs, flash.relocations), (20 * pages, 0));
    }
}

#[test]
fn the_emptiest_block_is_the_victim() {
    // Two blocks of four pages for the host, and two to spare.
    let mut translation = FlashTranslation::new(8, 4, 0);
    let mut steps = Vec::new();
    let mut write = |page: u64| {
        steps.clear();
        translation.write(page, |step| steps.push(step));
        steps.clone()
    };
    (0..8).for_each(|page| assert_eq!(write(page), [FlashStep::Program { page }]));
    // Block 0 has one valid page left, block 1 three, block 2 four.
    for (page, at) in [(0, 8), (1, 9), (2, 10), (4, 11)] {
        assert_eq!(write(page), [FlashStep::Program { page: at }]);
    }
    let collected = [
        FlashStep::Relocate { from: 3, to: 12 },
        FlashStep::Erase { block: 0 },
        FlashStep::Program { page: 13 },
    ];
    assert_eq!(write(5), collected);
}

#[test]
fn what_is_invalidated_is_not_relocated() {
    let mut translation = FlashTranslation::new(8, 4, 0);
    (0..8).for_each(|page| translation.write(page, |_| {}));
    [0, 1, 2, 4].iter().for_each(|page| translation.write(*page, |_| {}));
    translation.invalidate(3..4);
    let mut steps = Vec::new();
    translation.write(5, |step| steps.push(step));
    assert_eq!(steps, [FlashStep::Erase { block: 0 }, FlashStep::Program { page: 12 }]);
    assert_eq!(translation.locate(3), None);
}

/// Uniform random overwrites, until the figure has settled, then as many again.
fn random_write_amplification(over_provisioning_percent: u32) -> f64 {
    const PAGES_PER_BLOCK: u32 = 128;
    let pages = 400 * u64::from(PAGES_PER_BLOCK);
    let mut translation = FlashTranslation::new(pages, PAGES_PER_BLOCK, over_provisioning_percent);
    let (mut state, mut relocated) = (1_u64, 0_u64);
    (0..pages).for_each(|page| translation.write(page, |_| {}));
    for round in 0..2 {
        relocated = 0;
        for _ in 0..4 * pages {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let page = ((u128::from(state) * u128::from(pages)) >> 64) as u64;
            translation.write(page, |step| {
                relocated += u64::from(matches!(step, FlashStep::Relocate { .. }));
            });
        }
        assert!(round == 0 || relocated > 0);
    }
    1.0 + relocated as f64 / (4 * pages) as f64
}

#[test]
fn random_overwrites_cost_what_greedy_collection_is_known_to_cost() {
    // For uniform random writes to flash that is `a` times what the host sees, the share `x` of a
    // victim that is still valid solves x = exp(-a (1 - x)), and 1 / (1 - x) is the amplification:
    // the known result for cleaning in the order of writing, which greedy cleaning stays a little
    // below.
    for percent in [10, 25, 50] {
        let ratio = 1.0 + f64::from(percent) / 100.0;
        let mut valid = 0.0_f64;
        (0..1000).for_each(|_| valid = (-ratio * (1.0 - valid)).exp());
        let known = 1.0 / (1.0 - valid);
        let found = random_write_amplification(percent);
        assert!((known * 0.97..known).contains(&found), "{percent} %: {found} of {known}");
    }
}
