//! NFSv3's types (RFC 1813 section 2) as XDR.
//!
//! Invariants: what is written decodes to what was meant within the protocol's ranges: times before
//! 1970 and after 2106 are shown as the nearest time that 32 bits of seconds hold.
//!
//! Fails: reading, by [`Refusal`].

use crate::request::Refusal;
use file_service::rules::names;
use file_service::{
    Attributes, FileKind, FsError, NodeChange, SealedHandle, SetAttributes, SetTime,
};
use onc_rpc::{Reader, Writer, XdrError};
use units::Timestamp;

/// `NFS3ERR_TOOSMALL`: not even one entry fits; no backend knows of a reply's size.
pub(crate) const TOO_SMALL: u32 = 10005;
/// `NFS3ERR_BADTYPE`: MKNOD of what is made by other procedures.
pub(crate) const BAD_TYPE: u32 = 10007;

/// Longest handle of any server (`NFS3_FHSIZE`).
pub(crate) const HANDLE_BYTES_MAX: usize = 64;
/// Longest name or path that is decoded at all. Those above the backend's limit get its error; a
/// longer one is garbage.
const PATH_BYTES_MAX: usize = 16 << 10;
const MODE_BITS: u32 = 0o7777;
const NANOSECONDS_MAX: u32 = 999_999_999;

/// Bytes of `fattr3`.
pub(crate) const ATTRIBUTES_SIZE: usize = 84;
/// Bytes of `post_op_attr` with attributes.
pub(crate) const POST_ATTRIBUTES_SIZE: usize = 4 + ATTRIBUTES_SIZE;
/// Bytes of `post_op_fh3` with a handle.
pub(crate) const POST_HANDLE_SIZE: usize = 4 + 4 + SealedHandle::SIZE;

/// A handle as clients get it.
pub(crate) type SealedBytes = [u8; SealedHandle::SIZE];

/// `ftype3`.
const fn kind_number(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharacterDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// The kind that an `ftype3` names.
pub(crate) fn kind(reader: &mut Reader<'_>) -> Result<FileKind, XdrError> {
    Ok(match reader.u32()? {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::BlockDevice,
        4 => FileKind::CharacterDevice,
        5 => FileKind::Symlink,
        6 => FileKind::Socket,
        7 => FileKind::Fifo,
        value => return Err(XdrError::BadValue { value }),
    })
}

/// `nfs_fh3`, read.
pub(crate) fn read_handle(reader: &mut Reader<'_>) -> Result<SealedHandle, Refusal> {
    Ok(SealedHandle::parse(reader.opaque(HANDLE_BYTES_MAX)?)?)
}

/// `filename3`, read and checked.
pub(crate) fn read_name<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Refusal> {
    let name = reader.opaque(PATH_BYTES_MAX)?;
    names::check_name(name)?;
    Ok(name)
}

/// `nfspath3`, read.
pub(crate) fn read_path<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Refusal> {
    Ok(reader.opaque(PATH_BYTES_MAX)?)
}

/// `nfstime3`, read.
fn read_time(reader: &mut Reader<'_>) -> Result<Timestamp, Refusal> {
    let (seconds, nanoseconds) = (reader.u32()?, reader.u32()?);
    if nanoseconds > NANOSECONDS_MAX {
        return Err(FsError::Invalid.into());
    }
    Ok(Timestamp::from_parts(i64::from(seconds), nanoseconds))
}

fn read_option<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    if reader.bool()? { read(reader).map(Some) } else { Ok(None) }
}

fn read_set_time(reader: &mut Reader<'_>) -> Result<Option<SetTime>, Refusal> {
    match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::To(read_time(reader)?))),
        value => Err(XdrError::BadValue { value }.into()),
    }
}

/// `sattr3`, read.
pub(crate) fn read_set_attributes(reader: &mut Reader<'_>) -> Result<SetAttributes, Refusal> {
    Ok(SetAttributes {
        mode: read_option(reader, |reader| Ok(reader.u32()? & MODE_BITS))?,
        uid: read_option(reader, |reader| Ok(reader.u32()?))?,
        gid: read_option(reader, |reader| Ok(reader.u32()?))?,
        size: read_option(reader, |reader| Ok(reader.u64()?))?,
        atime: read_set_time(reader)?,
        mtime: read_set_time(reader)?,
        guard: None,
    })
}

/// `sattrguard3`, read.
pub(crate) fn read_guard(reader: &mut Reader<'_>) -> Result<Option<Timestamp>, Refusal> {
    read_option(reader, read_time)
}

/// `nfstime3`.
fn time(time: Timestamp) -> [u32; 2] {
    match u32::try_from(time.seconds()) {
        Ok(seconds) => [seconds, time.subsecond_nanoseconds()],
        Err(_) if time.seconds() < 0 => [0, 0],
        Err(_) => [u32::MAX, NANOSECONDS_MAX],
    }
}

const fn halves(value: u64) -> [u32; 2] {
    [(value >> 32) as u32, value as u32]
}

/// Appends words in one go: attributes are in nearly every reply.
fn write_words<const WORDS: usize, const BYTES: usize>(writer: &mut Writer, words: [u32; WORDS]) {
    const { assert!(WORDS * 4 == BYTES) };
    let mut bytes = [0; BYTES];
    for (target, word) in bytes.chunks_exact_mut(4).zip(words) {
        target.copy_from_slice(&word.to_be_bytes());
    }
    writer.fixed(&bytes);
}

/// `fattr3`.
pub(crate) fn attributes(writer: &mut Writer, attributes: &Attributes) {
    let [size_high, size_low] = halves(attributes.size);
    let [used_high, used_low] = halves(attributes.used);
    let [system_high, system_low] = halves(attributes.file_system);
    let [inode_high, inode_low] = halves(attributes.inode.get());
    let [atime, atime_nanoseconds] = time(attributes.atime);
    let [mtime, mtime_nanoseconds] = time(attributes.mtime);
    let [ctime, ctime_nanoseconds] = time(attributes.ctime);
    write_words::<21, ATTRIBUTES_SIZE>(
        writer,
        [
            kind_number(attributes.kind),
            attributes.mode & MODE_BITS,
            attributes.links,
            attributes.uid,
            attributes.gid,
            size_high,
            size_low,
            used_high,
            used_low,
            attributes.device.0,
            attributes.device.1,
            system_high,
            system_low,
            inode_high,
            inode_low,
            atime,
            atime_nanoseconds,
            mtime,
            mtime_nanoseconds,
            ctime,
            ctime_nanoseconds,
        ],
    );
}

/// `post_op_attr`.
pub(crate) fn post_attributes(writer: &mut Writer, value: Option<&Attributes>) {
    writer.bool(value.is_some());
    if let Some(value) = value {
        attributes(writer, value);
    }
}

/// `wcc_data`.
pub(crate) fn change(writer: &mut Writer, change: &NodeChange) {
    let (size, mtime, ctime) = change.before;
    let [size_high, size_low] = halves(size);
    let [mtime, mtime_nanoseconds] = time(mtime);
    let [ctime, ctime_nanoseconds] = time(ctime);
    write_words::<7, 28>(
        writer,
        [1, size_high, size_low, mtime, mtime_nanoseconds, ctime, ctime_nanoseconds],
    );
    post_attributes(writer, Some(&change.after));
}

/// `nfs_fh3`.
pub(crate) fn handle(writer: &mut Writer, handle: &SealedBytes) {
    writer.opaque(handle);
}

/// `post_op_fh3`.
pub(crate) fn post_handle(writer: &mut Writer, value: Option<SealedBytes>) {
    writer.bool(value.is_some());
    if let Some(value) = value {
        handle(writer, &value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused<T>(result: Result<T, Refusal>, status: u32) -> bool {
        matches!(result, Err(Refusal::Status(found)) if found == status)
    }

    #[test]
    fn times_stay_within_the_protocol() {
        assert_eq!(time(Timestamp::from_parts(5, 6)), [5, 6]);
        assert_eq!(time(Timestamp(-1)), [0, 0]);
        assert_eq!(time(Timestamp::from_parts(1 << 32, 6)), [u32::MAX, NANOSECONDS_MAX]);
        let bytes = [0, 0, 0, 1, 0x3b, 0x9a, 0xca, 0x00];
        assert!(refused(read_time(&mut Reader::new(&bytes)), FsError::Invalid.nfs3_status()));
    }

    #[test]
    fn names_and_handles_are_checked() {
        let check = |name: &[u8], error: FsError| {
            let mut writer = Writer::default();
            writer.opaque(name);
            let result = read_name(&mut Reader::new(writer.bytes()));
            assert!(refused(result, error.nfs3_status()), "{name:?}");
        };
        check(b"", FsError::Invalid);
        check(b"a/b", FsError::Invalid);
        check(b"a\0", FsError::Invalid);
        check(&[b'x'; 256], FsError::NameTooLong);
        let mut writer = Writer::default();
        writer.opaque(&[9; SealedHandle::SIZE]);
        let result = read_handle(&mut Reader::new(writer.bytes()));
        assert!(refused(result, FsError::BadHandle.nfs3_status()));
        let mut writer = Writer::default();
        writer.opaque(&[9; 68]);
        assert!(matches!(read_handle(&mut Reader::new(writer.bytes())), Err(Refusal::Garbage)));
    }

    proptest! {
        #[test]
        fn settable_attributes_survive_the_wire(
            mode in prop::option::of(0..0o10000_u32),
            uid in prop::option::of(any::<u32>()),
            size in prop::option::of(any::<u64>()),
            atime in 0..3_u32,
            seconds in any::<u32>(),
            nanoseconds in 0..=NANOSECONDS_MAX,
        ) {
            let mut writer = Writer::default();
            writer.bool(mode.is_some());
            mode.iter().for_each(|value| writer.u32(*value));
            writer.bool(uid.is_some());
            uid.iter().for_each(|value| writer.u32(*value));
            writer.bool(false);
            writer.bool(size.is_some());
            size.iter().for_each(|value| writer.u64(*value));
            writer.u32(atime);
            if atime == 2 {
                writer.u32(seconds);
                writer.u32(nanoseconds);
            }
            writer.u32(0);
            let mut reader = Reader::new(writer.bytes());
            let read = read_set_attributes(&mut reader);
            prop_assert!(reader.rest().is_empty());
            let moment = Timestamp::from_parts(i64::from(seconds), nanoseconds);
            let atime = [None, Some(SetTime::Now), Some(SetTime::To(moment))][atime as usize];
            let expected = SetAttributes { mode, uid, size, atime, ..SetAttributes::default() };
            prop_assert!(matches!(read, Ok(read) if read == expected));
        }

        #[test]
        fn arbitrary_arguments_never_panic(
            bytes in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..90),
        ) {
            let _ = read_set_attributes(&mut Reader::new(&bytes));
            let _ = read_handle(&mut Reader::new(&bytes));
            let _ = read_name(&mut Reader::new(&bytes));
            let _ = read_guard(&mut Reader::new(&bytes));
            let _ = kind(&mut Reader::new(&bytes));
        }
    }
}
