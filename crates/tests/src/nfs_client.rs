//! NFSv3 as far as the writers use it, over one connection.
//!
//! Fails: [`NfsFailure`]; a lost connection is an everyday thing here, because servers are killed.
//! An answer that is not what RFC 1813 says panics.

use onc_rpc::{AuthSys, CallHeader, Credential, Reader, Writer, record};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const HANDLE_BYTES_MAX: usize = 64;
/// Bytes of one READ: what every server transfers at once.
const READ_BYTES: u32 = 64 << 10;
/// `FILE_SYNC`.
const FILE_SYNC: u32 = 2;
/// The last word of a record's mark that is the record's end.
const LAST_FRAGMENT: u32 = 1 << 31;
/// `NFS3ERR_STALE`.
pub const STALE: u32 = 70;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum NfsFailure {
    /// The server is gone.
    #[error("connection: {0}")]
    Connection(#[from] io::Error),
    /// It answered with this `nfsstat3`.
    #[error("NFS status {0}")]
    Status(u32),
}

/// A file handle.
pub type Handle = Vec<u8>;
type Answer<T> = Result<T, NfsFailure>;

/// A connection, as root.
pub struct NfsClient {
    socket: TcpStream,
    transaction: u32,
}

/// What a `sattr3` sets.
#[derive(Clone, Copy)]
pub enum Setting {
    /// Permission bits.
    Mode(u32),
    /// The size.
    Size(u64),
    /// Nothing.
    Nothing,
}

impl Setting {
    fn write(self, writer: &mut Writer) {
        let mode = if let Self::Mode(mode) = self { Some(mode) } else { None };
        writer.bool(mode.is_some());
        mode.into_iter().for_each(|mode| writer.u32(mode));
        (0..2).for_each(|_| writer.bool(false)); // owner, group
        let size = if let Self::Size(size) = self { Some(size) } else { None };
        writer.bool(size.is_some());
        size.into_iter().for_each(|size| writer.u64(size));
        (0..2).for_each(|_| writer.u32(0)); // times
    }
}

impl NfsClient {
    /// Connects.
    ///
    /// # Errors
    /// Of the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, transaction: 0 })
    }

    fn exchange(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> io::Result<Vec<u8>> {
        self.transaction += 1;
        let mut writer = Writer::default();
        writer.u32(0);
        let (xid, credential) = (self.transaction, Credential::Sys(AuthSys::new(0, 0, &[])));
        CallHeader { xid, program, version: 3, procedure, credential }.write(&mut writer);
        arguments(&mut writer);
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        self.socket.write_all(&writer.into_bytes())?;
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert_ne!(mark & LAST_FRAGMENT, 0, "a reply is one fragment");
        let mut reply = vec![0; (mark & !LAST_FRAGMENT) as usize];
        self.socket.read_exact(&mut reply)?;
        let mut reader = Reader::new(&reply);
        // The number, REPLY, accepted, no verifier (two words), SUCCESS.
        let header: Vec<u32> = (0..6).map(|_| word(&mut reader)).collect();
        assert_eq!(header, [xid, 1, 0, 0, 0, 0]);
        Ok(reader.rest().to_vec())
    }

    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Answer<Vec<u8>> {
        let results = self.exchange(program, procedure, arguments)?;
        let mut reader = Reader::new(&results);
        match word(&mut reader) {
            0 => Ok(reader.rest().to_vec()),
            status => Err(NfsFailure::Status(status)),
        }
    }

    /// MNT: the root directory of an export.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn mount(&mut self, export: &str) -> Answer<Handle> {
        let results = self.call(MOUNT, 1, |writer| writer.opaque(export.as_bytes()))?;
        Ok(handle(&mut Reader::new(&results)))
    }

    /// LOOKUP.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        let results = self.call(NFS, 3, |writer| place(writer, directory, name))?;
        Ok(handle(&mut Reader::new(&results)))
    }

    /// CREATE, guarded.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn create(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        self.make(8, directory, name, |writer| {
            writer.u32(1);
            Setting::Mode(0o644).write(writer);
        })
    }

    /// MKDIR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn make_directory(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        self.make(9, directory, name, |writer| Setting::Mode(0o755).write(writer))
    }

    /// SYMLINK.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn symlink(&mut self, directory: &[u8], name: &str, text: &str) -> Answer<Handle> {
        self.make(10, directory, name, |writer| {
            Setting::Nothing.write(writer);
            writer.opaque(text.as_bytes());
        })
    }

    fn make(
        &mut self,
        procedure: u32,
        directory: &[u8],
        name: &str,
        how: impl FnOnce(&mut Writer),
    ) -> Answer<Handle> {
        let results = self.call(NFS, procedure, |writer| {
            place(writer, directory, name);
            how(writer);
        })?;
        let mut reader = Reader::new(&results);
        assert!(flag(&mut reader), "a handle");
        Ok(handle(&mut reader))
    }

    /// SETATTR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn set(&mut self, file: &[u8], setting: Setting) -> Answer<()> {
        let arguments = |writer: &mut Writer| {
            writer.opaque(file);
            setting.write(writer);
            writer.bool(false); // no guard
        };
        self.call(NFS, 2, arguments).map(drop)
    }

    /// WRITE, `FILE_SYNC` or `UNSTABLE`; the verifier.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: bool) -> Answer<u64> {
        let results = self.call(NFS, 7, |writer| {
            writer.opaque(file);
            writer.u64(offset);
            writer.u32(length(data));
            writer.u32(if stable { FILE_SYNC } else { 0 });
            writer.opaque(data);
        })?;
        let mut reader = Reader::new(&results);
        skip_change(&mut reader);
        assert_eq!(word(&mut reader), length(data), "all of it is written");
        assert_eq!(word(&mut reader), if stable { FILE_SYNC } else { 0 });
        Ok(double_word(&mut reader))
    }

    /// COMMIT of a whole file; the verifier.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn commit(&mut self, file: &[u8]) -> Answer<u64> {
        let results = self.call(NFS, 21, |writer| {
            writer.opaque(file);
            writer.u64(0);
            writer.u32(0);
        })?;
        let mut reader = Reader::new(&results);
        skip_change(&mut reader);
        Ok(double_word(&mut reader))
    }

    /// READ of a whole file.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn read(&mut self, file: &[u8]) -> Answer<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let results = self.call(NFS, 6, |writer| {
                writer.opaque(file);
                writer.u64(content.len() as u64);
                writer.u32(READ_BYTES);
            })?;
            let mut reader = Reader::new(&results);
            skip_attributes(&mut reader);
            word(&mut reader);
            let end = flag(&mut reader);
            let Ok(data) = reader.opaque(READ_BYTES as usize) else { panic!("no data") };
            content.extend_from_slice(data);
            if end {
                return Ok(content);
            }
        }
    }

    /// REMOVE.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn remove(&mut self, directory: &[u8], name: &str) -> Answer<()> {
        self.call(NFS, 12, |writer| place(writer, directory, name)).map(drop)
    }

    /// RMDIR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn remove_directory(&mut self, directory: &[u8], name: &str) -> Answer<()> {
        self.call(NFS, 13, |writer| place(writer, directory, name)).map(drop)
    }

    /// RENAME.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Answer<()> {
        let arguments = |writer: &mut Writer| {
            place(writer, from.0, from.1);
            place(writer, to.0, to.1);
        };
        self.call(NFS, 14, arguments).map(drop)
    }

    /// LINK.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn link(&mut self, file: &[u8], directory: &[u8], name: &str) -> Answer<()> {
        let arguments = |writer: &mut Writer| {
            writer.opaque(file);
            place(writer, directory, name);
        };
        self.call(NFS, 15, arguments).map(drop)
    }
}

fn place(writer: &mut Writer, directory: &[u8], name: &str) {
    writer.opaque(directory);
    writer.opaque(name.as_bytes());
}

fn length(data: &[u8]) -> u32 {
    let Ok(length) = u32::try_from(data.len()) else { unreachable!("writers write little") };
    length
}

fn word(reader: &mut Reader<'_>) -> u32 {
    let Ok(word) = reader.u32() else { panic!("the reply is too short") };
    word
}

fn double_word(reader: &mut Reader<'_>) -> u64 {
    let Ok(word) = reader.u64() else { panic!("the reply is too short") };
    word
}

fn flag(reader: &mut Reader<'_>) -> bool {
    let Ok(flag) = reader.bool() else { panic!("the reply has no flag where one must be") };
    flag
}

fn handle(reader: &mut Reader<'_>) -> Handle {
    let Ok(handle) = reader.opaque(HANDLE_BYTES_MAX) else { panic!("the reply has no handle") };
    handle.to_vec()
}

/// `post_op_attr`.
fn skip_attributes(reader: &mut Reader<'_>) {
    if flag(reader) {
        for _ in 0..21 {
            word(reader);
        }
    }
}

/// `wcc_data`.
fn skip_change(reader: &mut Reader<'_>) {
    if flag(reader) {
        for _ in 0..6 {
            word(reader);
        }
    }
    skip_attributes(reader);
}
