//! Shutting out what the last holder of a range may have sent and what has not arrived.
//!
//! A process that was killed can leave a put in a socket, which arrives after we have taken its
//! lease. In a data object it does no harm: it changes only blocks that nothing on the disk leads
//! to, or it finds a version that is not the one it names. But a superblock that arrives after ours
//! were read would, after our own crash, lead to blocks that we have used again. So the objects of
//! single blocks, labels and superblocks, are put anew with our mark behind them before anything is
//! read: whatever arrives later names a version that is no more.
//!
//! Invariant: contents do not change. Fails: as requests do; the range is not opened then.

use crate::error::RequestError;
use crate::geometry::{Geometry, ObjectId};
use crate::requests::Requests;
use bytes::Bytes;
use object_store::PutPayload;
use units::{BLOCK_SIZE, IncarnationUuid};

/// Marks the objects of single blocks with our incarnation.
pub(crate) async fn shut_out(
    requests: &Requests,
    geometry: Geometry,
    incarnation: IncarnationUuid,
) -> Result<(), RequestError> {
    let marks =
        geometry.single_blocks().map(|object| mark(requests, geometry, object, incarnation));
    futures_util::future::join_all(marks).await.into_iter().collect()
}

async fn mark(
    requests: &Requests,
    geometry: Geometry,
    object: ObjectId,
    incarnation: IncarnationUuid,
) -> Result<(), RequestError> {
    let (key, expected_bytes) = (object.key(), geometry.bytes_of(object));
    let mut attempt = 1;
    loop {
        let (block, version) = match requests.get(&key, None).await? {
            None => (Bytes::from_static(&[0; BLOCK_SIZE]), requests.absent()),
            Some(content) if content.object_bytes == expected_bytes => {
                (content.bytes.slice(..BLOCK_SIZE), content.version)
            }
            Some(content) => {
                let found_bytes = content.object_bytes;
                return Err(RequestError::Length { found_bytes, expected_bytes });
            }
        };
        let payload: PutPayload =
            [block, Bytes::copy_from_slice(&incarnation.0)].into_iter().collect();
        match requests.put(&key, payload, version).await {
            // One of theirs came first, or the answer was lost.
            Err(RequestError::Changed | RequestError::Failed { .. })
                if attempt < requests.limits.attempts_max =>
            {
                requests.pause(attempt).await;
                attempt += 1;
            }
            other => return other.map(drop),
        }
    }
}
