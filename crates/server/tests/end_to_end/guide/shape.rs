//! Whether an answer has the shape of another one.

/// Units of sizes.
const SIZES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
/// Letters of units of time, as in `1m2s` and `7ms`.
const TIMES: &str = "dhmsun";

/// Whether the lines of an answer are like those that are expected; `...` is any lines.
pub(super) fn is_like(expected: &[String], said: &[String]) -> bool {
    match expected {
        [] => said.is_empty(),
        [any, rest @ ..] if any == "..." => {
            (0..=said.len()).any(|skipped| is_like(rest, &said[skipped..]))
        }
        [line, rest @ ..] => said
            .split_first()
            .is_some_and(|(first, after)| line_like(line, first) && is_like(rest, after)),
    }
}

fn line_like(expected: &str, said: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(shape).collect::<Vec<_>>();
    match expected.strip_suffix(" ...") {
        Some(begin) => words(said).starts_with(&words(begin)),
        None => words(expected) == words(said),
    }
}

/// A word without its numbers, unless it is a count. Of a disk's path the name is left, because
/// tables shorten it.
fn shape(word: &str) -> String {
    let word = match word.rsplit_once("disks/") {
        Some((_, disk)) => disk,
        None => word,
    };
    // A count, or the disks of a group (`3+2`): how many disks may fail, which job it is.
    if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'+') {
        return word.to_owned();
    }
    let mut pieces = String::new();
    let mut letters = String::new();
    let mut characters = word.chars().peekable();
    while let Some(character) = characters.next() {
        let is_followed = characters.peek().is_some_and(char::is_ascii_digit);
        let is_point = character == '.' && is_followed && ends_in_digit(&letters);
        if character.is_ascii_alphanumeric() || is_point {
            letters.push(character);
        } else {
            pieces.push_str(&piece(&letters));
            letters.clear();
            pieces.push(character);
        }
    }
    pieces + &piece(&letters)
}

fn ends_in_digit(letters: &str) -> bool {
    letters.ends_with(|last: char| last.is_ascii_digit())
}

/// Letters and digits without the value: `29.1GiB` and `512B` are sizes, `d1.img` is a name.
fn piece(letters: &str) -> String {
    let end = letters.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(letters.len());
    let (number, unit) = letters.split_at(end);
    // An identity, in hexadecimal digits.
    if letters.len() > 30 || (unit.is_empty() && !number.is_empty()) {
        return "#".to_owned();
    }
    if number.is_empty() {
        return letters.to_owned();
    }
    let unit = unit.replace(|c: char| c.is_ascii_digit() || c == '.', "");
    match unit.chars().all(|letter| TIMES.contains(letter)) {
        true => "#time".to_owned(),
        false if SIZES.contains(&unit.as_str()) => "#size".to_owned(),
        // A moment: `26T08`.
        false => format!("#{unit}"),
    }
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    let like = |expected: &str, said: &str| {
        let lines = |text: &str| text.split('\n').map(str::to_owned).collect::<Vec<_>>();
        is_like(&lines(expected), &lines(said))
    };
    for (expected, said) in [
        ("a1: 755MiB usable, 2 failures", "a1:   1.2GiB usable, 2 failures"),
        ("up 41.3s", "up 12m"),
        ("up 41.3s", "up 1m2s"),
        ("2026-11-26T08:29:09.790997691Z", "2027-01-02T11:00:01.5Z"),
        ("/var/lib/stroop/disks/d1.img  256MiB", "..te/disks/d1.img 1GiB"),
        (
            "journal/0df24071e9695a7c5e9b01e88e65b64e.log",
            "journal/a0000000000000000000000000000001.log",
        ),
        ("check A ...", "check A b c"),
        ("a\n...\nz", "a\nb\nc\nz"),
        ("a\n...", "a"),
        ("listen  nfs 127.0.0.1:2049", "listen nfs 127.0.0.1:35169"),
    ] {
        assert!(like(expected, said), "{expected} / {said}");
    }
    for (expected, said) in [
        ("state OK", "state ERROR"),
        ("survives 2 disk failures", "survives 1 disk failures"),
        ("a1 online dp 3+2", "a1 online dp 3+1"),
        ("disks/d1.img", "disks/d2.img"),
        ("755MiB", "755s"),
        ("a\n...\nz", "a\nb"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("check A ...", "check B c"),
    ] {
        assert!(!like(expected, said), "{expected} / {said}");
    }
}
