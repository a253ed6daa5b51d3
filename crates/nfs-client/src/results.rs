//! What answers say: the results of RFC 1813 section 3.3, read from what follows the RPC header.
//!
//! Fails: with the status that the server gave, or [`NfsFailure::Malformed`].

use crate::{Answer, Handle, NfsFailure};
use onc_rpc::{Reader, XdrError};

const HANDLE_BYTES_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 255;
/// Largest transfer of the server.
const DATA_BYTES_MAX: usize = 1 << 20;
/// Words of an RPC reply header that says success: the number, REPLY, accepted, no verifier (two
/// words), SUCCESS.
const HEADER_WORDS: usize = 6;

/// What a file is, as far as tests make files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something else.
    Other,
}

/// Part of an `fattr3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// The inode.
    pub number: u64,
}

/// What WRITE did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes written.
    pub count: u32,
    /// Whether they last.
    pub is_stable: bool,
    /// Another one than before: uncommitted data may be lost.
    pub verifier: u64,
}

/// Part of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Names with their inodes and, of READDIRPLUS, attributes; but for `.` and `..`.
    pub entries: Vec<(String, u64, Option<Attributes>)>,
    /// Where to go on.
    pub cookie: u64,
    /// What to go on with.
    pub verifier: u64,
    /// Whether this is the end.
    pub is_end: bool,
}

trait OrMalformed<T> {
    fn or_malformed(self, what: &'static str) -> Answer<T>;
}

impl<T> OrMalformed<T> for Result<T, XdrError> {
    fn or_malformed(self, what: &'static str) -> Answer<T> {
        self.map_err(|_| NfsFailure::Malformed(what))
    }
}

/// Takes the RPC header off a reply; its number and the results.
///
/// # Errors
/// [`NfsFailure::Malformed`] for everything but success.
pub fn take_header(reply: &[u8]) -> Answer<(u32, &[u8])> {
    let mut reader = Reader::new(reply);
    let mut words = [0; HEADER_WORDS];
    for word in &mut words {
        *word = reader.u32().or_malformed("a header of a reply")?;
    }
    if words[1..] == [1, 0, 0, 0, 0] {
        Ok((words[0], reader.rest()))
    } else {
        Err(NfsFailure::Malformed("an RPC header that says success"))
    }
}

fn succeed(results: &[u8]) -> Answer<Reader<'_>> {
    let mut reader = Reader::new(results);
    match reader.u32().or_malformed("a status")? {
        0 => Ok(reader),
        status => Err(NfsFailure::Status(status)),
    }
}

/// Of calls that say nothing but whether they were done.
///
/// # Errors
/// [`NfsFailure`].
pub fn done(results: &[u8]) -> Answer<()> {
    succeed(results).map(drop)
}

/// Of MNT and LOOKUP.
///
/// # Errors
/// [`NfsFailure`].
pub fn handle(results: &[u8]) -> Answer<Handle> {
    read_handle(&mut succeed(results)?)
}

/// Of CREATE, MKDIR and SYMLINK.
///
/// # Errors
/// [`NfsFailure`].
pub fn made(results: &[u8]) -> Answer<Handle> {
    let mut reader = succeed(results)?;
    if !reader.bool().or_malformed("whether there is a handle")? {
        return Err(NfsFailure::Malformed("a handle of what was made"));
    }
    read_handle(&mut reader)
}

fn read_handle(reader: &mut Reader<'_>) -> Answer<Handle> {
    reader.opaque(HANDLE_BYTES_MAX).or_malformed("a handle").map(<[u8]>::to_vec)
}

/// Of GETATTR.
///
/// # Errors
/// [`NfsFailure`].
pub fn attributes(results: &[u8]) -> Answer<Attributes> {
    read_attributes(&mut succeed(results)?)
}

/// `fattr3`.
fn read_attributes(reader: &mut Reader<'_>) -> Answer<Attributes> {
    let what = "attributes";
    let kind = match reader.u32().or_malformed(what)? {
        1 => FileKind::File,
        2 => FileKind::Directory,
        5 => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let mode = reader.u32().or_malformed(what)?;
    let links = reader.u32().or_malformed(what)?;
    let _owner_and_group = reader.u64().or_malformed(what)?;
    let size = reader.u64().or_malformed(what)?;
    for _used_device_and_file_system in 0..3 {
        reader.u64().or_malformed(what)?;
    }
    let number = reader.u64().or_malformed(what)?;
    for _time in 0..3 {
        reader.u64().or_malformed(what)?;
    }
    Ok(Attributes { kind, mode, links, size, number })
}

/// `post_op_attr`.
fn read_optional_attributes(reader: &mut Reader<'_>) -> Answer<Option<Attributes>> {
    if reader.bool().or_malformed("whether there are attributes")? {
        read_attributes(reader).map(Some)
    } else {
        Ok(None)
    }
}

/// `wcc_data`.
fn skip_change(reader: &mut Reader<'_>) -> Answer<()> {
    if reader.bool().or_malformed("whether there is a state before")? {
        for _size_and_times in 0..3 {
            reader.u64().or_malformed("a state before")?;
        }
    }
    read_optional_attributes(reader).map(drop)
}

/// Of WRITE.
///
/// # Errors
/// [`NfsFailure`].
pub fn written(results: &[u8]) -> Answer<Written> {
    let mut reader = succeed(results)?;
    skip_change(&mut reader)?;
    let count = reader.u32().or_malformed("a count")?;
    let is_stable = reader.u32().or_malformed("a stability")? != 0;
    let verifier = reader.u64().or_malformed("a verifier")?;
    Ok(Written { count, is_stable, verifier })
}

/// Of COMMIT: the verifier.
///
/// # Errors
/// [`NfsFailure`].
pub fn committed(results: &[u8]) -> Answer<u64> {
    let mut reader = succeed(results)?;
    skip_change(&mut reader)?;
    reader.u64().or_malformed("a verifier")
}

/// Of READ: the data, and whether they end with the file.
///
/// # Errors
/// [`NfsFailure`].
pub fn data(results: &[u8]) -> Answer<(&[u8], bool)> {
    let mut reader = succeed(results)?;
    read_optional_attributes(&mut reader)?;
    let count = reader.u32().or_malformed("a count")?;
    let is_end = reader.bool().or_malformed("an end of file")?;
    let data = reader.opaque(DATA_BYTES_MAX).or_malformed("data")?;
    if data.len() == count as usize {
        Ok((data, is_end))
    } else {
        Err(NfsFailure::Malformed("data as long as said"))
    }
}

/// Of READDIR.
///
/// # Errors
/// [`NfsFailure`].
pub fn listed(results: &[u8]) -> Answer<Listed> {
    read_entries(results, |_| Ok(None))
}

/// Of READDIRPLUS.
///
/// # Errors
/// [`NfsFailure`].
pub fn listed_plus(results: &[u8]) -> Answer<Listed> {
    read_entries(results, |reader| {
        let attributes = read_optional_attributes(reader)?;
        if reader.bool().or_malformed("whether an entry has a handle")? {
            read_handle(reader)?;
        }
        Ok(attributes)
    })
}

fn read_entries(
    results: &[u8],
    read_more: impl Fn(&mut Reader<'_>) -> Answer<Option<Attributes>>,
) -> Answer<Listed> {
    let what = "entries";
    let mut reader = succeed(results)?;
    read_optional_attributes(&mut reader)?;
    let verifier = reader.u64().or_malformed(what)?;
    let (mut entries, mut cookie) = (Vec::new(), 0);
    while reader.bool().or_malformed(what)? {
        let number = reader.u64().or_malformed(what)?;
        let name = reader.opaque(NAME_BYTES_MAX).or_malformed(what)?.to_vec();
        cookie = reader.u64().or_malformed(what)?;
        let attributes = read_more(&mut reader)?;
        let name =
            String::from_utf8(name).map_err(|_| NfsFailure::Malformed("names that were made"))?;
        if name != "." && name != ".." {
            entries.push((name, number, attributes));
        }
    }
    let is_end = reader.bool().or_malformed(what)?;
    Ok(Listed { entries, cookie, verifier, is_end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onc_rpc::Writer;

    #[test]
    fn a_status_and_an_answer_that_is_cut_are_told_apart() {
        let mut writer = Writer::default();
        writer.u32(70);
        assert_eq!(done(writer.bytes()).unwrap_err().status(), Some(70));
        assert!(matches!(handle(&[0, 0, 0, 0]), Err(NfsFailure::Malformed(_))));
        assert!(matches!(handle(&[0, 0]), Err(NfsFailure::Malformed(_))));
    }

    #[test]
    fn data_must_be_as_long_as_they_say() {
        let answer = |count| {
            let mut writer = Writer::default();
            writer.u32(0);
            writer.bool(false);
            writer.u32(count);
            writer.bool(true);
            writer.opaque(b"abc");
            writer.into_bytes()
        };
        assert_eq!(data(&answer(3)).unwrap(), (&b"abc"[..], true));
        assert!(matches!(data(&answer(4)), Err(NfsFailure::Malformed(_))));
    }

    #[test]
    fn a_header_that_refuses_is_no_answer() {
        let mut writer = Writer::default();
        onc_rpc::message::write_success(&mut writer, 7);
        writer.u32(5);
        assert_eq!(take_header(writer.bytes()).unwrap(), (7, &[0, 0, 0, 5][..]));
        let mut writer = Writer::default();
        onc_rpc::message::write_error(&mut writer, 7, onc_rpc::ReplyError::SystemError);
        assert!(take_header(writer.bytes()).is_err());
    }
}
