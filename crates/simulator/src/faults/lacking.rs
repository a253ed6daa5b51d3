//! Which lives end with features that the build lacks (`life/lacking.rs`).
//!
//! Invariants: the choices are their own.

use crate::seed::choices::{Choices, Purpose};
use crate::seed::lives::Lives;
use crate::seed::reduction::Calm;

/// Of 100 lives that may, those that end so.
const LIVES_PERCENT: u64 = 10;

/// The choices of a life that ends so.
#[derive(Default)]
pub struct Lacking(pub(crate) Option<Choices>);

impl Lacking {
    /// Whether a seed's life ends so.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives) -> Self {
        let mut choices = Choices::of(seed, Purpose::Lacking, lives.reduction.salt);
        let is_chosen = choices.chance(LIVES_PERCENT) || lives.lacking;
        let may_be = lives.boundary.is_none() && !lives.reduction.is_calm(Calm::Lacking);
        Self((is_chosen && may_be).then_some(choices))
    }
}
