//! Rules about what texts refer to: decisions, papers and files that are there (STYLE.md).
//!
//! Invariants: "decision 9" has a page in `docs/decisions/`; in "FlexVol section 3.4" the name is a
//! short name of `docs/papers.md`; a document or source file that a text names is the end of a
//! path in this repository. In sources only comments count.

use super::Finding;
use std::collections::BTreeSet;

/// What a text may refer to.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The numbers of the decisions that have a page.
    pub(super) decisions: BTreeSet<u32>,
    /// The short names of papers and standards.
    pub(super) papers: BTreeSet<String>,
    /// The paths of all files, below the root.
    pub(super) files: BTreeSet<String>,
}

/// Endings of the files that are looked for.
const ENDINGS: [&str; 3] = [".md", ".rs", ".sh"];

/// Words that begin a sentence before "section", and name nothing.
const BEGINNINGS: [&str; 5] = ["See", "In", "The", "Of", "And"];

impl Known {
    /// Reads `docs/papers.md`: the short names are the first cells of its tables.
    pub(super) fn papers_of(text: &str) -> BTreeSet<String> {
        let first = |line: &str| Some(line.strip_prefix("| ")?.split(" | ").next()?.to_owned());
        text.lines().filter_map(first).collect()
    }

    /// The number of a decision's page, of its path below the root.
    pub(super) fn decision_of(path: &str) -> Option<u32> {
        path.strip_prefix("docs/decisions/")?.split('-').next()?.parse().ok()
    }

    /// What the text at `path` refers to and is not there.
    pub(super) fn check(&self, path: &str, text: &str) -> Vec<Finding> {
        let words = words(text, path.ends_with(".rs"));
        let mut findings = Vec::new();
        for (at, (line, word)) in words.iter().enumerate() {
            let after = words.get(at + 1..).unwrap_or_default().iter().map(|(_, word)| *word);
            let before = words.get(..at).unwrap_or_default();
            let mut missing = Vec::new();
            if matches!(bare(word), "decision" | "decisions") {
                let numbers =
                    numbers(after.clone()).filter(|number| !self.decisions.contains(number));
                missing.extend(numbers.map(|it| format!("docs/decisions/ has no page {it}")));
            }
            let is_section = matches!(bare(word), "section" | "sections");
            if is_section && numbers(after).next().is_some() {
                let name = self.unknown_paper(before);
                missing.extend(name.map(|it| format!("docs/papers.md has no short name '{it}'")));
            }
            missing.extend(self.unknown_file(word));
            let found = |what| Finding { path: path.to_owned(), line: *line, what, warning: false };
            findings.extend(missing.into_iter().map(found));
        }
        findings
    }

    /// The name before "section", if it is none: of one word, or of two as in "RFC 1813".
    fn unknown_paper(&self, before: &[(usize, &str)]) -> Option<String> {
        let last = bare(before.last()?.1);
        let two = before.len().checked_sub(2).and_then(|at| before.get(at));
        let two = two.map(|(_, first)| format!("{} {last}", bare(first)));
        // A section of a document of ours, or of the text itself.
        let is_name = last.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
        let is_ours = ENDINGS.iter().any(|ending| last.ends_with(ending));
        let is_ours = is_ours || BEGINNINGS.contains(&last);
        let known = self.papers.contains(last) || two.is_some_and(|two| self.papers.contains(&two));
        (is_name && !is_ours && !known).then(|| last.to_owned())
    }

    fn unknown_file(&self, word: &str) -> Option<String> {
        if word.contains("://") {
            return None;
        }
        let named = word.split(['(', ')', '[', ']', '`', ',', ';', '"', '\'', '#']);
        let mut named = named.map(|name| name.trim_end_matches([':', '.']));
        let missing = named.find(|name| {
            let is_path = ENDINGS.iter().any(|ending| name.ends_with(ending) && name != ending)
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            is_path && !self.has_file(name)
        });
        missing.map(|name| format!("the repository has no file '{name}'"))
    }

    fn has_file(&self, name: &str) -> bool {
        let name = name.trim_start_matches("./").trim_start_matches("../");
        let ends = |path: &String| path == name || path.ends_with(&format!("/{name}"));
        self.files.iter().any(ends)
    }
}

/// The words of a text with their lines, from 1; of a source those of its comments.
fn words(text: &str, is_source: bool) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let text = if is_source { comment_of(line) } else { line };
        words.extend(text.split_whitespace().map(|word| (index + 1, word)));
    }
    words
}

/// The comment of a line of a source. What follows "://" is an address.
fn comment_of(line: &str) -> &str {
    let mut slashes = line.match_indices("//").map(|(at, _)| at);
    let begin = slashes.find(|at| !line.get(..*at).is_some_and(|before| before.ends_with(':')));
    let comment = begin.and_then(|at| line.get(at..)).unwrap_or_default();
    comment.trim_start_matches(['/', '!'])
}

/// The numbers that follow one another: "7", "7 and 8", "4, 5, 10".
fn numbers<'w>(words: impl Iterator<Item = &'w str>) -> impl Iterator<Item = u32> {
    let mut words = words.filter(|word| !matches!(*word, "and" | "or"));
    let mut goes_on = true;
    std::iter::from_fn(move || {
        let word = words.next().filter(|_| goes_on)?;
        // After the end of a sentence another begins, perhaps with a number.
        goes_on = !word.ends_with(['.', ')', ';', ':']);
        bare(word).split('.').next()?.parse().ok()
    })
}

/// A word without what stands around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            decisions: BTreeSet::from([1, 12]),
            papers: Known::papers_of(
                "| short name | authors |\n| --- | --- |\n| FlexVol | John |\n| RFC 1813 | NFS |\n",
            ),
            files: ["docs/testing.md", "crates/raid/src/lib.rs"].map(str::to_owned).into(),
        }
    }

    fn whats(path: &str, text: &str) -> Vec<String> {
        known().check(path, text).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn decisions_without_a_page_are_found() {
        assert_eq!(Known::decision_of("docs/decisions/0012-moved-blocks.md"), Some(12));
        assert_eq!(Known::decision_of("docs/decisions/README.md"), None);
        assert_eq!(whats("x.md", "as decided (decision 12), and decision 0001."), [""; 0]);
        assert_eq!(whats("x.md", "see decision 13."), ["docs/decisions/ has no page 13"]);
        assert_eq!(whats("x.rs", "let x = 1; // decision 2"), ["docs/decisions/ has no page 2"]);
        assert_eq!(whats("x.md", "decisions 1, 12 and 13; 14").len(), 1);
        assert_eq!(whats("x.rs", "/// as in decision\n/// 2 and 1").len(), 1);
        assert_eq!(whats("x.rs", "let decision = 2;\nlet text = \"decision 2\";"), [""; 0]);
    }

    #[test]
    fn papers_without_a_title_are_found() {
        assert_eq!(whats("x.md", "FlexVol section 3.4 and RFC 1813 section 4.4"), [""; 0]);
        assert_eq!(whats("x.md", "see testing.md, section 1, or section 2"), [""; 0]);
        let found = whats("x.rs", concat!("/", "/! as in ICPP'18 section 3"));
        assert_eq!(found, ["docs/papers.md has no short name 'ICPP'18'"]);
        assert_eq!(whats("x.md", "RFC 9999 sections 2 and 3").len(), 1);
        assert_eq!(whats("x.md", "See section 2."), [""; 0]);
    }

    #[test]
    fn files_that_are_not_there_are_found() {
        assert_eq!(whats("x.md", "[a](docs/testing.md) and `raid/src/lib.rs`."), [""; 0]);
        assert_eq!(whats("x.md", "(`lib.rs`, ../testing.md#rules)"), [""; 0]);
        assert_eq!(whats("x.md", "[gone](docs/gone.md#rules)").len(), 1);
        assert_eq!(whats("x.md", "https://example.org/gone.md"), [""; 0]);
        let found = whats("x.md", "see `raid/src/gone.rs`.");
        assert_eq!(found, ["the repository has no file 'raid/src/gone.rs'"]);
        assert_eq!(whats("x.rs", concat!("/", "/ design/architecture.md says why")).len(), 1);
        assert_eq!(whats("x.md", "all files that end with `.rs`"), [""; 0]);
    }
}
