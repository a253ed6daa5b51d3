//! A small NFSv3 client: as much of RFC 1813 as these tests use. Failures of the connection are
//! errors, because servers are killed under it; a wrong answer is a panic.

use onc_rpc::{AuthSys, CallHeader, Credential, Reader, Writer, record};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
/// Bytes of a READ or WRITE.
const TRANSFER_BYTES: usize = 256 << 10;
/// Directory entries' names and the like, in bytes.
const NAMES_BYTES_MAX: u32 = 64 << 10;

/// Why a call came to nothing.
#[derive(Debug)]
pub enum Failure {
    /// The server is gone.
    Connection(io::Error),
    /// It answered with this `nfsstat3`.
    Status(u32),
}

impl Failure {
    /// The status; panics for a lost connection.
    pub fn status(self) -> u32 {
        match self {
            Self::Status(status) => status,
            Self::Connection(error) => panic!("{error}"),
        }
    }
}

/// A file handle.
pub type Handle = Vec<u8>;
type Answer<T> = Result<T, Failure>;

/// A connection.
pub struct NfsClient {
    socket: TcpStream,
    xid: u32,
}

impl NfsClient {
    /// Connects as root.
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, xid: 0 }
    }

    fn exchange(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> io::Result<Vec<u8>> {
        self.xid += 1;
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
        CallHeader { xid: self.xid, program, version: 3, procedure, credential }.write(&mut writer);
        arguments(&mut writer);
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        self.socket.write_all(&writer.into_bytes())?;
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        assert_ne!(mark & 1 << 31, 0, "a reply is one fragment");
        let mut reply = vec![0; (mark & !(1 << 31)) as usize];
        self.socket.read_exact(&mut reply)?;
        let mut reader = Reader::new(&reply);
        // xid, REPLY, accepted, no verifier, SUCCESS.
        let header: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(header, [self.xid, 1, 0, 0, 0, 0]);
        Ok(reader.rest().to_vec())
    }

    fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Answer<Vec<u8>> {
        let results = self.exchange(program, procedure, arguments).map_err(Failure::Connection)?;
        let mut reader = Reader::new(&results);
        match reader.u32().unwrap() {
            0 => Ok(reader.rest().to_vec()),
            status => Err(Failure::Status(status)),
        }
    }

    /// MNT: the root directory of an export.
    pub fn mount(&mut self, path: &str) -> Answer<Handle> {
        let results = self.call(MOUNT, 1, |writer| writer.opaque(path.as_bytes()))?;
        Ok(Reader::new(&results).opaque(64).unwrap().to_vec())
    }

    /// LOOKUP.
    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        let results = self.call(NFS, 3, |writer| place(writer, directory, name))?;
        Ok(Reader::new(&results).opaque(64).unwrap().to_vec())
    }

    /// CREATE (8, unchecked) and MKDIR (9).
    fn make(&mut self, procedure: u32, directory: &[u8], name: &str) -> Answer<Handle> {
        let results = self.call(NFS, procedure, |writer| {
            place(writer, directory, name);
            if procedure == 8 {
                writer.u32(0);
            }
            writer.bool(true);
            writer.u32(0o755);
            (0..5).for_each(|_| writer.u32(0));
        })?;
        let mut reader = Reader::new(&results);
        assert!(reader.bool().unwrap(), "a handle");
        Ok(reader.opaque(64).unwrap().to_vec())
    }

    pub fn create(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        self.make(8, directory, name)
    }

    pub fn make_directory(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        self.make(9, directory, name)
    }

    /// WRITE of all of `data`, stable or not.
    pub fn write(&mut self, file: &[u8], data: &[u8], stable: bool) -> Answer<()> {
        for (index, piece) in data.chunks(TRANSFER_BYTES).enumerate() {
            let results = self.call(NFS, 7, |writer| {
                writer.opaque(file);
                writer.u64((index * TRANSFER_BYTES) as u64);
                writer.u32(piece.len() as u32);
                writer.u32(if stable { 2 } else { 0 });
                writer.opaque(piece);
            })?;
            let mut reader = Reader::new(&results);
            skip_change(&mut reader);
            assert_eq!(reader.u32().unwrap() as usize, piece.len());
            assert!(!stable || reader.u32().unwrap() == 2);
        }
        Ok(())
    }

    /// COMMIT of a whole file.
    pub fn commit(&mut self, file: &[u8]) -> Answer<()> {
        let arguments = |writer: &mut Writer| {
            writer.opaque(file);
            writer.u64(0);
            writer.u32(0);
        };
        self.call(NFS, 21, arguments).map(drop)
    }

    /// READ of a whole file.
    pub fn read(&mut self, file: &[u8]) -> Answer<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let results = self.call(NFS, 6, |writer| {
                writer.opaque(file);
                writer.u64(content.len() as u64);
                writer.u32(TRANSFER_BYTES as u32);
            })?;
            let mut reader = Reader::new(&results);
            skip_attributes(&mut reader);
            reader.u32().unwrap();
            let end = reader.bool().unwrap();
            content.extend_from_slice(reader.opaque(1 << 20).unwrap());
            if end {
                return Ok(content);
            }
        }
    }

    /// REMOVE.
    pub fn remove(&mut self, directory: &[u8], name: &str) -> Answer<()> {
        self.call(NFS, 12, |writer| place(writer, directory, name)).map(drop)
    }

    /// RENAME within a directory.
    pub fn rename(&mut self, directory: &[u8], from: &str, to: &str) -> Answer<()> {
        let arguments = |writer: &mut Writer| {
            place(writer, directory, from);
            place(writer, directory, to);
        };
        self.call(NFS, 14, arguments).map(drop)
    }

    /// READDIR of a whole directory: names but `.` and `..`, sorted.
    pub fn list(&mut self, directory: &[u8]) -> Answer<Vec<String>> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, 0);
        loop {
            let results = self.call(NFS, 16, |writer| {
                writer.opaque(directory);
                writer.u64(cookie);
                writer.u64(verifier);
                writer.u32(NAMES_BYTES_MAX);
            })?;
            let mut reader = Reader::new(&results);
            skip_attributes(&mut reader);
            verifier = reader.u64().unwrap();
            while reader.bool().unwrap() {
                reader.u64().unwrap();
                let name = String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap();
                cookie = reader.u64().unwrap();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            if reader.bool().unwrap() {
                names.sort();
                return Ok(names);
            }
        }
    }
}

fn place(writer: &mut Writer, directory: &[u8], name: &str) {
    writer.opaque(directory);
    writer.opaque(name.as_bytes());
}

/// `post_op_attr`.
fn skip_attributes(reader: &mut Reader<'_>) {
    if reader.bool().unwrap() {
        (0..21).for_each(|_| assert!(reader.u32().is_ok()));
    }
}

/// `wcc_data`.
fn skip_change(reader: &mut Reader<'_>) {
    if reader.bool().unwrap() {
        (0..6).for_each(|_| assert!(reader.u32().is_ok()));
    }
    skip_attributes(reader);
}
