//! What must hold of a node, whatever happened: of its [`growth`]; and at rest, of its [`space`]
//! and its [`media`].

pub mod growth;
pub mod media;
pub mod space;
