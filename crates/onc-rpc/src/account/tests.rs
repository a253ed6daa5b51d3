//! Accounts of memory, without connections.

use super::*;
use crate::connection::{Connection, Outlet};
use platform::thread::spawn;

const NODE: usize = 1 << 20;
const LITTLE: usize = NODE / LITTLE_SHARE;

fn node() -> Arc<Account> {
    Account::of_node(Limits::new(NODE, 1))
}

/// Takes kilobytes for calls until there is no room; how many bytes it has then.
fn fill(account: &Account) -> usize {
    while account.take(1 << 10, Use::Call).is_ok() {}
    account.bytes()
}

#[test]
fn what_is_taken_is_taken_from_all_above_and_given_back_to_them() {
    let node = node();
    let strangers = Account::of_strangers(&node);
    let client = Account::of_client(&strangers);
    client.take(1000, Use::Call).unwrap();
    client.charge(24);
    assert_eq!((client.bytes(), strangers.bytes(), node.bytes()), (1024, 1024, 1024));
    client.give_back(1024);
    assert_eq!((client.bytes(), strangers.bytes(), node.bytes()), (0, 0, 0));
    // What an account above refuses is not left below it.
    Account::of_client(&strangers).take(NODE / 16, Use::Call).unwrap();
    client.take(NODE / 16, Use::Call).unwrap();
    assert!(Account::of_client(&strangers).take(1, Use::Call).is_err());
    assert_eq!(strangers.bytes(), NODE / 8);
}

#[test]
fn clients_that_take_all_they_can_leave_a_quarter_to_those_with_little() {
    let node = node();
    let (one, other, third) =
        (Account::of_client(&node), Account::of_client(&node), Account::of_client(&node));
    assert_eq!(fill(&one), NODE / 2);
    assert_eq!(fill(&other), NODE / 4);
    assert_eq!(fill(&third), LITTLE);
    assert!(third.take(1, Use::Call).is_err(), "it has no longer little");
    assert_eq!(node.bytes(), NODE - NODE / 4 + LITTLE);
}

#[test]
fn strangers_have_an_eighth_together() {
    let node = node();
    let strangers = Account::of_strangers(&node);
    let all: usize = (0..9).map(|_| fill(&Account::of_client(&strangers))).sum();
    assert_eq!((all, strangers.bytes()), (NODE / 8, NODE / 8));
    assert_eq!(fill(&Account::of_client(&node)), NODE / 2);
}

#[test]
fn what_one_can_do_without_is_taken_where_there_is_plenty() {
    let node = node();
    let client = Account::of_client(&node);
    while client.take(1 << 10, Use::Buffer).is_ok() {}
    assert_eq!(client.bytes(), NODE / 4);
    client.take(NODE / 4, Use::Call).unwrap();
    let other = Account::of_client(&node);
    assert!(other.take(1, Use::Buffer).is_err(), "the node's is half full");
    other.take(1, Use::Call).unwrap();
}

#[test]
fn room_that_comes_free_wakes_one_after_the_other() {
    let node = node();
    let client = Account::of_client(&node);
    client.take(NODE / 2, Use::Call).unwrap();
    let waits: Vec<_> = (0..8)
        .map(|number| {
            let client = Arc::clone(&client);
            let wait = move || {
                let waker = Arc::new(Waker::default());
                while client.take(NODE / 8, Use::Call).is_err() {
                    client.wait(NODE / 8, &waker, || false);
                }
                client.give_back(NODE / 8);
            };
            spawn(&format!("waiter-{number}"), wait).unwrap()
        })
        .collect();
    while client.waiting() < 8 {
        std::thread::yield_now();
    }
    client.give_back(NODE / 8);
    waits.into_iter().for_each(|wait| wait.join().unwrap());
    assert_eq!((client.bytes(), client.waiting()), (NODE / 2 - NODE / 8, 0));
}

#[test]
fn a_wait_that_is_over_ends() {
    let node = node();
    let client = Account::of_client(&node);
    client.take(NODE / 2, Use::Call).unwrap();
    let waker = Arc::new(Waker::default());
    client.wait(1, &waker, || true);
    waker.wake();
    client.wait(1, &waker, || false);
    assert_eq!(client.waiting(), 0);
}

/// Readers that waited for memory woke each other in a ring, for as long as they waited: each let
/// go of its connection's writer before it waited again, and gave back nothing.
#[test]
fn regression_who_gives_back_nothing_wakes_nobody() {
    let node = node();
    let client = Account::of_client(&node);
    client.take(NODE / 2, Use::Call).unwrap();
    client.queue.lock().push_back(Arc::default());
    client.waiting.store(1, Ordering::SeqCst);
    let connection = Connection::new(0, Outlet::Memory(Mutex::default()), Arc::clone(&client));
    assert!(connection.hold());
    connection.release();
    assert_eq!(client.waiting(), 1);
    client.give_back(1);
    assert_eq!(client.waiting(), 0);
}
