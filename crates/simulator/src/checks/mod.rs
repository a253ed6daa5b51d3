//! What must hold of a node, whatever happened: of its [`growth`]; and at rest, of its [`space`],
//! of what snapshots have [`held`] and how they [differ](differences), and of its [`media`].

pub mod differences;
pub mod growth;
pub mod held;
pub mod media;
pub mod quotas;
pub mod space;
