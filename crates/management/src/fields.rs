//! The fields of the node's own texts, which outlive restarts: a line has fields apart by blanks.
//!
//! A field that may hold anything is escaped: `%` and two hexadecimal digits stand for each byte
//! that is not printable, a blank or `%`, and `-` alone for nothing.
//!
//! Invariants: an escaped field is printable ASCII without blanks; what is escaped is unescaped to
//! the same, but for an empty text, which is nothing.
//!
//! Fails: `None` for a field that is none.

/// Nothing, where something could be.
pub(crate) const NOTHING: &str = "-";
const ESCAPE: char = '%';
/// Characters of a strange line that are shown.
const SHOWN_CHARS_MAX: usize = 80;

/// A line of a file of the node's as messages show it: its beginning, for a damaged file may be one
/// long line.
#[must_use]
pub fn beginning_of(line: &str) -> String {
    let shown: String = line.chars().take(SHOWN_CHARS_MAX).collect();
    let rest = if shown.len() < line.len() { "..." } else { "" };
    format!("{}{rest}", shown.escape_debug())
}

/// An identity as 32 hexadecimal digits.
pub(crate) fn print_identity(identity: Option<[u8; 16]>) -> String {
    let digits = |bytes: [u8; 16]| format!("{:032x}", u128::from_be_bytes(bytes));
    identity.map_or_else(|| NOTHING.to_owned(), digits)
}

/// The identity of a field; `None` if it is none.
pub(crate) fn parse_identity(field: &str) -> Option<Option<[u8; 16]>> {
    if field == NOTHING {
        return Some(None);
    }
    let is_one = field.len() == 32 && field.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_one.then(|| u128::from_str_radix(field, 16).ok()).flatten()?;
    Some(Some(number.to_be_bytes()))
}

/// An empty text is nothing.
pub(crate) fn escape(text: Option<&str>) -> String {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return NOTHING.to_owned() };
    let mut line = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_plain = byte.is_ascii_graphic() && char::from(byte) != ESCAPE;
        match is_plain && text != NOTHING {
            true => line.push(char::from(byte)),
            false => line.push_str(&format!("{ESCAPE}{byte:02x}")),
        }
    }
    line
}

/// The text of a field; `None` if it is none.
pub(crate) fn unescape(field: &str) -> Option<Option<String>> {
    if field == NOTHING {
        return Some(None);
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut pieces = field.split(ESCAPE);
    bytes.extend_from_slice(pieces.next()?.as_bytes());
    for piece in pieces {
        let (digits, plain) = piece.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(plain.as_bytes());
    }
    String::from_utf8(bytes).ok().map(Some)
}
