//! What must hold of a node at rest, whatever happened: [`space`] and [`media`].

pub mod media;
pub mod space;
