//! One call at a time over one connection, as root.

use crate::request::{Creation, Request, Setting};
use crate::{Answer, Handle, NfsFailure, results};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Bytes of one READ or WRITE: what every server transfers at once.
const TRANSFER_BYTES: u32 = 64 << 10;
/// The bit of a record's mark that says that it is the last fragment.
const LAST_FRAGMENT: u32 = 1 << 31;

/// A connection.
pub struct NfsClient {
    socket: TcpStream,
    transaction: u32,
}

impl NfsClient {
    /// Connects.
    ///
    /// # Errors
    /// Of the connection.
    pub fn connect(address: SocketAddr) -> Answer<Self> {
        Self::over(TcpStream::connect(address)?, 0)
    }

    /// Goes on over a connection that was made in some other way. Its calls are numbered from
    /// `transaction` on: a server takes the same call under the same number for a repeated one.
    ///
    /// # Errors
    /// Of the connection.
    pub fn over(socket: TcpStream, transaction: u32) -> Answer<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, transaction })
    }

    /// Sends a call and waits for its results.
    ///
    /// # Errors
    /// [`NfsFailure`]; the status within the results is not looked at.
    pub fn call(&mut self, request: &Request) -> Answer<Vec<u8>> {
        self.transaction += 1;
        self.socket.write_all(&request.record(self.transaction))?;
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark)?;
        let mark = u32::from_be_bytes(mark);
        if mark & LAST_FRAGMENT == 0 {
            return Err(NfsFailure::Malformed("a reply of one fragment"));
        }
        let mut reply = vec![0; (mark & !LAST_FRAGMENT) as usize];
        self.socket.read_exact(&mut reply)?;
        let (xid, results) = results::take_header(&reply)?;
        if xid == self.transaction {
            Ok(results.to_vec())
        } else {
            Err(NfsFailure::Malformed("the number of the call"))
        }
    }

    /// MNT: the root directory of an export.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn mount(&mut self, export: &str) -> Answer<Handle> {
        results::handle(&self.call(&Request::mount(export))?)
    }

    /// LOOKUP.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        results::handle(&self.call(&Request::lookup(directory, name))?)
    }

    /// CREATE, guarded.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn create(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        results::made(&self.call(&Request::create(directory, name, Creation::Guarded))?)
    }

    /// MKDIR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn make_directory(&mut self, directory: &[u8], name: &str) -> Answer<Handle> {
        results::made(&self.call(&Request::make_directory(directory, name))?)
    }

    /// SYMLINK.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn symlink(&mut self, directory: &[u8], name: &str, text: &str) -> Answer<Handle> {
        results::made(&self.call(&Request::symlink(directory, name, text))?)
    }

    /// SETATTR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn set(&mut self, file: &[u8], setting: Setting) -> Answer<()> {
        results::done(&self.call(&Request::set(file, setting))?)
    }

    /// WRITE of all of `data`, in one call if it fits; the verifier, which is that of all of them:
    /// a server that starts again ends the connection.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: bool) -> Answer<u64> {
        let mut at = 0;
        loop {
            let end = data.len().min(at + TRANSFER_BYTES as usize);
            let request = Request::write(file, offset + at as u64, &data[at..end], stable);
            let written = results::written(&self.call(&request)?)?;
            if written.count as usize != end - at || written.is_stable != stable {
                return Err(NfsFailure::Malformed("all written, as stable as asked for"));
            }
            at = end;
            if at == data.len() {
                return Ok(written.verifier);
            }
        }
    }

    /// COMMIT of a whole file; the verifier.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn commit(&mut self, file: &[u8]) -> Answer<u64> {
        results::committed(&self.call(&Request::commit(file))?)
    }

    /// READ of a whole file.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn read(&mut self, file: &[u8]) -> Answer<Vec<u8>> {
        let mut content = Vec::new();
        loop {
            let results = self.call(&Request::read(file, content.len() as u64, TRANSFER_BYTES))?;
            let (data, is_end) = results::data(&results)?;
            content.extend_from_slice(data);
            if is_end {
                return Ok(content);
            }
        }
    }

    /// REMOVE.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn remove(&mut self, directory: &[u8], name: &str) -> Answer<()> {
        results::done(&self.call(&Request::remove(directory, name))?)
    }

    /// RMDIR.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn remove_directory(&mut self, directory: &[u8], name: &str) -> Answer<()> {
        results::done(&self.call(&Request::remove_directory(directory, name))?)
    }

    /// RENAME.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Answer<()> {
        results::done(&self.call(&Request::rename(from, to))?)
    }

    /// LINK.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn link(&mut self, file: &[u8], directory: &[u8], name: &str) -> Answer<()> {
        results::done(&self.call(&Request::link(file, directory, name))?)
    }

    /// READDIR of a whole directory: names but `.` and `..`, sorted.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn list(&mut self, directory: &[u8]) -> Answer<Vec<String>> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, 0);
        loop {
            let results = self.call(&Request::list(directory, cookie, verifier))?;
            let listed = results::listed(&results)?;
            names.extend(listed.entries.into_iter().map(|(name, ..)| name));
            if listed.is_end {
                names.sort();
                return Ok(names);
            }
            (cookie, verifier) = (listed.cookie, listed.verifier);
        }
    }
}
