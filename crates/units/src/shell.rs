//! Texts in commands that people are told to type.
//!
//! Invariants: a shell takes the answer for one word, whatever the text holds.

/// `text` as a shell takes it for one word: as it is if nothing in it means anything to a shell,
/// else in single quotes.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-+=:,@%".contains(char);
    if text.chars().all(is_plain) && !text.is_empty() {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for plain in ["home", "/dev/disk/by-id/ata-1", "10.0.0.0/8", "home@daily.1"] {
            assert_eq!(shell_word(plain), plain);
        }
        assert_eq!(shell_word("*"), "'*'");
        assert_eq!(shell_word("/mnt/my disk"), "'/mnt/my disk'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word("$(rm x)\n"), "'$(rm x)\n'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("~root"), "'~root'");
    }
}
