//! Messages on a byte stream: a length, then JSON.
//!
//! A frame is a 32-bit little-endian length and that many bytes of JSON, an [`Envelope`] with the
//! protocol's version. One request is answered by one reply, in order.
//!
//! Invariants: a frame longer than its limit is refused before it is read; memory grows with what
//! arrives, not with what a length claims.
//!
//! Fails: [`FrameError`]; never panics on what arrives.

use crate::error::{AdminError, Code};
use crate::{Reply, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Version of the messages. A server refuses another than its own: client and server are the same
/// binary, so a difference means that one of them was replaced while the other ran.
pub const PROTOCOL_VERSION: u32 = 1;
/// Largest request: 1,024 disks of 300 bytes fit three times.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Largest reply: 1,000 volumes of 1,023 snapshots at 200 bytes each.
pub const REPLY_BYTES_MAX: u32 = 256 << 20;

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream failed or ended within a frame.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The stream ended before a frame: the other side is done.
    #[error("the connection was closed")]
    Closed,
    /// The frame claims to be longer than allowed.
    #[error("a message of {size_bytes} bytes; at most {bytes_max} are allowed")]
    TooLarge {
        /// What it claims.
        size_bytes: u64,
        /// What is allowed.
        bytes_max: u32,
    },
    /// The frame's content is no message.
    #[error("a message that makes no sense: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// What a frame holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub version: u32,
    /// The message.
    pub message: T,
}

/// What comes back.
pub type Answer = Result<Reply, AdminError>;

/// Writes one frame.
///
/// # Errors
/// `TooLarge` if the message is; `Io` if the stream fails.
pub fn write_frame<T: Serialize>(
    stream: &mut impl Write,
    message: &T,
    bytes_max: u32,
) -> Result<(), FrameError> {
    let body = serde_json::to_vec(&Envelope { version: PROTOCOL_VERSION, message })?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= bytes_max);
    let Some(length) = length else {
        return Err(FrameError::TooLarge { size_bytes: body.len() as u64, bytes_max });
    };
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame)?;
    stream.flush()?;
    Ok(())
}

/// Reads one frame's bytes.
///
/// # Errors
/// `Closed` at the end of the stream, `TooLarge`, `Io`.
pub fn read_frame(stream: &mut impl Read, bytes_max: u32) -> Result<Vec<u8>, FrameError> {
    let mut header = [0; 4];
    let mut filled = 0;
    while let Some(rest) = header.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) if filled == 0 => return Err(FrameError::Closed),
            Ok(0) => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let length = u32::from_le_bytes(header);
    if length > bytes_max {
        return Err(FrameError::TooLarge { size_bytes: u64::from(length), bytes_max });
    }
    let mut body = Vec::new();
    let read = stream.take(u64::from(length)).read_to_end(&mut body)?;
    if read as u64 != u64::from(length) {
        return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(body)
}

/// The message that a frame's bytes hold. The version is looked at first, because a message of
/// another version need not make sense here.
///
/// # Errors
/// `Usage` for another version, `Failed` for what is no message.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, AdminError> {
    let unreadable = |error: serde_json::Error| {
        AdminError::new(Code::Failed, "cannot read the message", "").because(error.to_string())
    };
    #[derive(Deserialize)]
    struct VersionOnly {
        version: u32,
    }
    let VersionOnly { version } = serde_json::from_slice(body).map_err(unreadable)?;
    if version != PROTOCOL_VERSION {
        return Err(AdminError::usage("cannot talk to this version", version.to_string())
            .because(format!("this side speaks version {PROTOCOL_VERSION} of the protocol"))
            .try_next("use the stroop binary that the server was started from"));
    }
    let envelope: Envelope<T> = serde_json::from_slice(body).map_err(unreadable)?;
    Ok(envelope.message)
}

/// Sends a request and waits for its answer.
///
/// # Errors
/// [`FrameError`] of the way; what the node said is inside.
pub fn exchange(stream: &mut (impl Read + Write), request: &Request) -> Result<Answer, FrameError> {
    let written = match write_frame(stream, request, REQUEST_BYTES_MAX) {
        Err(FrameError::Io(error)) => Err(error),
        other => Ok(other?),
    };
    let body = match (read_frame(stream, REPLY_BYTES_MAX), written) {
        (Ok(body), _) => body,
        // A server that refuses a connection answers and closes before it is asked: the write
        // fails then and the answer is there all the same. Without one the write's error counts.
        (Err(_), Err(error)) => return Err(error.into()),
        (Err(error), Ok(())) => return Err(error),
    };
    Ok(decode::<Answer>(&body).and_then(|answer| answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Cursor;

    #[test]
    fn frames_survive_the_stream() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &Request::Status, REQUEST_BYTES_MAX).unwrap();
        write_frame(&mut bytes, &Request::Shutdown, REQUEST_BYTES_MAX).unwrap();
        let mut stream = Cursor::new(bytes);
        for expected in [Request::Status, Request::Shutdown] {
            let body = read_frame(&mut stream, REQUEST_BYTES_MAX).unwrap();
            assert_eq!(decode::<Request>(&body), Ok(expected));
        }
        let end = read_frame(&mut stream, REQUEST_BYTES_MAX);
        assert!(matches!(end, Err(FrameError::Closed)));
    }

    #[test]
    fn a_long_frame_is_refused_before_it_is_read() {
        let mut stream = Cursor::new(u32::MAX.to_le_bytes());
        let error = read_frame(&mut stream, REQUEST_BYTES_MAX).unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { size_bytes, .. } if size_bytes > 1 << 31));
        let long = Request::VolumeShow(crate::Named { name: "x".repeat(2 << 20) });
        let error = write_frame(&mut Vec::new(), &long, REQUEST_BYTES_MAX).unwrap_err();
        assert!(matches!(error, FrameError::TooLarge { .. }));
    }

    #[test]
    fn a_cut_frame_is_an_error() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &Request::Status, REQUEST_BYTES_MAX).unwrap();
        for length in 1..bytes.len() {
            let mut stream = Cursor::new(&bytes[..length]);
            let error = read_frame(&mut stream, REQUEST_BYTES_MAX).unwrap_err();
            assert!(matches!(error, FrameError::Io(_)), "{length}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let error = decode::<Request>(br#"{"version":9,"message":{"dance":1}}"#).unwrap_err();
        assert_eq!((error.code, error.object.as_str()), (Code::Usage, "9"));
        let error = decode::<Request>(br#"{"version":1,"message":{"dance":1}}"#).unwrap_err();
        assert_eq!(error.code, Code::Failed);
    }

    proptest! {
        #[test]
        fn garbage_is_judged_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut stream = Cursor::new(&bytes);
            while let Ok(body) = read_frame(&mut stream, 100) {
                let _ = decode::<Request>(&body);
                let _ = decode::<Answer>(&body);
            }
        }
    }
}
