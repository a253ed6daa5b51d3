//! NFSACL on the wire: what Linux clients send and expect.

#![allow(clippy::unwrap_used, reason = "a test; only #[test] functions are excepted by themselves")]

mod client;

use client::{Client, post_attributes, set_mode, start_mounted};
use onc_rpc::{AuthSys, Credential, Reader, Writer};

const NFSACL: u32 = 100_227;
const INVALID: u32 = 22;
const NOT_PERMITTED: u32 = 1;
const DENIED: u32 = 13;

/// Tag, identity, permissions.
type Entry = (u32, u32, u32);

const OWNER: u32 = 1;
const USER: u32 = 2;
const GROUP: u32 = 4;
const MASK: u32 = 16;
const OTHER: u32 = 32;
const DEFAULT: u32 = 0x1000;

fn write(writer: &mut Writer, entries: &[Entry]) {
    writer.u32(entries.len() as u32);
    writer.u32(entries.len() as u32);
    for (tag, id, permissions) in entries {
        [*tag, *id, *permissions].iter().for_each(|word| writer.u32(*word));
    }
}

fn read(reader: &mut Reader<'_>) -> (u32, Vec<Entry>) {
    let count = reader.u32().unwrap();
    let present = reader.u32().unwrap();
    let mut word = || reader.u32().unwrap();
    (count, (0..present).map(|_| (word(), word(), word())).collect())
}

fn set(client: &mut Client, file: &[u8], mask: u32, lists: [&[Entry]; 2]) -> Result<u32, u32> {
    let results = client.call(NFSACL, 2, |writer| {
        writer.opaque(file);
        writer.u32(mask);
        lists.iter().for_each(|list| write(writer, list));
    });
    let mut reader = Reader::new(&results.0);
    let status = reader.u32().unwrap();
    let attributes = post_attributes(&mut reader);
    assert!(reader.rest().is_empty());
    if status == 0 { Ok(attributes.unwrap().mode) } else { Err(status) }
}

type Lists = [(u32, Vec<Entry>); 2];

fn get(client: &mut Client, file: &[u8], mask: u32) -> Result<Lists, u32> {
    let results = client.call(NFSACL, 1, |writer| {
        writer.opaque(file);
        writer.u32(mask);
    });
    let mut reader = Reader::new(&results.0);
    let status = reader.u32().unwrap();
    let attributes = post_attributes(&mut reader);
    if status != 0 {
        assert!(reader.rest().is_empty());
        return Err(status);
    }
    assert!(attributes.is_some());
    assert_eq!(reader.u32(), Ok(mask));
    let lists = [read(&mut reader), read(&mut reader)];
    assert!(reader.rest().is_empty());
    Ok(lists)
}

const FULL: [Entry; 5] = [(OWNER, 0, 6), (USER, 7, 4), (GROUP, 0, 0), (MASK, 0, 6), (OTHER, 0, 0)];

#[test]
fn lists_are_set_and_shown() {
    let (_setup, mut client, root) = start_mounted();
    let (file, _) = client
        .make(8, &root, b"f", |writer| {
            writer.u32(0);
            set_mode(writer, 0o640);
        })
        .unwrap();
    // A list that is only a mode has a mask all the same.
    let of_mode = vec![(OWNER, 0, 6), (GROUP, 0, 4), (MASK, 0, 4), (OTHER, 0, 0)];
    assert_eq!(get(&mut client, &file, 15), Ok([(4, of_mode.clone()), (0, Vec::new())]));
    assert_eq!(get(&mut client, &file, 2), Ok([(4, Vec::new()), (0, Vec::new())]));
    assert_eq!(set(&mut client, &file, 1, [&FULL, &[]]), Ok(0o660));
    assert_eq!(get(&mut client, &file, 3), Ok([(5, FULL.to_vec()), (0, Vec::new())]));
    // And is that mode again when it is set.
    assert_eq!(set(&mut client, &file, 1, [&of_mode, &[]]), Ok(0o640));
    assert_eq!(get(&mut client, &file, 1), Ok([(4, of_mode), (0, Vec::new())]));
    assert!(client.call(NFSACL, 0, |_| {}).0.is_empty());
}

#[test]
fn new_files_inherit() {
    let (_setup, mut client, root) = start_mounted();
    let directory = client.make_directory(&root, b"d").unwrap();
    let default = FULL.map(|(tag, id, permissions)| (tag | DEFAULT, id, permissions));
    assert!(set(&mut client, &directory, 4, [&[], &default]).is_ok());
    let [_, shown] = get(&mut client, &directory, 12).unwrap();
    assert_eq!(shown, (5, default.to_vec()));
    let file = client.create(&directory, b"f").unwrap();
    let [access, none] = get(&mut client, &file, 15).unwrap();
    assert_eq!((access.0, none), (5, (0, Vec::new())));
    assert!(access.1.contains(&(USER, 7, 4)));
    assert!(set(&mut client, &directory, 4, [&[], &[]]).is_ok());
    assert_eq!(get(&mut client, &directory, 4).unwrap()[1], (0, Vec::new()));
}

#[test]
fn lists_let_in_and_keep_out() {
    let (setup, mut client, root) = start_mounted();
    let (file, _) = client
        .make(8, &root, b"f", |writer| {
            writer.u32(0);
            set_mode(writer, 0o600);
        })
        .unwrap();
    client.write(&file, 0, b"content", 2).unwrap();
    let mut user = Client::user(&setup.server, 7, 7);
    assert_eq!(user.read(&file, 0, 9).err(), Some(DENIED));
    set(&mut client, &file, 1, [&FULL, &[]]).unwrap();
    assert_eq!(user.read(&file, 0, 9).unwrap().0, b"content");
    assert_eq!(user.write(&file, 0, b"other", 2).err(), Some(DENIED));
    assert_eq!(get(&mut user, &file, 1).unwrap()[0].1, FULL, "everybody may look");
    assert_eq!(set(&mut user, &file, 1, [&FULL, &[]]), Err(NOT_PERMITTED));
    client.credential = Credential::Sys(AuthSys::new(8, 8, &[]));
    assert_eq!(client.read(&file, 0, 9).err(), Some(DENIED));
}

#[test]
fn what_is_no_list_is_refused() {
    let (_setup, mut client, root) = start_mounted();
    let file = client.create(&root, b"f").unwrap();
    assert_eq!(get(&mut client, &file, 16), Err(INVALID));
    assert_eq!(set(&mut client, &file, 16, [&[], &[]]), Err(INVALID));
    for wrong in [
        vec![FULL[0], FULL[2]],
        [&FULL[..], &[FULL[1]]].concat(),
        [&FULL[..], &[(64, 0, 1)]].concat(),
        [&FULL[..], &[(USER, 9, 8)]].concat(),
    ] {
        assert_eq!(set(&mut client, &file, 1, [&wrong, &[]]), Err(INVALID), "{wrong:?}");
    }
    assert_eq!(set(&mut client, &file, 4, [&[], &FULL]), Err(DENIED), "no directory");
    let (link, _) = client
        .make(10, &root, b"l", |writer| {
            set_mode(writer, 0o777);
            writer.opaque(b"f");
        })
        .unwrap();
    assert_eq!(get(&mut client, &link, 1), Err(10_004));
}
