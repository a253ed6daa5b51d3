//! Where a run works: the server under test, a directory of its own, and who follows it.

use crate::Failure;
use crate::node::{Node, Sizes};
use std::path::Path;

/// See the module.
pub struct Site<'a> {
    /// The binary `stroop`.
    pub binary: &'a Path,
    /// A directory that is empty, or not there.
    pub directory: &'a Path,
    /// Gets a line for each step.
    pub tell: &'a mut dyn FnMut(&str),
}

impl Site<'_> {
    /// A new node, and the server on it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn node(&self, sizes: &Sizes) -> Result<Node, Failure> {
        Node::create(self.binary, &self.directory.join("node"), sizes)
    }
}
