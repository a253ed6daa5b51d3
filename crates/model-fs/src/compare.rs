//! The same operations on two services, and what was seen compared.
//!
//! The subject goes first: where it may rightly do less than the model (no space, a short write)
//! the model then does as much.
//!
//! Invariants: after a step that agreed both sides hold the same tree, and corresponding handles in
//! all slots.
//!
//! Fails: [`Mismatch`] with the operation and both observations, printed for a reader.

use crate::answer::Answer;
use crate::executor::{Executor, ExecutorState};
use crate::image::{Difference, Image, ImageError};
use crate::model::{Model, Subject};
use crate::observation::{FileView, Observation};
use crate::operation::{Operation, SnapshotAction};
use file_service::{Caller, Durability, FileHandle, FsError, calls};
use std::collections::BTreeMap;
use std::fmt;

/// What a right service may do otherwise than the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tolerance {
    /// Refuse with `NoSpace` or `TryLater`, and do nothing.
    pub no_space: bool,
    /// Find data and holes elsewhere than at 4 KiB borders (errors must agree).
    pub seek: bool,
}

impl Tolerance {
    /// Nothing.
    pub const STRICT: Self = Self { no_space: false, seek: false };
    /// Everything that can be tolerated.
    pub const WIDE: Self = Self { no_space: true, seek: true };

    /// Whether what was seen of the subject agrees with what was expected.
    #[must_use]
    pub fn agrees(self, expected: &Observation, found: &Observation) -> bool {
        match (expected, found) {
            (Observation::Broken(_), _) | (_, Observation::Broken(_)) => false,
            (Observation::Offset(_), Observation::Offset(_)) if self.seek => true,
            // A service may be more durable than it was asked to be.
            (
                Observation::Wrote { count, size_before, after, .. },
                Observation::Wrote {
                    count: other_count,
                    size_before: other_size,
                    after: other,
                    ..
                },
            ) => (count, size_before, after) == (other_count, other_size, other),
            (
                Observation::Data { digest, end_of_file, file },
                Observation::Data {
                    digest: other_digest,
                    end_of_file: other_end,
                    file: other_file,
                },
            ) => {
                (digest, end_of_file) == (other_digest, other_end)
                    && may_agree(file.as_ref(), other_file.as_ref())
            }
            _ => expected == found,
        }
    }
}

/// Attributes with a read are the service's choice; if both have them they agree.
fn may_agree(expected: Option<&FileView>, found: Option<&FileView>) -> bool {
    match (expected, found) {
        (Some(expected), Some(found)) => expected == found,
        _ => true,
    }
}

/// Two services disagree.
#[derive(Clone, PartialEq, Debug)]
pub enum Mismatch {
    /// About one operation.
    Answer {
        /// How many operations came before.
        index: usize,
        /// The operation.
        operation: Box<Operation>,
        /// What the model's answer is.
        expected: Box<Observation>,
        /// What the subject's is.
        found: Box<Observation>,
    },
    /// About the tree.
    Tree {
        /// How many operations came before.
        index: usize,
        /// In which image: the active file system, or a snapshot.
        snapshot: Option<u8>,
        /// How.
        differences: Vec<Difference>,
    },
    /// A tree could not be read.
    Image(ImageError),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer { index, operation, expected, found } => {
                writeln!(formatter, "operation {index}: {operation:?}")?;
                writeln!(formatter, "  expected {expected:?}")?;
                write!(formatter, "  found    {found:?}")
            }
            Self::Tree { index, snapshot, differences } => {
                write!(formatter, "after operation {index}, ")?;
                match snapshot {
                    Some(snapshot) => write!(formatter, "in snapshot {snapshot}:")?,
                    None => write!(formatter, "in the active file system:")?,
                }
                differences.iter().try_for_each(|one| write!(formatter, "\n  {one}"))
            }
            Self::Image(error) => write!(formatter, "the tree cannot be read: {error}"),
        }
    }
}

impl std::error::Error for Mismatch {}

impl From<ImageError> for Mismatch {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

/// A subject with its executor.
pub struct Runner<S> {
    /// The subject.
    pub subject: S,
    /// Its executor.
    pub executor: Executor,
    root: FileHandle,
    saved: BTreeMap<u8, ExecutorState>,
}

impl<S: Subject> Runner<S> {
    /// On the subject's volume, which is empty.
    ///
    /// # Errors
    /// What the service says to a request for the root.
    pub fn new(
        subject: S,
        durability: Durability,
        drive: &mut dyn FnMut(),
    ) -> Result<Self, FsError> {
        let service = subject.service();
        let root = Answer::to(|done| {
            service.root(&Caller::root(), calls::Root { name: subject.volume().to_owned() }, done)
        });
        let root = root.wait(drive).ok_or(FsError::TryLater)??.handle;
        let executor = Executor::new(service, root, durability);
        Ok(Self { subject, executor, root, saved: BTreeMap::new() })
    }

    /// Runs one operation, a snapshot's as well.
    pub fn run(&mut self, operation: &Operation, drive: &mut dyn FnMut()) -> Observation {
        let Operation::Snapshot(action) = operation else {
            return self.executor.run(operation, drive);
        };
        let translation = match self.subject.snapshot(*action, drive) {
            Ok(translation) => translation,
            Err(error) => return Observation::Failed(error),
        };
        match action {
            SnapshotAction::Create(snapshot) => {
                self.saved.insert(*snapshot, self.executor.state());
            }
            SnapshotAction::Delete(snapshot) => drop(self.saved.remove(snapshot)),
            SnapshotAction::Restore(snapshot) => {
                if let Some(state) = self.saved.get(snapshot) {
                    let state = state.translated(&translation);
                    self.executor.restore(self.subject.service(), state);
                    self.root = translation.get(self.root);
                }
            }
        }
        Observation::Done
    }

    /// What is put back with each snapshot.
    #[must_use]
    pub fn saved_states(&self) -> BTreeMap<u8, ExecutorState> {
        self.saved.clone()
    }

    /// The snapshots are these, after all: a restore that was run has not happened.
    pub fn put_states(&mut self, states: BTreeMap<u8, ExecutorState>) {
        self.saved = states;
    }

    /// The volume's root.
    #[must_use]
    pub fn root(&self) -> FileHandle {
        self.root
    }

    /// The tree now.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn image(&self, drive: &mut dyn FnMut()) -> Result<Image, ImageError> {
        let mut image = Image::capture(&*self.executor.service, self.root, drive)?;
        image.find_trees(|path, directory| self.subject.is_tree(path, directory, drive));
        Ok(image)
    }
}

impl Runner<Model> {
    /// A model of an empty volume.
    #[must_use]
    pub fn model(model: Model, durability: Durability) -> Self {
        let root = model.root();
        let executor = Executor::new(model.service(), root, durability);
        Self { subject: model, executor, root, saved: BTreeMap::new() }
    }

    /// Makes the directory at a path a quota tree, unless it is one.
    ///
    /// # Errors
    /// `NotFound`; as [`file_service::memory::MemoryFileSystem::make_tree`].
    pub fn make_tree(&self, path: &[u8]) -> Result<(), FsError> {
        let image = self.image(&mut || {}).map_err(|_| FsError::NotFound)?;
        let node = image.nodes.get(path).ok_or(FsError::NotFound)?;
        self.subject.make_tree(node.handle)
    }

    /// Whether the directory at a path is a quota tree, or may become one.
    #[must_use]
    pub fn may_make_tree(&self, path: &[u8]) -> bool {
        self.fork().is_ok_and(|fork| fork.make_tree(path).is_ok())
    }

    /// Another model with the same files, snapshots and slots.
    ///
    /// # Errors
    /// [`ImageError`], which a model never has.
    pub fn fork(&self) -> Result<Self, ImageError> {
        let mut fork = Self {
            subject: self.subject.clone(),
            executor: Executor::new(self.subject.service(), self.root, self.executor.durability()),
            root: self.root,
            saved: self.saved.clone(),
        };
        fork.take_over(&self.image(&mut || {})?, &self.executor.state());
        Ok(fork)
    }

    /// Goes on from what the subject has after a restart, of which `found` is the image. The
    /// subject's executor must have been told ([`Executor::restarted`]).
    pub fn follow<S: Subject>(&mut self, subject: &Runner<S>, found: &Image) {
        self.take_over(found, &subject.executor.state());
    }

    fn take_over(&mut self, image: &Image, state: &ExecutorState) {
        let translation = self.subject.rebuild(image);
        self.root = self.subject.root();
        self.executor.resume(self.subject.service(), state.translated(&translation));
    }
}

/// Runs one operation on both sides.
///
/// # Errors
/// [`Mismatch`] if the answers do not agree; `index` is for its text.
pub fn compare_step<S: Subject>(
    model: &mut Runner<Model>,
    subject: &mut Runner<S>,
    (index, operation): (usize, &Operation),
    tolerance: Tolerance,
    drive: &mut dyn FnMut(),
) -> Result<Observation, Mismatch> {
    let found = subject.run(operation, drive);
    let is_left_out = match (&found, operation) {
        (Observation::Failed(FsError::NoSpace | FsError::TryLater), _) => tolerance.no_space,
        (Observation::Failed(FsError::NotSupported), Operation::Snapshot(_)) => true,
        _ => false,
    };
    if is_left_out {
        return Ok(found);
    }
    let same = match &found {
        Observation::Wrote { count, .. } if tolerance.no_space => {
            operation.clone().writing_at_most(*count)
        }
        _ => operation.clone(),
    };
    let expected = model.run(&same, drive);
    if tolerance.agrees(&expected, &found) {
        Ok(found)
    } else {
        let (expected, found) = (Box::new(expected), Box::new(found));
        Err(Mismatch::Answer { index, operation: Box::new(operation.clone()), expected, found })
    }
}

/// Compares the trees, of the active file system and of all snapshots that the subject shows.
///
/// # Errors
/// [`Mismatch`].
pub fn compare_images<S: Subject>(
    model: &Runner<Model>,
    subject: &Runner<S>,
    index: usize,
    drive: &mut dyn FnMut(),
) -> Result<(), Mismatch> {
    let check = |snapshot, expected: &Image, found: &Image| {
        let differences = expected.difference(found);
        if differences.is_empty() {
            Ok(())
        } else {
            Err(Mismatch::Tree { index, snapshot, differences })
        }
    };
    check(None, &model.image(drive)?, &subject.image(drive)?)?;
    for snapshot in model.subject.snapshots() {
        let Some(root) = subject.subject.snapshot_root(snapshot, drive) else { continue };
        let found = Image::capture(&*subject.executor.service, root, drive)?;
        if let Some(expected) = model.subject.snapshot_image(snapshot) {
            check(Some(snapshot), expected, &found)?;
        }
    }
    Ok(())
}

/// Runs `operations` on both sides, compares each answer, and the trees every `image_interval`
/// operations and at the end.
///
/// # Errors
/// The first [`Mismatch`].
pub fn compare_run<S: Subject>(
    model: &mut Runner<Model>,
    subject: &mut Runner<S>,
    operations: &[Operation],
    (tolerance, image_interval): (Tolerance, usize),
    drive: &mut dyn FnMut(),
) -> Result<(), Mismatch> {
    for (index, operation) in operations.iter().enumerate() {
        compare_step(model, subject, (index, operation), tolerance, drive)?;
        if index % image_interval.max(1) == image_interval.max(1) - 1 {
            compare_images(model, subject, index, drive)?;
        }
    }
    compare_images(model, subject, operations.len(), drive)
}
