//! A record as a line of JSON.
//!
//! | field | holds |
//! | --- | --- |
//! | `time` | when the change began, RFC 3339 |
//! | `uid`, `pid` | who asked: the user and the process, as the kernel names them |
//! | `command` | the call's name, as the admin socket has it: `volume_create` |
//! | `arguments` | the call's arguments, by name |
//! | `result` | `ok`, or the error's code: `usage`, `not_found`, `conflict` ... |
//! | `duration_ns` | how long the change took |
//!
//! Invariants: a record is one line; a text that looks like the address of an object store and is
//! none is left out, because somebody may have typed a key into it. Names of object ranges have no
//! place for a secret (`object-disk/src/name.rs`). Why a change failed is in the server's log only,
//! and not even there if a text was left out: the reason may repeat what was typed.

use admin_api::{Code, Request, Time};
use admin_server::Change;
use object_disk::RangeName;
use serde_json::{Map, Value, json};
use units::Timestamp;

/// What stands for a text that may hold a secret.
const LEFT_OUT: &str = "(left out: it may hold a secret)";

/// The line of a change.
pub(super) fn record(change: &Change<'_>) -> String {
    line(&json!({
        "time": Time(change.began),
        "uid": change.peer.uid,
        "pid": change.peer.pid,
        "command": change.request.name(),
        "arguments": arguments(change.request),
        "result": result(change),
        "duration_ns": change.duration_nanoseconds,
    }))
}

/// The line that stands for records which were not written.
pub(super) fn lost(now: Timestamp, lost_records: u64) -> String {
    line(&json!({ "time": Time(now), "lost_records": lost_records }))
}

/// How a change ended, in a word.
const fn result(change: &Change<'_>) -> &'static str {
    match change.result {
        Ok(()) => "ok",
        Err(Code::Failed) => "failed",
        Err(Code::Usage) => "usage",
        Err(Code::NotFound) => "not_found",
        Err(Code::Conflict) => "conflict",
        Err(Code::Denied) => "denied",
        Err(Code::Unreachable) => "unreachable",
        Err(Code::TimedOut) => "timed_out",
        Err(Code::Unhealthy) => "unhealthy",
    }
}

fn line(record: &Value) -> String {
    format!("{record}\n")
}

/// Whether something that was typed is left out of the record.
pub(super) fn lacks_a_secret(request: &Request) -> bool {
    let typed = typed(request);
    without_secrets(typed.clone()) != typed
}

fn arguments(request: &Request) -> Value {
    without_secrets(typed(request))
}

/// The arguments of a call. On the wire a call is its name, or an object of its name and them.
fn typed(request: &Request) -> Value {
    match serde_json::to_value(request) {
        Ok(Value::Object(call)) => {
            call.into_iter().next().map_or(Value::Null, |(_, arguments)| arguments)
        }
        _ => Value::Object(Map::new()),
    }
}

fn without_secrets(value: Value) -> Value {
    match value {
        Value::String(text) if may_hold_secret(&text) => LEFT_OUT.into(),
        Value::Array(values) => values.into_iter().map(without_secrets).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_secrets(value))).collect()
        }
        other => other,
    }
}

/// What an address of an object store begins with, somewhere in a text, in any case.
const ADDRESSES: [&str; 3] = ["://", "s3:", "object:"];

/// Whether a text has an address in it and is no object range's name: `s3://KEY:SECRET@bucket/x`.
fn may_hold_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ADDRESSES.iter().any(|begin| lower.contains(begin)) && RangeName::parse(text).is_err()
}
