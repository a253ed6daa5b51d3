//! Serves the memory backend over NFS: `memory_server [ADDRESS] [VOLUME]...`. For trying clients:
//!
//! `mount -t nfs -o vers=3,nolock,proto=tcp,mountproto=tcp,port=N,mountport=N 127.0.0.1:/vol /mnt`
//!
//! Root is root here. Ends with the process.

use file_service::memory::{MemoryFileSystem, VolumeOptions};
use nfs::{Configuration, EveryClient, ExportAccess, Server};
use platform::linux::SystemClock;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:12049".to_owned()).parse()?;
    let mut volumes: Vec<String> = arguments.collect();
    if volumes.is_empty() {
        volumes.push("vol".to_owned());
    }
    let service = MemoryFileSystem::new(Arc::new(SystemClock));
    for volume in &volumes {
        service.add_volume(volume, VolumeOptions::default())?;
    }
    let access = ExportAccess::ROOT_IS_ROOT;
    let policy = EveryClient { access, volumes };
    let clock = Arc::new(SystemClock);
    let configuration =
        Configuration { address, clock, locking: None, in_flight_bytes_max: 64 << 20 };
    let server = Server::start(&configuration, Arc::new(service), Arc::new(policy))?;
    println!("listening on {}", server.local_address());
    loop {
        std::thread::park();
    }
}
