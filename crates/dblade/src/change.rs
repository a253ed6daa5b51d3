//! A change of a volume, spelled once: check, execute, promise, log, apply (decisions 9, 10).
//!
//! 1. *Check* that the volume and its aggregate take changes.
//! 2. *Execute*: the operation decides what is to change, and changes nothing.
//! 3. *Promise* the space that it may come to take.
//! 4. *Log* its records. The half that fills is that of the consistency point that will hold it.
//! 5. *Apply*: it cannot fail.
//!
//! All five happen within one run of one message. Each of the first four may make the message wait,
//! or end it: nothing has changed then. What was promised is taken back when what was decided is
//! dropped.
//!
//! Invariants: the log's order is the order in which changes were applied. Every operation of a
//! client that changes something goes through [`change`]; whatever is in the log already, or is
//! the first content of a file system, through [`owed`].

use crate::host::{Halt, Host, Logged};
use cowfs::budget::Spender;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use cowfs::reader::Reader;
use cowfs::transaction::{Promised, Transaction};
use operations::data::Written;
use operations::data::stripe::{InStripe, StripeWrite};
use operations::{Environment, Executed, Files, Mutation, OperationStop, Record};
use std::ops::Deref;
use units::{InodeNumber, Timestamp};

/// A change that was executed and whose space is promised.
pub(crate) trait Decided {
    /// What is answered.
    type Reply;

    /// What the log gets, in this order.
    fn records(&self) -> &[Record];

    /// The file that it writes to, if it does.
    fn file(&self) -> Option<InodeNumber>;

    /// Makes the change.
    fn apply(self) -> Self::Reply;
}

/// Carries a change out. `decide` executes it on the logical side and promises its space.
#[inline]
pub(crate) fn change<P: Pointer, L: Deref<Target = Logical<P>>, D: Decided>(
    host: &Host<P>,
    logical: L,
    decide: impl FnOnce(L) -> Result<D, Halt>,
) -> Result<(D::Reply, Logged), Halt> {
    host.check_change(&logical)?;
    let decided = decide(logical)?;
    let position = match decided.records() {
        [] => None,
        records => host.log(records)?,
    };
    let file = decided.file();
    Ok((decided.apply(), (position, file)))
}

/// Executes a change that is owed to somebody, and applies it: nothing refuses it, and the log has
/// it already, or need not have it.
///
/// # Errors
/// What the execution stops at; nothing has changed then.
pub(crate) fn owed<P: Pointer, R>(
    logical: &mut Logical<P>,
    (reader, now): (Reader<'_>, Timestamp),
    execute: impl FnOnce(&mut Transaction<'_, P>) -> Result<R, OperationStop>,
) -> Result<R, OperationStop> {
    let mut transaction = Transaction::new(logical, reader, now);
    let reply = execute(&mut transaction)?;
    transaction.promise(Spender::Owed)?.apply();
    Ok(reply)
}

/// A mutation of the whole volume.
pub(crate) struct DecidedMutation<'l, P: Pointer, R> {
    reply: R,
    records: Vec<Record>,
    promised: Promised<'l, P>,
}

impl<'l, P: Pointer, R> DecidedMutation<'l, P, R> {
    /// Executes it, and promises its space.
    pub fn decide(
        mutation: &impl Mutation<Reply = R>,
        mut transaction: Transaction<'l, P>,
        environment: &Environment,
    ) -> Result<Self, Halt> {
        let Executed { reply, records, spender } =
            mutation.execute(&mut Files::new(&mut transaction, environment))?;
        let promised = transaction.promise(spender)?;
        Ok(Self { reply, records, promised })
    }
}

impl<P: Pointer, R> Decided for DecidedMutation<'_, P, R> {
    type Reply = R;

    fn records(&self) -> &[Record] {
        &self.records
    }

    fn file(&self) -> Option<InodeNumber> {
        self.records.iter().find_map(Record::file)
    }

    fn apply(self) -> R {
        self.promised.apply();
        self.reply
    }
}

/// Nothing, where it turned out that the change is made elsewhere.
impl<D: Decided> Decided for InStripe<D> {
    type Reply = InStripe<D::Reply>;

    #[inline]
    fn records(&self) -> &[Record] {
        match self {
            Self::Done(decided) => decided.records(),
            Self::Reroute => &[],
        }
    }

    #[inline]
    fn file(&self) -> Option<InodeNumber> {
        match self {
            Self::Done(decided) => decided.file(),
            Self::Reroute => None,
        }
    }

    #[inline]
    fn apply(self) -> InStripe<D::Reply> {
        match self {
            Self::Done(decided) => InStripe::Done(decided.apply()),
            Self::Reroute => InStripe::Reroute,
        }
    }
}

/// A write within one stripe: it is executed and promised where it is decided that it is one.
impl<P: Pointer> Decided for StripeWrite<'_, P> {
    type Reply = Written;

    fn records(&self) -> &[Record] {
        self.record().map(std::slice::from_ref).unwrap_or_default()
    }

    fn file(&self) -> Option<InodeNumber> {
        Some(StripeWrite::file(self))
    }

    fn apply(self) -> Written {
        StripeWrite::apply(self)
    }
}
