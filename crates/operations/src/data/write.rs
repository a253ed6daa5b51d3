//! WRITE, of any range.
//!
//! A stable write is logged with its data. An unstable one is not: its blocks lie in memory until
//! COMMIT logs them or a consistency point writes them (decision 10). One thing makes an unstable
//! write stable: that it takes a program's capabilities away, which must not come back.
//!
//! An append is a write where the file ends when its turn comes, so that no other append is written
//! over; its record is that of the write.
//!
//! Fails: `Stale`, `IsDirectory`, `Invalid`, `AccessDenied`, `FileTooLarge`, `NoSpace`.

use crate::attributes::change;
use crate::mutation::{prefix, reference};
use crate::{Environment, Executed, Files, Mutation, Outcome, Record, Scoped, apply, holder};
use bytes::Bytes;
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use file_service::permission::{self, MODE_WRITE};
use file_service::rules::attributes::{check_has_data, check_range, mode_after_write};
use file_service::{Attributes, FsError, NodeChange, Stability, calls};
use ondisk::operation::{FLAG_DROPS_CAPABILITY, KIND_WRITE, WriteRecord};
use platform::mutation::{self, Rule};
use units::{BLOCK_SIZE_U64, Generation, InodeNumber};

/// What a write did; the verifier is the server's to add.
#[derive(Clone, Debug)]
pub struct Written {
    /// Bytes written, from the start of the data.
    pub count: u32,
    /// How durable they are now.
    pub stability: Stability,
    /// The attributes around the change.
    pub change: NodeChange,
}

/// A write that is allowed.
pub(crate) struct WritePlan {
    pub data: Bytes,
    pub end: u64,
    /// Mode bits that it clears.
    pub mode_cleared: u32,
}

impl Scoped<calls::Write> {
    /// What to write; nothing for no data.
    ///
    /// # Errors
    /// Unless the caller may write it.
    pub(crate) fn plan(
        &self,
        environment: &Environment,
        before: &Attributes,
    ) -> Result<WritePlan, FsError> {
        check_has_data(before)?;
        permission::check_data(&self.scope.caller, before, MODE_WRITE)?;
        let limits = &environment.limits;
        let count = self.call.data.len().min(limits.transfer_bytes_max as usize);
        let end = check_range(self.call.offset, count as u64, limits.file_bytes_max)?;
        let mode = mode_after_write(&self.scope.caller, before);
        let data = self.call.data.slice(..count);
        Ok(WritePlan { data, end, mode_cleared: before.mode & !mode })
    }

    /// The answer.
    pub(crate) fn written(&self, plan: &WritePlan, change: NodeChange) -> Written {
        Written { count: plan.data.len() as u32, stability: self.call.stability, change }
    }

    /// The record of a write that leaves the file with these attributes.
    pub(crate) fn record(
        &self,
        environment: &Environment,
        plan: &WritePlan,
        (inode, generation): (InodeNumber, Generation),
        (size, change): (u64, u64),
        drops_capability: bool,
    ) -> Record {
        let record = WriteRecord {
            prefix: prefix(environment.volume, self.scope.now),
            file: reference(inode, generation),
            offset: self.call.offset.into(),
            size: size.into(),
            change: change.into(),
            mode_cleared: plan.mode_cleared.into(),
            data_size: (plan.data.len() as u32).into(),
            flags: if drops_capability { FLAG_DROPS_CAPABILITY } else { 0 }.into(),
            reserved: 0.into(),
        };
        Record::new(KIND_WRITE, &record, &[]).with_data(plan.data.clone())
    }
}

/// What a write does to an inode.
pub(crate) fn note_write(
    state: &mut InodeAttributes,
    end: u64,
    mode_cleared: u32,
    now: units::Timestamp,
) {
    state.size = state.size.max(end);
    state.mode &= !((mode_cleared & 0o7777) as u16);
    state.touch_content(now);
}

impl Mutation for Scoped<calls::Write> {
    type Reply = Written;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Written>> {
        let found = files.open_for(self.call.file, &self.scope.caller)?;
        let (inode, before) = (found.inode, &found.attributes);
        let plan = self.plan(files.environment, before)?;
        if plan.data.is_empty() {
            let unchanged = change(before, before.clone());
            return Ok(Executed::silent(self.written(&plan, unchanged)));
        }
        apply::write(files.transaction, inode, self.call.offset, &plan.data)?;
        let drops = holder::drop_capability(files.transaction, inode)?;
        let state = files.transaction.edit(inode)?;
        note_write(state, plan.end, plan.mode_cleared, self.scope.now);
        let (size, counter) = (state.size, state.change);
        let after = files.attributes(inode)?;
        let reply = self.written(&plan, change(before, after));
        if self.call.stability == Stability::Unstable && !drops {
            files.transaction.set_unlogged();
            return Ok(Executed::silent(reply));
        }
        let names = (inode, found.state.generation);
        let record = self.record(files.environment, &plan, names, (size, counter), drops);
        Ok(Executed::storing(reply, record))
    }
}

impl Mutation for Scoped<calls::Append> {
    type Reply = Written;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Written>> {
        let calls::Append { file, stability, data } = &self.call;
        let found = files.open(*file)?;
        let mut offset = found.attributes.size;
        if mutation::broken(Rule::AppendBeforeUnlogged) {
            let first = files.transaction.unlogged(found.inode).first().copied();
            offset = first.map_or(offset, |fbn| offset.min(fbn.get() * BLOCK_SIZE_U64));
        }
        let data = data.clone();
        let call = calls::Write { file: *file, offset, stability: *stability, data };
        Scoped { scope: self.scope.clone(), call }.execute(files)
    }
}
