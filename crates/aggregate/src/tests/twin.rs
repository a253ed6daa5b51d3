//! An aggregate and its model ([`super::host`]), changed together and compared.
//!
//! Rules that [`Twin::check`] looks at, whatever a test is about:
//!
//! - A container map has exactly the numbers of the model, and each leads to the model's block.
//! - The free map has exactly the blocks that the image reaches: nothing leaks, and no two places
//!   of the image have one block. The counts say so, too.
//! - No block that the image before had is another block's in the next image: a number that was
//!   freed is given again one consistency point later at the earliest.

use super::host::{self, Host, Model};
use crate::Tuning;
use crate::test_support::{BlocksInUse, Rig, find_blocks};
use ondisk::label::RaidKind;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;
use units::{CpNumber, VolumeId, Vvbn};

/// Numbers of a volume that tests use: several nodes of the container map, with gaps.
const NUMBERS: u64 = 4000;

/// See the module.
pub struct Twin {
    rig: Option<Rig>,
    pub world: SimulatedWorld,
    pub model: Arc<Model>,
    pub volumes: Vec<VolumeId>,
    tuning: Tuning,
    /// The last image that was looked at, and what it reaches.
    before: (CpNumber, BlocksInUse),
}

impl Twin {
    /// An aggregate with two volumes.
    pub fn new(seed: u64, groups: &[(RaidKind, usize)], tuning: Tuning) -> Self {
        println!("seed {seed}");
        let world = SimulatedWorld::new(seed);
        let rig = Rig::create(&world, groups, tuning);
        let model = Arc::new(Model::default());
        let volumes = (0..2).map(|_| Host::make(&rig, &model)).collect();
        Self { rig: Some(rig), world, model, volumes, tuning, before: Default::default() }
    }

    pub fn rig(&self) -> &Rig {
        self.rig.as_ref().expect("it is open")
    }

    pub fn choose(&self, end: u64) -> u64 {
        self.world.choose(end)
    }

    /// Writes or frees some numbers of a volume, one after another or apart.
    pub fn change(&self) {
        let volume = self.volumes[self.choose(self.volumes.len() as u64) as usize];
        let (first, step) = (self.choose(NUMBERS), [1, 1, 7, 300][self.choose(4) as usize]);
        let (count, frees) = (1 + self.choose(120), self.choose(3) == 0);
        for at in 0..count {
            let vvbn = Vvbn(1 + (first + at * step) % NUMBERS);
            if frees {
                self.model.free(volume, vvbn);
            } else {
                self.model.set(volume, vvbn);
            }
        }
    }

    fn reopen(&mut self) {
        let rig = Rig::open(&self.world, self.tuning);
        self.model.go_back_to(rig.aggregate.committed());
        let join = |volume: &VolumeId| Host::join(&rig.aggregate, &self.model, *volume);
        self.volumes.iter().for_each(join);
        self.rig = Some(rig);
    }

    /// The power goes after so many steps, in which a consistency point begins.
    pub fn cut_after(&mut self, steps: u64) {
        let rig = self.rig.take().expect("it is open");
        rig.aggregate.request_consistency_point(None);
        for _ in 0..steps {
            rig.step();
        }
        rig.cut();
        self.reopen();
    }

    /// A consistency point, after which all that was to come of it has come.
    pub fn commit(&self) {
        self.rig().consistency_point();
        self.rig().settle();
    }

    /// A volume is deleted, and another made.
    pub fn replace_volume(&mut self) {
        let volume = self.volumes.remove(self.choose(self.volumes.len() as u64) as usize);
        Host::delete(self.rig(), &self.model, volume);
        self.rig().settle();
        let gone = self.rig().on_side(move |side, _| Ok(!side.containers.contains_key(&volume)));
        assert!(gone, "all of it was freed");
        self.volumes.push(Host::make(self.rig(), &self.model));
    }

    /// Looks at the image of the last commit, which has all changes of the model.
    pub fn check(&mut self) -> &BlocksInUse {
        self.rig().settle();
        let blocks = self.model.blocks();
        let found = self.rig().on_side(move |side, reader| {
            let found = find_blocks(side, reader)?;
            found.check_space(side, reader)?;
            Ok(found)
        });
        assert!(found.entries.keys().eq(blocks.keys()), "a number is missing, or too many");
        for ((volume, vvbn), pointer) in &found.entries {
            let block = host::read(self.rig(), (*volume, *vvbn), pointer);
            assert!(blocks[&(*volume, *vvbn)] == block, "{volume} {vvbn} has another's block");
        }
        let cp = self.rig().aggregate.committed();
        if self.before.0.next() == cp {
            let reused = found.reused_of(&self.before.1);
            assert!(reused.is_empty(), "{reused:?} were in the image before");
        }
        self.before = (cp, found);
        &self.before.1
    }
}
