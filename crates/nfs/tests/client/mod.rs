//! A small NFSv3 client over a real socket, and a server with the memory backend to talk to.
//!
//! It reads what RFC 1813 says must be there and panics otherwise, so that every test that uses it
//! checks the shape of every answer.

#![allow(dead_code, reason = "each test file uses a part")]

use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{FileHandle, FileService, HandleKey, SealedHandle};
use nfs::{Configuration, EveryClient, Export, ExportAccess, ExportPolicy, Server};
use onc_rpc::{AuthSys, CallHeader, Credential, Reader, Writer, record};
use platform::linux::SystemClock;
use platform::sync::Mutex;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use units::VolumeUuid;

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;

/// A policy that a test changes while the server runs.
pub struct Policy(pub Mutex<Option<ExportAccess>>);

impl ExportPolicy for Policy {
    /// Another number for another rule.
    fn generation(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", self.0.lock()).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn handle_key(&self, _: VolumeUuid) -> Option<HandleKey> {
        Some(EveryClient::KEY)
    }

    fn rule(&self, _: VolumeUuid, client: IpAddr) -> Option<ExportAccess> {
        assert!(client.is_loopback());
        *self.0.lock()
    }

    fn rule_for_export(&self, _: &str, client: IpAddr) -> Option<ExportAccess> {
        assert!(client.is_loopback());
        *self.0.lock()
    }

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        let clients = vec!["10.0.0.0/8".to_owned(), "host".to_owned()];
        vec![
            Export { path: "/vol".to_owned(), clients },
            Export { path: "/other".to_owned(), clients: Vec::new() },
        ]
    }
}

/// What a server means by a handle that it gave.
pub fn opened(handle: &[u8]) -> FileHandle {
    SealedHandle::parse(handle).unwrap().open(&EveryClient::KEY).unwrap()
}

/// A handle as the server itself would give it.
pub fn sealed(file: &FileHandle) -> Vec<u8> {
    file.seal(&EveryClient::KEY).to_vec()
}

pub struct Setup {
    pub service: Arc<MemoryFileSystem>,
    pub policy: Arc<Policy>,
    pub server: Server,
}

/// A server with the volumes `vol` and `other`.
pub fn start() -> Setup {
    let service = MemoryFileSystem::new(Arc::new(SystemClock));
    for volume in ["vol", "other"] {
        service.add_volume(volume, VolumeOptions::default()).unwrap();
    }
    let service = Arc::new(service);
    let policy = Arc::new(Policy(Mutex::new(Some(ExportAccess::ROOT_IS_ROOT))));
    let (backend, rules) = (Arc::clone(&service), Arc::clone(&policy));
    Setup { service, policy, server: serve(backend, rules) }
}

/// A server, a client of it, and the root of `vol` that the client has mounted.
pub fn start_mounted() -> (Setup, Client, Vec<u8>) {
    let setup = start();
    let mut client = Client::connect(&setup.server);
    let root = client.mount(b"/vol").unwrap();
    (setup, client, root)
}

pub fn serve(service: Arc<dyn FileService>, policy: Arc<dyn ExportPolicy>) -> Server {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let clock = Arc::new(SystemClock);
    let configuration =
        Configuration { address, clock, locking: None, in_flight_bytes_max: 64 << 20 };
    Server::start(&configuration, service, policy).unwrap()
}

/// A server for everyone with one volume `vol`.
pub fn start_open() -> Server {
    let service = MemoryFileSystem::new(Arc::new(SystemClock));
    service.add_volume("vol", VolumeOptions::default()).unwrap();
    let policy =
        EveryClient { access: ExportAccess::ROOT_IS_ROOT, volumes: vec!["vol".to_owned()] };
    serve(Arc::new(service), Arc::new(policy))
}

pub struct Client {
    socket: TcpStream,
    pub credential: Credential,
    pub xid: u32,
}

/// `fattr3`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub device: (u32, u32),
    pub file_system: u64,
    pub inode: u64,
    pub atime: (u32, u32),
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

/// The results of a call, behind the RPC header.
pub struct Results(pub Vec<u8>);

impl Client {
    pub fn connect(server: &Server) -> Self {
        Self::connect_as(server, Credential::Sys(AuthSys::new(0, 0, &[])))
    }

    pub fn connect_as(server: &Server, credential: Credential) -> Self {
        let socket = TcpStream::connect(server.local_address()).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, credential, xid: 1 }
    }

    pub fn user(server: &Server, uid: u32, gid: u32) -> Self {
        Self::connect_as(server, Credential::Sys(AuthSys::new(uid, gid, &[])))
    }

    /// The bytes of a call.
    pub fn encode(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Vec<u8> {
        self.xid += 1;
        let mut writer = Writer::default();
        writer.u32(0);
        let credential = self.credential;
        CallHeader { xid: self.xid, program, version: 3, procedure, credential }.write(&mut writer);
        arguments(&mut writer);
        writer.overwrite_u32(0, record::mark(writer.len() - 4));
        writer.into_bytes()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends a call; whether the server then ends the connection instead of answering.
    pub fn is_hung_up_after(&mut self, bytes: &[u8]) -> bool {
        self.send(bytes);
        self.socket.read(&mut [0; 1]).unwrap_or(0) == 0
    }

    /// The next reply: its number, accept status, and results.
    pub fn receive(&mut self) -> (u32, u32, Results) {
        let mut mark = [0; 4];
        self.socket.read_exact(&mut mark).unwrap();
        let length = u32::from_be_bytes(mark);
        assert_ne!(length & 0x8000_0000, 0);
        let mut reply = vec![0; (length & 0x7fff_ffff) as usize];
        self.socket.read_exact(&mut reply).unwrap();
        let mut reader = Reader::new(&reply);
        let xid = reader.u32().unwrap();
        assert_eq!(reader.u32(), Ok(1), "a reply");
        assert_eq!(reader.u32(), Ok(0), "accepted");
        assert_eq!(reader.u64(), Ok(0), "verifier");
        let status = reader.u32().unwrap();
        (xid, status, Results(reader.rest().to_vec()))
    }

    /// Calls, and takes the results, whatever their status.
    pub fn call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Results {
        let bytes = self.encode(program, procedure, arguments);
        self.send(&bytes);
        let (xid, status, results) = self.receive();
        assert_eq!((xid, status), (self.xid, 0));
        results
    }

    /// Calls NFS; the results behind the status OK, or the status with `failure_words` empty words.
    pub fn nfs(
        &mut self,
        procedure: u32,
        arguments: impl FnOnce(&mut Writer),
    ) -> Result<Results, u32> {
        self.call(NFS, procedure, arguments).split(procedure)
    }

    /// Mounts; the handle.
    pub fn mount(&mut self, path: &[u8]) -> Result<Vec<u8>, u32> {
        let results = self.call(MOUNT, 1, |w| w.opaque(path));
        let mut reader = Reader::new(&results.0);
        match reader.u32().unwrap() {
            0 => {
                let handle = reader.opaque(64).unwrap().to_vec();
                assert_eq!((reader.u32(), reader.u32()), (Ok(1), Ok(1)), "AUTH_SYS");
                Ok(handle)
            }
            status => {
                assert!(reader.rest().is_empty());
                Err(status)
            }
        }
    }

    pub fn attributes(&mut self, handle: &[u8]) -> Result<Attributes, u32> {
        let results = self.nfs(1, |w| w.opaque(handle))?;
        let mut reader = results.reader();
        let attributes = attributes(&mut reader);
        assert!(reader.rest().is_empty());
        Ok(attributes)
    }

    pub fn lookup(&mut self, directory: &[u8], name: &[u8]) -> Result<(Vec<u8>, Attributes), u32> {
        let results = self.nfs(3, |w| name_in(w, directory, name))?;
        let mut reader = results.reader();
        let handle = reader.opaque(64).unwrap().to_vec();
        let attributes = post_attributes(&mut reader).unwrap();
        post_attributes(&mut reader).expect("the directory's attributes");
        assert!(reader.rest().is_empty());
        Ok((handle, attributes))
    }

    /// CREATE, MKDIR, SYMLINK, MKNOD.
    pub fn make(
        &mut self,
        procedure: u32,
        directory: &[u8],
        name: &[u8],
        how: impl FnOnce(&mut Writer),
    ) -> Result<(Vec<u8>, Attributes), u32> {
        let results = self.nfs(procedure, |w| {
            name_in(w, directory, name);
            how(w);
        })?;
        let mut reader = results.reader();
        assert!(reader.bool().unwrap());
        let handle = reader.opaque(64).unwrap().to_vec();
        let attributes = post_attributes(&mut reader).unwrap();
        change(&mut reader);
        assert!(reader.rest().is_empty());
        Ok((handle, attributes))
    }

    /// CREATE, unchecked, with a mode.
    pub fn create(&mut self, directory: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        let how = |w: &mut Writer| {
            w.u32(0);
            set_mode(w, 0o644);
        };
        Ok(self.make(8, directory, name, how)?.0)
    }

    pub fn make_directory(&mut self, directory: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        Ok(self.make(9, directory, name, |w| set_mode(w, 0o755))?.0)
    }

    /// WRITE; the count, the stability, the verifier.
    pub fn write(
        &mut self,
        handle: &[u8],
        offset: u64,
        data: &[u8],
        stability: u32,
    ) -> Result<(u32, u32, u64), u32> {
        let results = self.nfs(7, |w| {
            w.opaque(handle);
            w.u64(offset);
            w.u32(data.len() as u32);
            w.u32(stability);
            w.opaque(data);
        })?;
        let mut reader = results.reader();
        change(&mut reader);
        let (count, stability) = (reader.u32().unwrap(), reader.u32().unwrap());
        let verifier = reader.u64().unwrap();
        assert!(reader.rest().is_empty());
        Ok((count, stability, verifier))
    }

    /// READ; the data and whether the file ends there.
    pub fn read(&mut self, handle: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let results = self.nfs(6, |w| {
            w.opaque(handle);
            w.u64(offset);
            w.u32(count);
        })?;
        let mut reader = results.reader();
        post_attributes(&mut reader).unwrap();
        let count = reader.u32().unwrap();
        let end = reader.bool().unwrap();
        let data = reader.opaque(1 << 20).unwrap().to_vec();
        assert_eq!(data.len(), count as usize);
        assert!(reader.rest().is_empty());
        Ok((data, end))
    }
}

impl Results {
    /// Splits off the status; a failure has nothing but attributes behind it.
    pub fn split(self, procedure: u32) -> Result<Self, u32> {
        let mut reader = Reader::new(&self.0);
        let status = reader.u32().unwrap();
        if status == 0 {
            return Ok(Self(reader.rest().to_vec()));
        }
        failure(&mut reader, procedure);
        Err(status)
    }

    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0)
    }
}

/// What RFC 1813 has behind a status other than OK: `wcc_data` or `post_op_attr` for each file.
pub fn failure(reader: &mut Reader<'_>, procedure: u32) -> Vec<Option<Attributes>> {
    let around: &[bool] = match procedure {
        1 => &[],
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 21 => &[true],
        14 => &[true, true],
        15 => &[false, true],
        _ => &[false],
    };
    let mut file = |around: &bool| {
        assert!(!around || reader.bool() == Ok(false), "nothing changed");
        post_attributes(reader)
    };
    let files = around.iter().map(&mut file).collect();
    assert!(reader.rest().is_empty());
    files
}

pub fn name_in(writer: &mut Writer, directory: &[u8], name: &[u8]) {
    writer.opaque(directory);
    writer.opaque(name);
}

/// `sattr3` with a mode only.
pub fn set_mode(writer: &mut Writer, mode: u32) {
    writer.bool(true);
    writer.u32(mode);
    (0..5).for_each(|_| writer.u32(0));
}

/// `sattr3` that sets nothing.
pub fn set_nothing(writer: &mut Writer) {
    (0..6).for_each(|_| writer.u32(0));
}

/// `sattr3` with a size only.
pub fn set_size(writer: &mut Writer, size: u64) {
    (0..3).for_each(|_| writer.u32(0));
    writer.bool(true);
    writer.u64(size);
    (0..2).for_each(|_| writer.u32(0));
}

pub fn attributes(reader: &mut Reader<'_>) -> Attributes {
    let mut word = || reader.u32().unwrap();
    let (kind, mode, links, uid, gid) = (word(), word(), word(), word(), word());
    let (size, used) = (reader.u64().unwrap(), reader.u64().unwrap());
    let device = (reader.u32().unwrap(), reader.u32().unwrap());
    let (file_system, inode) = (reader.u64().unwrap(), reader.u64().unwrap());
    let mut time = || (reader.u32().unwrap(), reader.u32().unwrap());
    let (atime, mtime, ctime) = (time(), time(), time());
    Attributes {
        kind,
        mode,
        links,
        uid,
        gid,
        size,
        used,
        device,
        file_system,
        inode,
        atime,
        mtime,
        ctime,
    }
}

pub fn post_attributes(reader: &mut Reader<'_>) -> Option<Attributes> {
    reader.bool().unwrap().then(|| attributes(reader))
}

/// `wcc_data` that must be there: size before and attributes after.
pub fn change(reader: &mut Reader<'_>) -> (u64, Attributes) {
    assert!(reader.bool().unwrap());
    let size = reader.u64().unwrap();
    reader.u64().unwrap();
    reader.u64().unwrap();
    (size, post_attributes(reader).unwrap())
}
