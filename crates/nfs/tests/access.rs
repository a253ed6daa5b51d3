//! MOUNT, export rules, identities, repeated calls, and the behaviour of connections.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use client::{Client, MOUNT, NFS, name_in, post_attributes, set_mode, start, start_mounted};
use file_service::HandleKey;
use nfs::{EveryClient, Export, ExportAccess, ExportPolicy, Squash};
use onc_rpc::{Credential, Reader};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use units::VolumeUuid;

#[test]
fn mounts_lead_to_directories() {
    let (_setup, mut client, root) = start_mounted();
    let directory = client.make_directory(&root, b"directory").unwrap();
    let inner = client.make_directory(&directory, b"inner").unwrap();
    client.create(&root, b"file").unwrap();
    assert_eq!(client.mount(b"/vol/directory/inner"), Ok(inner.clone()));
    assert_eq!(client.mount(b"vol//directory/inner/"), Ok(inner));
    assert_ne!(client.mount(b"/other").unwrap(), root);
    assert_eq!(client.mount(b"/none").err(), Some(13));
    assert_eq!(client.mount(b"/vol/none").err(), Some(2));
    assert_eq!(client.mount(b"/vol/file").err(), Some(20));
    assert_eq!(client.mount(b"/").err(), Some(13));
    assert_eq!(client.mount(b"/\xff\xff").err(), Some(13));
    assert!(client.call(MOUNT, 0, |_| {}).0.is_empty());
}

#[test]
fn a_mount_leads_past_no_directory_that_keeps_its_caller_out() {
    let (_setup, mut client, root) = start_mounted();
    let (private, _) = client.make(9, &root, b"private", |w| set_mode(w, 0o700)).unwrap();
    client.make(9, &private, b"open", |w| set_mode(w, 0o777)).unwrap();
    assert!(client.mount(b"/vol/private/open").is_ok());
    client.credential = Credential::Sys(onc_rpc::AuthSys::new(7, 8, &[]));
    assert_eq!(client.mount(b"/vol/private/open").err(), Some(13));
    assert!(client.mount(b"/vol/private").is_ok());
}

fn mounted(client: &mut Client) -> Vec<Vec<u8>> {
    let results = client.call(MOUNT, 2, |_| {});
    let mut reader = Reader::new(&results.0);
    let mut paths = Vec::new();
    while reader.bool().unwrap() {
        assert_eq!(reader.opaque(255), Ok(&b"127.0.0.1"[..]));
        paths.push(reader.opaque(1024).unwrap().to_vec());
    }
    assert!(reader.rest().is_empty());
    paths
}

#[test]
fn mounts_and_exports_are_listed() {
    let setup = start();
    let mut client = Client::connect(&setup.server);
    for path in [&b"/vol"[..], b"/other", b"/vol", b"/vol/."] {
        client.mount(path).unwrap();
    }
    assert_eq!(mounted(&mut client), [&b"/vol"[..], b"/other", b"/vol/."]);
    client.call(MOUNT, 3, |w| w.opaque(b"/vol"));
    assert_eq!(mounted(&mut client), [&b"/other"[..], b"/vol/."]);
    client.call(MOUNT, 4, |_| {});
    assert!(mounted(&mut client).is_empty());

    let results = client.call(MOUNT, 5, |_| {});
    let mut reader = Reader::new(&results.0);
    assert_eq!((reader.bool(), reader.opaque(99)), (Ok(true), Ok(&b"/vol"[..])));
    assert_eq!((reader.bool(), reader.opaque(99)), (Ok(true), Ok(&b"10.0.0.0/8"[..])));
    assert_eq!((reader.bool(), reader.opaque(99)), (Ok(true), Ok(&b"host"[..])));
    assert_eq!(reader.bool(), Ok(false));
    assert_eq!((reader.bool(), reader.opaque(99)), (Ok(true), Ok(&b"/other"[..])));
    assert_eq!((reader.bool(), reader.bool()), (Ok(false), Ok(false)));
    assert!(reader.rest().is_empty());
}

#[test]
fn without_a_rule_there_is_no_access() {
    let (setup, mut client, root) = start_mounted();
    *setup.policy.0.lock() = None;
    assert_eq!(client.mount(b"/vol").err(), Some(13));
    assert_eq!(client.mount(b"/none").err(), Some(13), "nor does it see that it is not there");
    assert_eq!(client.attributes(&root).err(), Some(13), "a handle is no permission");
    assert_eq!(client.create(&root, b"x").err(), Some(13));
    assert_eq!(client.nfs(19, |w| w.opaque(&root)).err(), Some(13));
    let programs = setup.server.programs();
    let refused = (programs.refusals().mounts(), programs.refusals().calls());
    assert_eq!(refused, (2, 3), "each is counted");
}

#[test]
fn a_read_only_export_is_not_changed() {
    let (setup, mut client, root) = start_mounted();
    let file = client.create(&root, b"file").unwrap();
    *setup.policy.0.lock() = Some(ExportAccess { read_only: true, ..ExportAccess::ROOT_IS_ROOT });
    assert_eq!(client.create(&root, b"x").err(), Some(30));
    assert_eq!(client.write(&file, 0, b"x", 0).err(), Some(30));
    for procedure in [2, 9, 10, 11, 12, 13, 14, 15] {
        let result = client.nfs(procedure, |w| {
            name_in(w, &root, b"file");
            set_mode(w, 0);
        });
        assert_eq!(result.err(), Some(30), "procedure {procedure}");
    }
    assert!(client.read(&file, 0, 1).is_ok());
    let results = client.nfs(4, |w| {
        w.opaque(&root);
        w.u32(0x3f);
    });
    let results = results.unwrap();
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    assert_eq!(reader.u32(), Ok(0x03), "look and read, no change");
}

#[test]
fn identities_reach_the_backend_squashed() {
    let (setup, mut client, root) = start_mounted();
    let open = |w: &mut onc_rpc::Writer| set_mode(w, 0o777);
    let (public, _) = client.make(9, &root, b"public", open).unwrap();
    let mut owner = |access: ExportAccess, credential| {
        *setup.policy.0.lock() = Some(access);
        client.credential = credential;
        let name = format!("{access:?}{}", client.xid);
        let name = name.as_bytes().get(name.len() - 20..).unwrap();
        let file = client.create(&public, name).unwrap();
        let attributes = client.attributes(&file).unwrap();
        (attributes.uid, attributes.gid)
    };
    let user = Credential::Sys(onc_rpc::AuthSys::new(7, 8, &[]));
    let root_user = Credential::Sys(onc_rpc::AuthSys::new(0, 0, &[]));
    let squash = |squash| ExportAccess { squash, ..ExportAccess::ROOT_IS_ROOT };
    assert_eq!(owner(squash(Squash::None), root_user), (0, 0));
    assert_eq!(owner(squash(Squash::Root), root_user), (65534, 65534));
    assert_eq!(owner(squash(Squash::Root), user), (7, 8));
    assert_eq!(owner(squash(Squash::All), user), (65534, 65534));
    assert_eq!(owner(squash(Squash::None), Credential::None), (65534, 65534));
    assert_eq!(ExportAccess::default().squash, Squash::Root);
}

#[test]
fn a_change_is_not_made_twice() {
    let (_setup, mut client, root) = start_mounted();
    client.create(&root, b"file").unwrap();
    let remove = client.encode(NFS, 12, |w| name_in(w, &root, b"file"));
    client.send(&remove);
    let (first_xid, _, first) = client.receive();
    assert_eq!(first.0[..4], [0; 4]);
    // The same call again: the same answer, though the name is gone.
    client.send(&remove);
    let (xid, status, again) = client.receive();
    assert_eq!((xid, status), (first_xid, 0));
    assert_eq!(again.0, first.0);
    // A new call is a new call.
    assert_eq!(client.nfs(12, |w| name_in(w, &root, b"file")).err(), Some(2));
    // What was garbage is not remembered as done.
    let garbage = client.encode(NFS, 12, |_| {});
    for _ in 0..2 {
        client.send(&garbage);
        assert_eq!(client.receive().1, 4);
    }
}

#[test]
fn many_clients_work_at_the_same_time() {
    let setup = start();
    let root = Client::connect(&setup.server).mount(b"/vol").unwrap();
    let threads: Vec<_> = (0..8_u8)
        .map(|number| {
            let mut client = Client::connect(&setup.server);
            let root = root.clone();
            let work = move || {
                let file = client.create(&root, &[b'a' + number]).unwrap();
                for round in 0..50_u64 {
                    let data = vec![number ^ round as u8; 3000 + 97 * round as usize];
                    client.write(&file, round * 10_000, &data, 0).unwrap();
                    let (read, _) = client.read(&file, round * 10_000, data.len() as u32).unwrap();
                    assert!(read == data);
                }
            };
            platform::thread::spawn("client", work).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    setup.service.verify();
}

#[test]
fn clients_come_back_after_a_restart_of_the_server() {
    let (mut setup, mut client, root) = start_mounted();
    let file = client.create(&root, b"file").unwrap();
    setup.server.stop();
    let service = std::sync::Arc::clone(&setup.service);
    let policy = std::sync::Arc::clone(&setup.policy);
    let server = client::serve(service, policy);
    let mut client = Client::connect(&server);
    assert_eq!(client.attributes(&file).unwrap().kind, 1);
}

#[test]
fn a_change_is_not_made_twice_over_a_new_connection() {
    let (setup, mut client, root) = start_mounted();
    client.create(&root, b"file").unwrap();
    let remove = client.encode(NFS, 12, |w| name_in(w, &root, b"file"));
    client.send(&remove);
    let (_, _, first) = client.receive();
    drop(client);
    let mut client = Client::connect(&setup.server);
    client.send(&remove);
    assert_eq!(client.receive().2.0, first.0, "done once, answered twice");
    // Another user's call is another call, whatever its number.
    let mut other = Client::user(&setup.server, 5, 5);
    other.xid = client.xid;
    assert_eq!(other.nfs(12, |w| name_in(w, &root, b"file")).err(), Some(2));
}

#[test]
fn errors_tell_what_the_files_are_now() {
    let (setup, mut client, root) = start_mounted();
    let directory = client.make_directory(&root, b"directory").unwrap();
    let file = client.create(&root, b"file").unwrap();
    let told = |client: &mut Client, procedure, arguments: &dyn Fn(&mut onc_rpc::Writer)| {
        let results = client.call(NFS, procedure, arguments);
        let mut reader = Reader::new(&results.0);
        assert_ne!(reader.u32(), Ok(0));
        client::failure(&mut reader, procedure)
    };
    let now = |client: &mut Client, handle: &[u8]| Some(client.attributes(handle).unwrap());
    let (of_root, of_directory) = (now(&mut client, &root), now(&mut client, &directory));
    let of_file = now(&mut client, &file);
    let missing = told(&mut client, 3, &|w| name_in(w, &root, b"missing"));
    assert_eq!(missing, std::slice::from_ref(&of_root));
    let taken = told(&mut client, 9, &|w| {
        name_in(w, &root, b"file");
        set_mode(w, 0o755);
    });
    assert_eq!(taken, std::slice::from_ref(&of_root));
    let moved = told(&mut client, 14, &|w| {
        name_in(w, &directory, b"missing");
        name_in(w, &root, b"there");
    });
    assert_eq!(moved, [of_directory, of_root.clone()]);
    let linked = told(&mut client, 15, &|w| {
        w.opaque(&file);
        name_in(w, &root, b"file");
    });
    assert_eq!(linked, [of_file, of_root]);
    // Of what the client may not use nothing is told.
    *setup.policy.0.lock() = None;
    assert_eq!(told(&mut client, 3, &|w| name_in(w, &root, b"missing")), [None]);
}

#[test]
fn snapshots_are_hidden_and_ports_refused_if_the_rule_says_so() {
    let (setup, mut client, root) = start_mounted();
    // The root as a snapshot has it; the memory backend has none, so it is stale.
    let mut kept = client::opened(&root);
    kept.snapshot = units::SnapshotId(7);
    let snapshots = client::sealed(&kept);
    assert_eq!(client.attributes(&snapshots).err(), Some(70));
    *setup.policy.0.lock() =
        Some(ExportAccess { hide_snapshots: true, ..ExportAccess::ROOT_IS_ROOT });
    assert_eq!(client.lookup(&root, b".snapshot").err(), Some(2));
    assert_eq!(client.attributes(&snapshots).err(), Some(13), "a handle from before");
    assert_eq!(client.mount(b"/vol/.snapshot").err(), Some(2));
    assert!(client.attributes(&root).is_ok());
    // The test's own port is one that anybody may use.
    *setup.policy.0.lock() =
        Some(ExportAccess { secure_ports: true, ..ExportAccess::ROOT_IS_ROOT });
    assert_eq!(client.attributes(&root).err(), Some(1));
    assert_eq!(client.mount(b"/vol").err(), Some(13));
}

/// A volume that is away for a while.
struct Away(AtomicBool);

impl ExportPolicy for Away {
    fn handle_key(&self, _: VolumeUuid) -> Option<HandleKey> {
        (!self.0.load(Ordering::SeqCst)).then_some(EveryClient::KEY)
    }

    fn is_away(&self, _: VolumeUuid) -> bool {
        true
    }

    fn rule(&self, _: VolumeUuid, _: IpAddr) -> Option<ExportAccess> {
        Some(ExportAccess::ROOT_IS_ROOT)
    }

    fn rule_for_export(&self, _: &str, _: IpAddr) -> Option<ExportAccess> {
        Some(ExportAccess::ROOT_IS_ROOT)
    }

    fn exports(&self, _: IpAddr) -> Vec<Export> {
        Vec::new()
    }
}

#[test]
fn a_call_that_was_told_to_come_later_is_not_done_when_a_copy_is_read_late() {
    let policy = std::sync::Arc::new(Away(AtomicBool::new(false)));
    let server = client::serve(start().service, std::sync::Arc::clone(&policy) as _);
    let mut old = Client::connect(&server);
    let root = old.mount(b"/vol").unwrap();
    let file = old.create(&root, b"file").unwrap();
    let write = |w: &mut onc_rpc::Writer, data: &[u8]| {
        w.opaque(&file);
        w.u64(0);
        [data.len() as u32, 2].iter().for_each(|word| w.u32(*word));
        w.opaque(data);
    };
    // The server has not read it yet when the client gives the connection up.
    let first = old.encode(NFS, 7, |w| write(w, b"first"));
    let mut new = Client::connect(&server);
    policy.0.store(true, Ordering::SeqCst);
    new.send(&first);
    assert_eq!(new.receive().2.0[..4], 10008_u32.to_be_bytes(), "come later");
    policy.0.store(false, Ordering::SeqCst);
    new.xid = old.xid;
    assert!(new.nfs(7, |w| write(w, b"first")).is_ok(), "later, as another call");
    assert!(new.nfs(7, |w| write(w, b"newer")).is_ok());
    // Now it is read.
    assert!(old.is_hung_up_after(&first));
    assert_eq!(new.read(&file, 0, 5).unwrap().0, b"newer");
}
