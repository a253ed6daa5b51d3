//! Names of objects and their limits.
//!
//! Invariants: a name is 1 to 64 of `a-z 0-9 _ . -` and begins with a letter or digit, so that it
//! is a file name, a label value and a word of a shell without quoting; `volume@snapshot` is the
//! full name of a snapshot.
//!
//! Fails: with [`AdminError`] of code `Usage`, which says what a name may be.

use crate::AdminError;

/// Longest name in bytes: what the disk label and the volume table have room for.
pub const NAME_BYTES_MAX: usize = 64;

/// Checks the name of an aggregate, volume or snapshot; `noun` goes into the error.
///
/// # Errors
/// `Usage` if it is no name.
pub fn validate_name(noun: &str, name: &str) -> Result<(), AdminError> {
    let error = |cause: &str| {
        AdminError::usage(format!("cannot use this {noun} name"), name).because(cause).because(
            format!(
                "a name is 1 to {NAME_BYTES_MAX} of a-z 0-9 _ . - and begins with a letter or \
                 digit"
            ),
        )
    };
    if name.is_empty() {
        return Err(error("it is empty"));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(error(&format!("it has {} bytes", name.len())));
    }
    let allowed = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-');
    if let Some(wrong) = name.chars().find(|c| !c.is_ascii() || !allowed(&(*c as u8))) {
        return Err(error(&format!("'{}' is not allowed", wrong.escape_default())));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(error("it begins with a sign"));
    }
    Ok(())
}

/// Takes `volume@snapshot` apart.
///
/// # Errors
/// `Usage` if there is no `@` or a part is no name.
pub fn parse_snapshot_name(text: &str) -> Result<(&str, &str), AdminError> {
    let Some((volume, snapshot)) = text.split_once('@') else {
        return Err(AdminError::usage("cannot read the snapshot name", text)
            .because("a snapshot is written VOLUME@SNAPSHOT, such as home@before"));
    };
    validate_name("volume", volume)?;
    validate_name("snapshot", snapshot)?;
    Ok((volume, snapshot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use proptest::prelude::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "home", "7", "dev-1", "a.b_c", &"x".repeat(64)] {
            assert!(validate_name("volume", good).is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for wrong in ["", "Home", "a b", "a/b", "a@b", ".", "..", "-a", "_a", "caf\u{e9}", &long] {
            let error = validate_name("volume", wrong).unwrap_err();
            assert_eq!(error.code, Code::Usage, "{wrong}");
        }
    }

    #[test]
    fn snapshots_are_named_by_their_volume() {
        assert_eq!(parse_snapshot_name("home@before"), Ok(("home", "before")));
        for wrong in ["home", "@a", "home@", "home@a@b", "Home@a"] {
            assert!(parse_snapshot_name(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_without_a_panic(text in ".{0,80}") {
            let _ = validate_name("volume", &text);
            let _ = parse_snapshot_name(&text);
        }
    }
}
