//! Every procedure of NFSv3 over a real socket against the memory backend.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use client::{
    Client, NFS, attributes, change, name_in, post_attributes, set_mode, set_nothing, set_size,
    start, start_mounted,
};
use file_service::{FsError, HandleKey};
use onc_rpc::{Credential, Writer};

const fn status(error: FsError) -> u32 {
    error.nfs3_status()
}

#[test]
fn null_answers_nothing() {
    let setup = start();
    let mut client = Client::connect_as(&setup.server, Credential::None);
    assert!(client.call(NFS, 0, |_| {}).0.is_empty());
}

#[test]
fn attributes_are_read_and_set() {
    let (_setup, mut client, root) = start_mounted();
    let of_root = client.attributes(&root).unwrap();
    assert_eq!((of_root.kind, of_root.mode, of_root.links), (2, 0o755, 2));

    let file = client.create(&root, b"file").unwrap();
    let before = client.attributes(&file).unwrap();
    assert_eq!((before.kind, before.mode, before.size), (1, 0o644, 0));
    assert_eq!(before.file_system, of_root.file_system);
    assert_ne!(before.inode, of_root.inode);

    // All attributes at once: mode, owner, size, atime from the client, mtime from the server.
    let set = |w: &mut Writer| {
        w.opaque(&file);
        [1, 0o751, 1, 12, 1, 34, 1, 0, 5000].iter().for_each(|word| w.u32(*word));
        [2, 1_000_000, 999_999_999, 1].iter().for_each(|word| w.u32(*word));
        w.bool(false);
    };
    let results = client.nfs(2, set).unwrap();
    let (size_before, after) = change(&mut results.reader());
    assert_eq!((size_before, after.size), (0, 5000));
    assert_eq!((after.mode, after.uid, after.gid), (0o751, 12, 34));
    assert_eq!(after.atime, (1_000_000, 999_999_999));
    assert_eq!(client.attributes(&file), Ok(after.clone()));

    // The guard.
    let mut guarded = |seconds, nanoseconds| {
        client.nfs(2, |w| {
            w.opaque(&file);
            set_size(w, 1);
            w.bool(true);
            w.u32(seconds);
            w.u32(nanoseconds);
        })
    };
    assert_eq!(guarded(after.ctime.0, after.ctime.1 ^ 1).err(), Some(10002));
    assert!(guarded(after.ctime.0, after.ctime.1).is_ok());
    assert_eq!(client.attributes(&file).unwrap().size, 1);
}

#[test]
fn access_and_lookup() {
    let setup = start();
    let mut root_client = Client::connect(&setup.server);
    let root = root_client.mount(b"vol").unwrap();
    let directory = root_client.make_directory(&root, b"directory").unwrap();
    let file = root_client.create(&directory, b"file").unwrap();

    let (found, attributes) = root_client.lookup(&directory, b"file").unwrap();
    assert_eq!(found, file);
    assert_eq!(attributes.kind, 1);
    assert_eq!(root_client.lookup(&directory, b"..").unwrap().0, root);
    assert_eq!(root_client.lookup(&directory, b".").unwrap().0, directory);
    assert_eq!(root_client.lookup(&directory, b"none").err(), Some(2));
    assert_eq!(root_client.lookup(&file, b"x").err(), Some(20));
    assert_eq!(root_client.lookup(&root, b"a/b").err(), Some(22));
    assert_eq!(root_client.lookup(&root, &[b'x'; 256]).err(), Some(63));

    let rights = |client: &mut Client, handle: &[u8], wanted: u32| {
        let results = client.nfs(4, |w| {
            w.opaque(handle);
            w.u32(wanted);
        });
        let results = results.unwrap();
        let mut reader = results.reader();
        post_attributes(&mut reader).unwrap();
        reader.u32().unwrap()
    };
    let mut user = Client::user(&setup.server, 5, 5);
    assert_eq!(rights(&mut root_client, &directory, 0x3f), 0x1f);
    assert_eq!(rights(&mut user, &directory, 0x3f), 0x03);
    assert_eq!(rights(&mut user, &file, 0x3f), 0x01);
    assert_eq!(rights(&mut user, &file, 0x04), 0);
    assert_eq!(user.create(&directory, b"mine").err(), Some(13));
}

#[test]
fn data_is_written_read_and_committed() {
    let (_setup, mut client, root) = start_mounted();
    let file = client.create(&root, b"file").unwrap();
    assert_eq!(client.read(&file, 0, 100), Ok((Vec::new(), true)));

    let small: Vec<u8> = (0..4099).map(|at| at as u8).collect();
    for stability in 0..3 {
        let (count, committed, _) = client.write(&file, 3, &small, stability).unwrap();
        assert_eq!(count, 4099);
        assert!(committed >= stability);
    }
    // 1 MiB: longer than the read buffer, its data a slice of the receive buffer.
    let large: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    let (count, _, verifier) = client.write(&file, 8192, &large, 0).unwrap();
    assert_eq!(count, 1 << 20);
    let (data, end) = client.read(&file, 8192, 1 << 20).unwrap();
    assert!(end && data == large);
    let (data, end) = client.read(&file, 0, 4102).unwrap();
    assert_eq!((&data[..3], end), (&[0; 3][..], false));
    assert_eq!(data[3..], small);
    // A count above the limit is cut, an offset beyond the end reads nothing.
    let (data, end) = client.read(&file, 0, u32::MAX).unwrap();
    assert_eq!((data.len(), end), (1 << 20, false));
    assert_eq!(client.read(&file, u64::MAX, 10), Ok((Vec::new(), true)));
    assert_eq!(client.write(&file, u64::MAX, b"x", 2).err(), Some(27));
    assert_eq!(client.read(&root, 0, 10).err(), Some(21));

    let results = client.nfs(21, |w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(0);
    });
    let results = results.unwrap();
    let mut reader = results.reader();
    assert_eq!(change(&mut reader).1.size, 8192 + (1 << 20));
    assert_eq!(reader.u64(), Ok(verifier));
    assert!(reader.rest().is_empty());
}

#[test]
fn files_are_created_in_three_ways() {
    let (_setup, mut client, root) = start_mounted();
    let unchecked = |w: &mut Writer| {
        w.u32(0);
        set_size(w, 0);
    };
    let guarded = |w: &mut Writer| {
        w.u32(1);
        set_mode(w, 0o600);
    };
    let (file, attributes) = client.make(8, &root, b"file", guarded).unwrap();
    assert_eq!((attributes.kind, attributes.mode), (1, 0o600));
    assert_eq!(client.make(8, &root, b"file", guarded).err(), Some(17));
    client.write(&file, 0, b"data", 2).unwrap();
    let (again, attributes) = client.make(8, &root, b"file", unchecked).unwrap();
    assert_eq!((again, attributes.size), (file, 0));

    let exclusive = |verifier: u64| {
        move |w: &mut Writer| {
            w.u32(2);
            w.u64(verifier);
        }
    };
    let (one, _) = client.make(8, &root, b"exclusive", exclusive(77)).unwrap();
    assert_eq!(client.make(8, &root, b"exclusive", exclusive(77)).unwrap().0, one);
    assert_eq!(client.make(8, &root, b"exclusive", exclusive(78)).err(), Some(17));
    assert_eq!(client.create(&root, b"").err(), Some(22));
    assert_eq!(client.create(&root, b".").err(), Some(17));
    assert_eq!(client.create(&root, b"a/b").err(), Some(22));
}

#[test]
fn nodes_of_all_kinds_are_made() {
    let (_setup, mut client, root) = start_mounted();
    client.make_directory(&root, b"directory").unwrap();
    assert_eq!(client.make_directory(&root, b"directory").err(), Some(17));

    let target = b"directory/../some where";
    let symlink = |w: &mut Writer| {
        set_nothing(w);
        w.opaque(target);
    };
    let (link, attributes) = client.make(10, &root, b"link", symlink).unwrap();
    assert_eq!((attributes.kind, attributes.size), (5, target.len() as u64));
    let results = client.nfs(5, |w| w.opaque(&link)).unwrap();
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    assert_eq!(reader.opaque(4096), Ok(&target[..]));
    assert_eq!(client.nfs(5, |w| w.opaque(&root)).err(), Some(22));

    let mut special = |kind: u32, name: &[u8]| {
        let how = move |w: &mut Writer| {
            w.u32(kind);
            set_mode(w, 0o640);
            if kind == 3 || kind == 4 {
                w.u32(8);
                w.u32(17);
            }
        };
        client.make(11, &root, name, how).map(|(_, attributes)| attributes)
    };
    for (kind, name) in [(3, b"bb"), (4, b"cc"), (6, b"ss"), (7, b"ff")] {
        let attributes = special(kind, name).unwrap();
        assert_eq!((attributes.kind, attributes.mode), (kind, 0o640));
        assert_eq!(attributes.device, if kind < 5 { (8, 17) } else { (0, 0) });
    }
    for kind in [1, 2, 5] {
        assert_eq!(special(kind, b"wrong").err(), Some(10007));
    }
}

#[test]
fn names_are_removed_renamed_and_linked() {
    let (setup, mut client, root) = start_mounted();
    let other = client.mount(b"/other").unwrap();
    let directory = client.make_directory(&root, b"directory").unwrap();
    let file = client.create(&root, b"file").unwrap();

    let link = |client: &mut Client, directory: &[u8], name: &[u8]| {
        client.nfs(15, |w| {
            w.opaque(&file);
            name_in(w, directory, name);
        })
    };
    let results = link(&mut client, &directory, b"hard").unwrap();
    let mut reader = results.reader();
    assert_eq!(post_attributes(&mut reader).unwrap().links, 2);
    change(&mut reader);
    assert_eq!(link(&mut client, &directory, b"hard").err(), Some(17));
    assert_eq!(link(&mut client, &other, b"hard").err(), Some(18));

    let rename = |client: &mut Client, from: (&[u8], &[u8]), to: (&[u8], &[u8])| {
        let results = client.nfs(14, |w| {
            name_in(w, from.0, from.1);
            name_in(w, to.0, to.1);
        })?;
        let mut reader = results.reader();
        change(&mut reader);
        change(&mut reader);
        assert!(reader.rest().is_empty());
        Ok::<(), u32>(())
    };
    rename(&mut client, (&root, b"file"), (&directory, b"moved")).unwrap();
    assert_eq!(rename(&mut client, (&root, b"file"), (&directory, b"x")), Err(2));
    assert_eq!(rename(&mut client, (&directory, b"moved"), (&other, b"x")), Err(18));
    assert_eq!(client.lookup(&directory, b"moved").unwrap().0, file);

    let named = |name: &'static [u8]| {
        let directory = directory.clone();
        move |w: &mut Writer| name_in(w, &directory, name)
    };
    assert_eq!(client.nfs(13, |w| name_in(w, &root, b"directory")).err(), Some(66));
    assert_eq!(client.nfs(13, named(b"moved")).err(), Some(20));
    assert_eq!(client.nfs(12, |w| name_in(w, &root, b"directory")).err(), Some(21));
    change(&mut client.nfs(12, named(b"moved")).unwrap().reader());
    change(&mut client.nfs(12, named(b"hard")).unwrap().reader());
    assert_eq!(client.attributes(&file).err(), Some(70), "stale");
    change(&mut client.nfs(13, |w| name_in(w, &root, b"directory")).unwrap().reader());
    setup.service.verify();
}

type NamesAndCookies = Vec<(Vec<u8>, u64)>;

/// READDIR or READDIRPLUS; names and cookies, whether the directory ends.
fn list(
    client: &mut Client,
    directory: &[u8],
    cookie: u64,
    sizes: (Option<u32>, u32),
) -> Result<(NamesAndCookies, bool), u32> {
    let procedure = if sizes.0.is_some() { 17 } else { 16 };
    let results = client.nfs(procedure, |w| {
        w.opaque(directory);
        w.u64(cookie);
        w.u64(0);
        sizes.0.iter().for_each(|size| w.u32(*size));
        w.u32(sizes.1);
    })?;
    assert!(results.0.len() <= sizes.1 as usize, "{} > {}", results.0.len(), sizes.1);
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    assert_eq!(reader.u64(), Ok(0));
    let mut entries = Vec::new();
    while reader.bool().unwrap() {
        let inode = reader.u64().unwrap();
        let name = reader.opaque(255).unwrap().to_vec();
        entries.push((name.clone(), reader.u64().unwrap()));
        if sizes.0.is_some() {
            assert_eq!(post_attributes(&mut reader).unwrap().inode, inode);
            assert!(reader.bool().unwrap());
            let handle = client::opened(reader.opaque(64).unwrap());
            assert_eq!(handle.inode.get(), inode);
        }
    }
    let end = reader.bool().unwrap();
    assert!(reader.rest().is_empty());
    Ok((entries, end))
}

#[test]
fn directories_are_listed_in_pieces() {
    let (_setup, mut client, root) = start_mounted();
    let mut expected: Vec<Vec<u8>> = vec![b".".to_vec(), b"..".to_vec()];
    for number in 0..200 {
        let name = format!("{number:0width$}", width = 1 + number % 50).into_bytes();
        client.create(&root, &name).unwrap();
        expected.push(name);
    }
    expected.sort();
    for sizes in [(None, 300), (None, 1 << 20), (Some(100), 1000), (Some(1 << 20), 1 << 20)] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, end) = list(&mut client, &root, cookie, sizes).unwrap();
            assert!(end || !entries.is_empty());
            cookie = entries.last().map_or(cookie, |(_, cookie)| *cookie);
            names.extend(entries.into_iter().map(|(name, _)| name));
            if end {
                break;
            }
        }
        names.sort();
        assert!(names == expected, "{sizes:?}");
    }
    assert_eq!(list(&mut client, &root, 0, (None, 110)).err(), Some(10005));
    assert_eq!(list(&mut client, &root, 0, (Some(8), 200)).err(), Some(10005));
    let file = client.create(&root, b"file").unwrap();
    assert_eq!(list(&mut client, &file, 0, (None, 1000)).err(), Some(20));
    let wrong_verifier = |w: &mut Writer| {
        w.opaque(&root);
        w.u64(2);
        w.u64(1);
        w.u32(1000);
    };
    assert_eq!(client.nfs(16, wrong_verifier).err(), Some(10003));
}

#[test]
fn the_file_system_describes_itself() {
    let (_setup, mut client, root) = start_mounted();
    let results = client.nfs(18, |w| w.opaque(&root)).unwrap();
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    let sizes: Vec<u64> = (0..6).map(|_| reader.u64().unwrap()).collect();
    assert!(sizes[0] >= sizes[1] && sizes[1] >= sizes[2] && sizes[2] > 0);
    assert!(sizes[3] >= sizes[4] && sizes[5] > 0);
    assert_eq!((reader.u32(), reader.rest().len()), (Ok(0), 0));

    let results = client.nfs(19, |w| w.opaque(&root)).unwrap();
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    let words: Vec<u32> = (0..7).map(|_| reader.u32().unwrap()).collect();
    assert_eq!(words, [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 64 << 10]);
    assert_eq!(reader.u64(), Ok(16 << 40));
    assert_eq!((reader.u32(), reader.u32(), reader.u32()), (Ok(0), Ok(1), Ok(0x1b)));
    assert!(reader.rest().is_empty());

    let results = client.nfs(20, |w| w.opaque(&root)).unwrap();
    let mut reader = results.reader();
    post_attributes(&mut reader).unwrap();
    let words: Vec<u32> = (0..6).map(|_| reader.u32().unwrap()).collect();
    assert_eq!(words, [65_000, 255, 1, 1, 0, 1]);
    assert!(reader.rest().is_empty());
}

#[test]
fn handles_that_are_wrong_or_old_are_told_apart() {
    let (_setup, mut client, root) = start_mounted();
    let mut stale = client::opened(&root);
    stale.inode = stale.inode.offset(12_345);
    let made_up = stale.seal(&HandleKey([0; 16]));
    let stale = client::sealed(&stale);
    for procedure in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21] {
        // Arguments that every procedure can read beyond the handle: a name, an all-zero rest.
        let arguments = |handle: &[u8]| {
            let handle = handle.to_vec();
            move |w: &mut Writer| {
                w.opaque(&handle);
                match procedure {
                    3 | 12 | 13 => w.opaque(b"x"),
                    8..=10 => {
                        w.opaque(b"x");
                        w.fixed(&[0; 28]);
                        w.opaque(b"text");
                    }
                    11 => {
                        w.opaque(b"x");
                        w.u32(7);
                        w.fixed(&[0; 28]);
                    }
                    14 => {
                        w.opaque(b"x");
                        name_in(w, &handle, b"y");
                    }
                    15 => name_in(w, &handle, b"y"),
                    16 | 17 => {
                        w.u64(0);
                        w.u64(0);
                        w.u32(1000);
                        w.u32(1000);
                    }
                    _ => w.fixed(&[0; 40]),
                }
            }
        };
        let bad = client.nfs(procedure, arguments(&[2; 48]));
        assert_eq!(bad.err(), Some(status(FsError::BadHandle)), "procedure {procedure}");
        let short = client.nfs(procedure, arguments(&root[..47]));
        assert_eq!(short.err(), Some(status(FsError::BadHandle)), "procedure {procedure}");
        let made_up = client.nfs(procedure, arguments(&made_up));
        assert_eq!(made_up.err(), Some(status(FsError::BadHandle)), "procedure {procedure}");
        let old = client.nfs(procedure, arguments(&stale));
        assert_eq!(old.err(), Some(status(FsError::Stale)), "procedure {procedure}");
    }
}

#[test]
fn garbage_is_garbage() {
    let (_setup, mut client, root) = start_mounted();
    let mut garbage = |procedure, arguments: &dyn Fn(&mut Writer)| {
        let bytes = client.encode(NFS, procedure, arguments);
        client.send(&bytes);
        let (_, status, results) = client.receive();
        assert!(results.0.is_empty());
        status
    };
    for procedure in 1..22 {
        assert_eq!(garbage(procedure, &|_| {}), 4, "procedure {procedure}");
    }
    assert_eq!(garbage(22, &|_| {}), 3, "no such procedure");
    let long_handle = |w: &mut Writer| w.opaque(&[0; 65]);
    assert_eq!(garbage(1, &long_handle), 4);
    let count_is_not_length = |w: &mut Writer| {
        w.opaque(&root);
        w.u64(0);
        w.u32(5);
        w.u32(0);
        w.opaque(b"four");
    };
    assert_eq!(garbage(7, &count_is_not_length), 4);
}

#[test]
fn attributes_have_the_size_of_the_rfc() {
    let (_setup, mut client, root) = start_mounted();
    let results = client.nfs(1, |w| w.opaque(&root)).unwrap();
    assert_eq!(results.0.len(), 84);
    attributes(&mut results.reader());
}
