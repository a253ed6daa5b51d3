//! NFSv3 and MOUNT calls as bytes, and their replies as a client reads them (RFC 1813, RFC 5531).
//!
//! Written for this bench alone, with nothing of the server's crates in it: a client that shares
//! the server's mistakes would not notice them.
//!
//! Invariants: a call is appended to a buffer in one go and never moved; a payload is named, not
//! copied. Fails: [`Malformed`] for a reply that is cut short.

/// `nfs_fh3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    bytes: [u8; HANDLE_BYTES_MAX],
    length: usize,
}

/// Longest handle (`NFS3_FHSIZE`).
const HANDLE_BYTES_MAX: usize = 64;
/// Bytes of `fattr3`.
pub(crate) const ATTRIBUTES_BYTES: usize = 84;
/// Bytes of `wcc_attr`.
const BEFORE_BYTES: usize = 24;

/// The number of NFS.
pub(crate) const NFS: u32 = 100_003;
/// The number of MOUNT.
pub(crate) const MOUNT: u32 = 100_005;
/// Both programs' version.
const VERSION: u32 = 3;

/// The procedures of NFSv3 that the bench calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Procedure {
    GetAttributes = 1,
    SetAttributes = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MakeDirectory = 9,
    SymbolicLink = 10,
    Remove = 12,
    ReadDirectory = 16,
    ReadDirectoryPlus = 17,
    FileSystemStatus = 18,
    Commit = 21,
}

/// How a WRITE is to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stability {
    Unstable,
    FileSync,
}

/// A reply that makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Calls on their way out.
#[derive(Default)]
pub(crate) struct Calls {
    /// All that is not payload.
    pub bytes: Vec<u8>,
    /// Where a payload belongs, and how many bytes of it.
    pub payloads: Vec<(usize, usize)>,
    record: usize,
    payload_bytes: usize,
}

impl Calls {
    /// Appends a call of `program`; `arguments` writes what follows the header.
    pub fn call(
        &mut self,
        xid: u32,
        (program, procedure): (u32, u32),
        arguments: impl FnOnce(&mut Self),
    ) {
        self.record = self.bytes.len();
        self.payload_bytes = 0;
        self.u32(0);
        for word in [xid, 0, 2, program, VERSION, procedure] {
            self.u32(word);
        }
        // AUTH_SYS: stamp, machine, root, its group, no further groups; no verifier.
        const MACHINE: &[u8] = b"bench";
        self.u32(1);
        self.u32(4 + 4 + 8 + 12);
        self.u32(0);
        self.opaque(MACHINE);
        [0, 0, 0, 0, 0].into_iter().for_each(|word| self.u32(word));
        arguments(self);
        let length = self.bytes.len() - self.record - 4 + self.payload_bytes;
        let mark = 0x8000_0000 | length as u32;
        if let Some(place) = self.bytes.get_mut(self.record..self.record + 4) {
            place.copy_from_slice(&mark.to_be_bytes());
        }
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        self.bytes.extend_from_slice(&[0; 3][..padding]);
    }

    pub fn handle(&mut self, handle: &Handle) {
        self.opaque(handle.bytes());
    }

    /// `bytes` of the connection's payload, as an opaque; a multiple of four.
    fn payload(&mut self, bytes: usize) {
        debug_assert!(bytes.is_multiple_of(4), "padding would have to follow");
        self.u32(bytes as u32);
        self.payloads.push((self.bytes.len(), bytes));
        self.payload_bytes += bytes;
    }

    /// `sattr3` with a mode and nothing else.
    pub fn mode(&mut self, mode: u32) {
        self.u32(1);
        self.u32(mode);
        [0, 0, 0, 0, 0].into_iter().for_each(|word| self.u32(word));
    }
}

/// One call, for whoever knows what to ask and not where it goes.
pub(crate) struct Call<'a> {
    pub calls: &'a mut Calls,
    pub xid: u32,
}

impl Call<'_> {
    pub fn nfs(self, procedure: Procedure, arguments: impl FnOnce(&mut Calls)) {
        self.calls.call(self.xid, (NFS, procedure as u32), arguments);
    }

    pub fn get_attributes(self, file: &Handle) {
        self.nfs(Procedure::GetAttributes, |calls| calls.handle(file));
    }

    /// LOOKUP and REMOVE, which take a name in a directory.
    pub fn named(self, procedure: Procedure, directory: &Handle, name: &str) {
        self.nfs(procedure, |calls| {
            calls.handle(directory);
            calls.opaque(name.as_bytes());
        });
    }

    pub fn read(self, file: &Handle, offset: u64, count: u32) {
        self.nfs(Procedure::Read, |calls| {
            calls.handle(file);
            calls.u64(offset);
            calls.u32(count);
        });
    }

    pub fn write(self, file: &Handle, offset: u64, count: u32, stability: Stability) {
        self.nfs(Procedure::Write, |calls| {
            calls.handle(file);
            calls.u64(offset);
            calls.u32(count);
            calls.u32(match stability {
                Stability::Unstable => 0,
                Stability::FileSync => 2,
            });
            calls.payload(count as usize);
        });
    }

    pub fn commit(self, file: &Handle) {
        self.nfs(Procedure::Commit, |calls| {
            calls.handle(file);
            calls.u64(0);
            calls.u32(0);
        });
    }

    /// CREATE, unchecked.
    pub fn create(self, directory: &Handle, name: &str) {
        self.nfs(Procedure::Create, |calls| {
            calls.handle(directory);
            calls.opaque(name.as_bytes());
            calls.u32(0);
            calls.mode(0o644);
        });
    }

    pub fn make_directory(self, directory: &Handle, name: &str) {
        self.nfs(Procedure::MakeDirectory, |calls| {
            calls.handle(directory);
            calls.opaque(name.as_bytes());
            calls.mode(0o755);
        });
    }

    pub fn read_directory(self, directory: &Handle, place: &DirectoryPlace, bytes_max: u32) {
        self.nfs(Procedure::ReadDirectoryPlus, |calls| {
            calls.handle(directory);
            calls.u64(place.cookie);
            calls.u64(place.verifier);
            calls.u32(bytes_max);
            calls.u32(bytes_max);
        });
    }
}

/// How far a directory was read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct DirectoryPlace {
    pub cookie: u64,
    pub verifier: u64,
    pub ended: bool,
}

impl Handle {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// A reply's bytes.
pub(crate) struct Reply<'a>(pub &'a [u8]);

impl<'a> Reply<'a> {
    pub fn skip(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (skipped, rest) = self.0.split_at_checked(bytes).ok_or(Malformed)?;
        self.0 = rest;
        Ok(skipped)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.skip(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_be_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub fn opaque(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        let bytes = self.skip(length)?;
        self.skip(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    pub fn handle(&mut self) -> Result<Handle, Malformed> {
        let found = self.opaque()?;
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes.get_mut(..found.len()).ok_or(Malformed)?.copy_from_slice(found);
        Ok(Handle { bytes, length: found.len() })
    }

    /// `post_op_fh3`, which has a handle here.
    pub fn post_handle(&mut self) -> Result<Handle, Malformed> {
        if self.u32()? == 0 {
            return Err(Malformed);
        }
        self.handle()
    }

    /// `post_op_attr`.
    pub fn post_attributes(&mut self) -> Result<(), Malformed> {
        if self.u32()? != 0 {
            self.skip(ATTRIBUTES_BYTES)?;
        }
        Ok(())
    }

    /// `wcc_data`.
    pub fn change(&mut self) -> Result<(), Malformed> {
        if self.u32()? != 0 {
            self.skip(BEFORE_BYTES)?;
        }
        self.post_attributes()
    }

    /// The results of READ: how many bytes were read.
    pub fn read(&mut self) -> Result<u32, Malformed> {
        self.post_attributes()?;
        let (count, _end, length) = (self.u32()?, self.u32()?, self.u32()?);
        self.skip(length as usize)?;
        if count == length { Ok(count) } else { Err(Malformed) }
    }

    /// The results of WRITE: how many bytes, and whether they are durable.
    pub fn written(&mut self) -> Result<(u32, bool), Malformed> {
        self.change()?;
        Ok((self.u32()?, self.u32()? == 2))
    }

    /// The results of READDIRPLUS: how many entries; `place` moves on.
    pub fn entries(&mut self, place: &mut DirectoryPlace) -> Result<u64, Malformed> {
        self.post_attributes()?;
        place.verifier = self.u64()?;
        let mut entries = 0;
        while self.u32()? != 0 {
            self.u64()?;
            self.opaque()?;
            place.cookie = self.u64()?;
            self.post_attributes()?;
            if self.u32()? != 0 {
                self.handle()?;
            }
            entries += 1;
        }
        place.ended = self.u32()? != 0;
        Ok(entries)
    }
}

/// A reply's identity and results: transaction, then status and the rest.
pub(crate) fn accepted(record: &[u8]) -> Result<(u32, Reply<'_>), Malformed> {
    let mut reply = Reply(record);
    let xid = reply.u32()?;
    let [kind, accepted] = [reply.u32()?, reply.u32()?];
    reply.u32()?;
    reply.opaque()?;
    if (kind, accepted, reply.u32()?) != (1, 0, 0) {
        return Err(Malformed);
    }
    Ok((xid, reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_record_with_its_payload_counted() {
        let mut calls = Calls::default();
        let mut bytes = [0; HANDLE_BYTES_MAX];
        bytes[..5].fill(7);
        let handle = Handle { bytes, length: 5 };
        Call { calls: &mut calls, xid: 9 }.write(&handle, 4096, 64, Stability::FileSync);
        let mut reader = Reply(&calls.bytes);
        let mark = reader.u32().unwrap();
        assert_eq!(mark & 0x7fff_ffff, (calls.bytes.len() - 4 + 64) as u32);
        assert_eq!(calls.payloads, [(calls.bytes.len(), 64)]);
        assert_eq!((reader.u32(), reader.u32(), reader.u32()), (Ok(9), Ok(0), Ok(2)));
        assert_eq!((reader.u32(), reader.u32(), reader.u32()), (Ok(NFS), Ok(3), Ok(7)));
        assert_eq!(reader.u32(), Ok(1));
        assert_eq!(reader.opaque().map(<[u8]>::len), Ok(28), "the credential");
        assert_eq!(reader.u64(), Ok(0), "no verifier");
        assert_eq!(reader.handle(), Ok(handle));
        assert_eq!((reader.u64(), reader.u32(), reader.u32()), (Ok(4096), Ok(64), Ok(2)));
        assert_eq!((reader.u32(), reader.0), (Ok(64), &[][..]));
    }

    #[test]
    fn replies_that_are_cut_short_are_malformed() {
        let mut record = Vec::new();
        for word in [5_u32, 1, 0, 0, 0, 0, 0, 0, 4096, 0, 4] {
            record.extend_from_slice(&word.to_be_bytes());
        }
        for length in 0..record.len() {
            let outcome = accepted(&record[..length]).and_then(|(_, mut reply)| {
                reply.u32()?;
                reply.read()
            });
            assert_eq!(outcome, Err(Malformed), "{length}");
        }
    }
}
