//! Requests to a store, below one prefix.
//!
//! Invariants: reads and deletions are tried again after failures that say nothing, with a pause
//! that doubles; puts are not, because one that failed may have happened (`upload.rs` finds out).
//! In a bucket each attempt has a time limit. Bytes that come back are as many as were asked for,
//! or it is an error.
//!
//! Fails: [`RequestError`].

use crate::error::RequestError;
use crate::limits::Limits;
use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, PutPayload, UpdateVersion,
};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What keeps other writers away from a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fencing {
    /// A lease, and puts that name the version which they replace.
    Versions,
    /// A lock of the operating system, which outlives the process's last call.
    Lock,
}

/// The version of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    /// There is no object.
    Absent,
    /// What the store calls it.
    Tag(String),
    /// Whatever there is.
    Any,
}

/// Content of an object.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Bytes,
    pub(crate) version: Version,
    /// Of the whole object.
    pub(crate) object_bytes: u64,
}

/// A prefix of a store.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: Path,
    pub(crate) fencing: Fencing,
    pub(crate) limits: Limits,
}

impl Requests {
    fn path(&self, key: &str) -> Path {
        self.prefix.clone().join(key)
    }

    /// The content of an object, or of some bytes of it; nothing if there is no such object.
    pub(crate) async fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Option<Content>, RequestError> {
        self.retry(|| self.get_once(key, range.clone())).await
    }

    async fn get_once(
        &self,
        key: &str,
        range: Option<Range<u64>>,
    ) -> Result<Option<Content>, RequestError> {
        let expected_bytes = range.as_ref().map(|range| range.end - range.start);
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let got = match self.store.get_opts(&self.path(key), options).await {
            Ok(got) => got,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (object_bytes, tag) = (got.meta.size, got.meta.e_tag.clone());
        let bytes = got.bytes().await?;
        let (found_bytes, expected_bytes) =
            (bytes.len() as u64, expected_bytes.unwrap_or(object_bytes));
        if found_bytes != expected_bytes {
            return Err(RequestError::Length { found_bytes, expected_bytes });
        }
        Ok(Some(Content { bytes, version: self.version(tag)?, object_bytes }))
    }

    /// The version of an object.
    pub(crate) async fn version_of(&self, key: &str) -> Result<Version, RequestError> {
        match self.fencing {
            Fencing::Lock => Ok(Version::Any),
            Fencing::Versions => self.retry(|| self.version_once(key)).await,
        }
    }

    async fn version_once(&self, key: &str) -> Result<Version, RequestError> {
        match self.store.head(&self.path(key)).await {
            Ok(meta) => self.version(meta.e_tag),
            Err(StoreError::NotFound { .. }) => Ok(Version::Absent),
            Err(error) => Err(error.into()),
        }
    }

    /// The version of an object that is not there.
    pub(crate) const fn absent(&self) -> Version {
        match self.fencing {
            Fencing::Lock => Version::Any,
            Fencing::Versions => Version::Absent,
        }
    }

    fn version(&self, tag: Option<String>) -> Result<Version, RequestError> {
        match (self.fencing, tag) {
            (Fencing::Lock, _) => Ok(Version::Any),
            (Fencing::Versions, Some(tag)) => Ok(Version::Tag(tag)),
            (Fencing::Versions, None) => {
                let reason = "the store gives no versions (ETag) of objects".to_owned();
                Err(RequestError::Refused { reason })
            }
        }
    }

    /// Puts an object in the place of a version, once. Gives the new version.
    pub(crate) async fn put(
        &self,
        key: &str,
        payload: PutPayload,
        replaced: Version,
    ) -> Result<Version, RequestError> {
        let mode = match replaced {
            Version::Absent => PutMode::Create,
            Version::Tag(tag) => PutMode::Update(UpdateVersion { e_tag: Some(tag), version: None }),
            Version::Any => PutMode::Overwrite,
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let path = self.path(key);
        let put = async {
            let put = self.store.put_opts(&path, payload, options).await?;
            self.version(put.e_tag)
        };
        self.limit(put).await
    }

    /// Deletes an object, which may be gone already.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), RequestError> {
        self.retry(|| self.delete_once(key)).await
    }

    async fn delete_once(&self, key: &str) -> Result<(), RequestError> {
        match self.store.delete(&self.path(key)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Some key below the prefix that `is_foreign`.
    pub(crate) async fn find_key(
        &self,
        is_foreign: impl Fn(&str) -> bool,
    ) -> Result<Option<String>, RequestError> {
        let mut list = self.store.list(Some(&self.prefix));
        while let Some(found) = list.next().await {
            let location = found?.location;
            let key: Vec<String> = location
                .prefix_match(&self.prefix)
                .map(|parts| parts.map(|part| part.as_ref().to_owned()).collect())
                .unwrap_or_default();
            let key = key.join("/");
            if is_foreign(&key) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    async fn retry<T, F: Future<Output = Result<T, RequestError>>>(
        &self,
        request: impl Fn() -> F,
    ) -> Result<T, RequestError> {
        let mut attempt = 1;
        loop {
            match self.limit(request()).await {
                Err(RequestError::Failed { .. } | RequestError::Length { .. })
                    if attempt < self.limits.attempts_max =>
                {
                    self.pause(attempt).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    /// The pause after an attempt.
    pub(crate) async fn pause(&self, attempt: u32) {
        let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        tokio::time::sleep(self.limits.pause.saturating_mul(factor)).await;
    }

    /// Gives up on an attempt that takes too long. Not with a lock alone: a call that is given up
    /// goes on in the kernel, and nothing would keep it from replacing what is put later.
    async fn limit<T>(
        &self,
        request: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let limit = match self.fencing {
            Fencing::Lock => Duration::MAX,
            Fencing::Versions => self.limits.request_timeout,
        };
        let limited = tokio::time::timeout(limit, request).await;
        limited.unwrap_or_else(|_| Err(RequestError::failed("no answer in time")))
    }
}
