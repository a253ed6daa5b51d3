//! What was acknowledged is there after SIGKILL and after a clean stop.

use crate::place::Place;
use nfs_client::{Handle, NfsClient, NfsFailure};
use std::collections::BTreeMap;
use std::sync::mpsc::channel;

/// Names and contents of a flat directory.
pub type Model = BTreeMap<String, Vec<u8>>;

/// Content that is the same for the same seed and else different, with no two equal blocks.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1 << 40;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

pub fn connect(place: &Place) -> (NfsClient, Handle) {
    connect_to(place, "/home")
}

pub fn connect_to(place: &Place, path: &str) -> (NfsClient, Handle) {
    let mut client = NfsClient::connect(place.nfs_address()).unwrap();
    let root = client.mount(path).unwrap();
    (client, root)
}

/// Checks that a directory is exactly the model.
pub fn check(client: &mut NfsClient, directory: &[u8], model: &Model) {
    let names: Vec<&String> = model.keys().collect();
    let found = client.list(directory).unwrap();
    assert_eq!(found.iter().collect::<Vec<_>>(), names);
    for (name, expected) in model {
        let file = client.lookup(directory, name).unwrap();
        assert!(client.read(&file).unwrap() == *expected, "{name} differs");
    }
}

/// Files of many sizes, stable, or unstable and committed, with renames and removals.
pub fn fill(client: &mut NfsClient, directory: &[u8], seed: u64) -> Model {
    let mut model = Model::new();
    for number in 0..60 {
        let name = format!("file-{number}");
        let data = content(seed + number, (number * number * 7) as usize);
        let file = client.create(directory, &name).unwrap();
        client.write(&file, 0, &data, number % 2 == 0).unwrap();
        client.commit(&file).unwrap();
        model.insert(name, data);
    }
    let file = client.create(directory, "large").unwrap();
    let data = content(seed + 1000, 3_000_001);
    client.write(&file, 0, &data, false).unwrap();
    client.commit(&file).unwrap();
    model.insert("large".to_owned(), data);
    for number in (0..60).step_by(3) {
        let (from, to) = (format!("file-{number}"), format!("renamed-{number}"));
        client.rename((directory, &from), (directory, &to)).unwrap();
        let data = model.remove(&from).unwrap();
        model.insert(to, data);
    }
    for number in (1..60).step_by(3) {
        let name = format!("file-{number}");
        client.remove(directory, &name).unwrap();
        model.remove(&name);
    }
    model
}

#[test]
fn what_was_acknowledged_survives_kills_and_clean_stops() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "work").unwrap();
    let model = fill(&mut client, &directory, 1);
    check(&mut client, &directory, &model);
    server.kill();

    let server = place.serve();
    let recovery = &place.json(&["status"])["recovery"];
    assert!(recovery["operations"].as_u64().unwrap() > 0, "{recovery}");
    // Handles are the same after a restart.
    let (mut client, root) = connect(&place);
    check(&mut client, &directory, &model);
    let second = client.make_directory(&root, "second").unwrap();
    let more = fill(&mut client, &second, 5000);
    server.stop();

    let server = place.serve();
    assert!(place.json(&["status"])["recovery"].is_null(), "the stop was clean");
    let (mut client, root) = connect(&place);
    check(&mut client, &directory, &model);
    check(&mut client, &second, &more);
    assert_eq!(client.list(&root).unwrap(), ["second", "work"]);
    server.kill();

    let _server = place.serve();
    let (mut client, _) = connect(&place);
    check(&mut client, &directory, &model);
    check(&mut client, &second, &more);
}

/// Writes files until the server is gone; those that were acknowledged. Says so after `count`.
fn write_until_killed(
    mut client: NfsClient,
    root: &[u8],
    prefix: &str,
    count: usize,
    tell: &std::sync::mpsc::Sender<()>,
) -> Model {
    let mut model = Model::new();
    for number in 0.. {
        let name = format!("{prefix}-{number}");
        let data = content(number, 100 + number as usize * 37 % 20_000);
        let write = |client: &mut NfsClient| {
            let file = client.create(root, &name)?;
            client.write(&file, 0, &data, true)
        };
        match write(&mut client) {
            Ok(_) => model.insert(name, data),
            Err(NfsFailure::Connection(_)) => return model,
            Err(failure) => panic!("{failure} for {name}"),
        };
        if model.len() == count {
            tell.send(()).unwrap();
        }
    }
    model
}

#[test]
fn a_server_that_is_killed_under_load_loses_nothing_acknowledged() {
    let (place, mut server) = Place::with_volume();
    let mut expected = Model::new();
    for round in 0..3 {
        let (tell, told) = channel();
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (client, root) = connect(&place);
                let (tell, prefix) = (tell.clone(), format!("r{round}-w{writer}"));
                std::thread::Builder::new()
                    .spawn(move || write_until_killed(client, &root, &prefix, 40, &tell))
                    .unwrap()
            })
            .collect();
        told.recv().unwrap();
        server.kill();
        for writer in writers {
            expected.append(&mut writer.join().unwrap());
        }
        server = place.serve();
        let (mut client, root) = connect(&place);
        for (name, data) in &expected {
            let file = client.lookup(&root, name).unwrap();
            assert!(client.read(&file).unwrap() == *data, "round {round}: {name} differs");
        }
    }
    server.stop();
}
