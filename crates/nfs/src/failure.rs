//! What goes with a status other than OK: the attributes of the files that the call was about.
//!
//! A client that is told that a name is not there, or is there already, is told by this too
//! whether what it knows of the directory is still true (RFC 1813 section 2.6, weak cache
//! consistency). They are asked for after the failure, so an answer that has them costs a second
//! look at each file; only failures pay for it. What the attributes were before is left out: what
//! failed has changed nothing, and the ones before would be of another moment.
//!
//! Invariants: files are told in the order in which the procedure read their handles, which is the
//! order of the results; a handle that the policy refused is never told of.
//!
//! Fails: by leaving out.

use crate::request::Context;
use crate::wire;
use file_service::{Attributes, FileHandle, FileService};
use onc_rpc::Writer;
use std::sync::Arc;

/// Most files that a failure tells of: RENAME has two directories.
const FILES_MAX: usize = 2;

/// What a failed procedure's results have for one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FailureAttributes {
    /// `post_op_attr`.
    After,
    /// `wcc_data`.
    Around,
}

/// What follows a status other than OK.
pub(crate) struct AfterFailure {
    context: Arc<Context>,
    layout: &'static [FailureAttributes],
    files: [Option<FileHandle>; FILES_MAX],
    noted: usize,
    attributes: [Option<Attributes>; FILES_MAX],
    /// Files that were asked about.
    asked: usize,
}

impl AfterFailure {
    pub(crate) fn new(context: &Arc<Context>, layout: &'static [FailureAttributes]) -> Self {
        assert!(layout.len() <= FILES_MAX, "no procedure has as many files");
        Self {
            context: Arc::clone(context),
            layout,
            files: [None; FILES_MAX],
            noted: 0,
            attributes: [const { None }; FILES_MAX],
            asked: 0,
        }
    }

    /// Another file that the call is about.
    pub(crate) fn note(&mut self, file: FileHandle) {
        if let Some(place) = self.files.get_mut(self.noted) {
            *place = Some(file);
            self.noted += 1;
        }
    }

    /// Tells of no file after all.
    pub(crate) fn forget(&mut self) {
        self.noted = 0;
    }

    /// The file to ask about next, and whom.
    pub(crate) fn next(&self) -> Option<(Arc<dyn FileService>, FileHandle)> {
        if self.asked >= self.noted.min(self.layout.len()) {
            return None;
        }
        let file = self.files.get(self.asked).copied().flatten()?;
        Some((Arc::clone(&self.context.service), file))
    }

    /// What was found about [`Self::next`].
    pub(crate) fn found(&mut self, attributes: Option<Attributes>) {
        if let Some(place) = self.attributes.get_mut(self.asked) {
            *place = attributes;
        }
        self.asked += 1;
    }

    /// The results after the status.
    pub(crate) fn write(&self, writer: &mut Writer) {
        for (layout, attributes) in self.layout.iter().zip(&self.attributes) {
            if *layout == FailureAttributes::Around {
                writer.bool(false);
            }
            wire::post_attributes(writer, attributes.as_ref());
        }
    }
}
