//! Puts and deletions.
//!
//! An object of which all blocks changed is put as it is. Of any other the old content is read
//! first, and put whole with the changes in it. In a bucket a put names the version that it
//! replaces: the one that was read, or the one that our last put made. So a put that arrives late
//! (from a process that was killed, or from an attempt that was given up) finds another version and
//! does nothing.
//!
//! A deletion cannot name a version. It is asked for until the store answers, before anything else
//! happens to the object.
//!
//! Invariants: nothing is put without the lease; nothing before the descriptor; after a put that
//! did not succeed the version is asked for anew, and a lost lease ends the attempts.
//!
//! Fails: after [`Limits::attempts_max`](crate::Limits) attempts with the reason of the last.

use crate::disk::Shared;
use crate::error::RequestError;
use crate::geometry::{DESCRIPTOR_KEY, ObjectId};
use crate::pending::{Bitmap, Body, Changes, Upload};
use crate::requests::Version;
use bytes::Bytes;
use ondisk::object_range::ObjectRangeDescriptor;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::{BLOCK_SIZE, BlockRef};

/// The versions of objects that were read or put.
#[derive(Debug)]
pub(crate) struct Versions {
    known: Mutex<BTreeMap<ObjectId, Version>>,
    count_max: usize,
}

impl Versions {
    pub(crate) fn new(count_max: usize) -> Self {
        Self { known: Mutex::default(), count_max }
    }

    fn get(&self, object: ObjectId) -> Option<Version> {
        self.known.lock().get(&object).cloned()
    }

    fn set(&self, object: ObjectId, version: Version) {
        let mut known = self.known.lock();
        known.insert(object, version);
        while known.len() > self.count_max {
            known.pop_first();
        }
    }

    fn forget(&self, object: ObjectId) {
        self.known.lock().remove(&object);
    }
}

/// A block as bytes to be put, without copying it.
struct BlockBytes(BlockRef);

impl AsRef<[u8]> for BlockBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Shared {
    /// Does what `pending` wants done.
    pub(crate) async fn carry_out(&self, upload: &Upload) -> Result<(), RequestError> {
        let mut attempt = 1;
        loop {
            let result = self.attempt(upload).await;
            let Err(error) = result else { return Ok(()) };
            self.versions.forget(upload.object);
            let may_help = match &error {
                RequestError::Failed { .. } => true,
                // Unless the lease is lost it was an earlier attempt of ours, or of a dead process.
                RequestError::Changed => {
                    self.exclusive.renew().await?;
                    true
                }
                _ => false,
            };
            if !may_help || attempt >= self.requests.limits.attempts_max {
                return Err(error);
            }
            self.requests.pause(attempt).await;
            attempt += 1;
        }
    }

    async fn attempt(&self, upload: &Upload) -> Result<(), RequestError> {
        self.exclusive.check().await?;
        self.create().await?;
        let (object, key) = (upload.object, upload.object.key());
        let Body::Put { changes, zeros } = &upload.body else {
            self.requests.delete(&key).await?;
            self.versions.set(object, self.requests.absent());
            return Ok(());
        };
        let blocks = self.geometry.blocks_of(object);
        let (old, version) = if changes.len() == blocks as usize {
            let known = self.versions.get(object);
            let version = match known {
                Some(version) => version,
                None => self.requests.version_of(&key).await?,
            };
            (None, version)
        } else {
            self.old_content(object, &key).await?
        };
        let payload: object_store::PutPayload = merge(blocks, old.as_ref(), changes, zeros)
            .chain([Bytes::copy_from_slice(&self.incarnation.0)])
            .collect();
        let version = self.requests.put(&key, payload, version).await?;
        self.versions.set(object, version);
        Ok(())
    }

    async fn old_content(
        &self,
        object: ObjectId,
        key: &str,
    ) -> Result<(Option<Bytes>, Version), RequestError> {
        let Some(content) = self.requests.get(key, None).await? else {
            return Ok((None, self.requests.absent()));
        };
        let expected_bytes = self.geometry.bytes_of(object);
        if content.object_bytes != expected_bytes {
            let found_bytes = content.object_bytes;
            return Err(RequestError::Length { found_bytes, expected_bytes });
        }
        Ok((Some(content.bytes), content.version))
    }

    /// Writes the descriptor of a range that is being made, before anything else of it.
    async fn create(&self) -> Result<(), RequestError> {
        let mut is_created = self.is_created.lock().await;
        if *is_created {
            return Ok(());
        }
        let payload = self.descriptor.to_bytes().into();
        match self.requests.put(DESCRIPTOR_KEY, payload, Version::Absent).await {
            Ok(_) => {}
            Err(RequestError::Changed) => {
                let found = self.requests.get(DESCRIPTOR_KEY, None).await?;
                let found =
                    found.and_then(|found| ObjectRangeDescriptor::from_bytes(&found.bytes).ok());
                // Ours if only the answer was lost, or of a dead process of this node that was
                // making the same range: both as good, if the range is ours and cut in the same
                // way.
                self.exclusive.renew().await?;
                let Some(found) = found else { return Err(RequestError::Changed) };
                let ours = &self.descriptor;
                if found.size_blocks != ours.size_blocks
                    || found.blocks_per_object != ours.blocks_per_object
                {
                    return Err(RequestError::Deposed);
                }
            }
            Err(error) => return Err(error),
        }
        *is_created = true;
        Ok(())
    }
}

/// All blocks of an object.
fn merge(
    blocks: u32,
    old: Option<&Bytes>,
    changes: &Changes,
    zeros: &Bitmap,
) -> impl Iterator<Item = Bytes> {
    let zero = Bytes::from_static(&[0; BLOCK_SIZE]);
    let content = move |within: u32| {
        if let Some(block) = changes.get(&within) {
            return Bytes::from_owner(BlockBytes(BlockRef::clone(block)));
        }
        match old {
            Some(old) if !zeros.has(within) => {
                let start = within as usize * BLOCK_SIZE;
                old.slice(start..start + BLOCK_SIZE)
            }
            _ => zero.clone(),
        }
    };
    (0..blocks).map(content)
}
