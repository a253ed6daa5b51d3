//! Target `config`: what people and their scripts write.
//!
//! Rules: nothing panics; an error says something; what is shown is read again as the same; an
//! administrator's message is answered by the node in memory with what its client can read.

use crate::input::Input;
use admin_api::frame;
use admin_api::memory::MemoryAdministration;
use admin_api::{AdminError, ExportRule, Network, Reply, Request};
use clap::Parser as _;
use server::config::Config;
use std::path::Path;
use units::ByteSize;

/// Requests of one input that a node carries out, one after the other.
const REQUESTS_MAX: usize = 16;
/// Words of a command line.
const WORDS_MAX: usize = 24;
/// Users that owners are looked for among; the groups are the input's.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:100::/home/alice:/bin/sh\n";

/// See the module. The first byte chooses the parser.
pub fn config(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(5) {
        0 => file(&text(input.rest())),
        1 => command_line(&text(input.rest())),
        2 => words(&text(input.rest())),
        3 => messages(&mut input),
        _ => frames(input.rest()),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn file(text: &str) {
    match Config::parse(Path::new("/etc/stroop/stroop.toml"), text) {
        Ok(config) => assert!(!config.name.is_empty() && config.workers > 0),
        Err(error) => assert!(error.to_string().contains("stroop.toml"), "{error}"),
    }
}

fn command_line(text: &str) {
    let words = std::iter::once("stroop").chain(text.split('\n')).take(WORDS_MAX);
    match cli::Cli::try_parse_from(words) {
        Ok(cli) => assert!(!format!("{cli:?}").is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn words(text: &str) {
    if let Ok(size) = text.parse::<ByteSize>()
        && size.0 < 1 << 62
    {
        // Above, what is shown in three digits is rounded to more than there are bytes.
        let again = size.to_string().parse::<ByteSize>();
        assert!(again.is_ok(), "{size} is shown and not read");
    }
    if let Ok(duration) = admin_api::duration::parse(text) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        assert!(!admin_api::duration::format(nanoseconds).is_empty());
    }
    if let Ok(network) = text.parse::<Network>() {
        assert_eq!(network.to_string().parse(), Ok(network));
    }
    if let Ok(rule) = text.parse::<ExportRule>() {
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
    if let Ok(time) = text.parse::<admin_api::Time>() {
        assert_eq!(time.to_string().parse(), Ok(time), "{text}");
    }
    let _ = admin_api::names::validate_name("volume", text);
    let _ = admin_api::names::parse_snapshot_name(text);
    let accounts = cli::owner::Accounts::from_texts(USERS, text);
    let first = text.lines().next().unwrap_or_default();
    let _ = accounts.owner(first);
}

/// Requests as JSON, a line each, to one node.
fn messages(input: &mut Input<'_>) {
    let node = MemoryAdministration::with_disks(usize::from(input.byte() % 6));
    for line in input.rest().split(|byte| *byte == b'\n').take(REQUESTS_MAX) {
        let body = [br#"{"version":1,"message":"#.as_slice(), line, b"}"].concat();
        match frame::decode::<Request>(&body) {
            Ok(request) => carry_out(&node, &request),
            Err(error) => assert!(!error.render().is_empty()),
        }
    }
}

fn carry_out(node: &MemoryAdministration, request: &Request) {
    let answer: frame::Answer = admin_api::dispatch(node, request);
    let mut bytes = Vec::new();
    assert!(frame::write_frame(&mut bytes, &answer, frame::REPLY_BYTES_MAX).is_ok());
    let Ok(body) = frame::read_frame(&mut bytes.as_slice(), frame::REPLY_BYTES_MAX) else {
        unreachable!("a frame that was written is one")
    };
    let read: Result<Result<Reply, AdminError>, AdminError> = frame::decode(&body);
    assert_eq!(read.as_ref(), Ok(&answer), "read as it was written");
}

/// A stream of frames, as a server's connection reads it.
fn frames(bytes: &[u8]) {
    let mut stream = bytes;
    while let Ok(body) = frame::read_frame(&mut stream, frame::REQUEST_BYTES_MAX) {
        assert!(body.len() <= bytes.len());
        let _ = frame::decode::<Request>(&body);
        let _ = frame::decode::<frame::Answer>(&body);
    }
}
