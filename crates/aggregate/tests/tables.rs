//! Compares docs/consistency-point.md with the tables of the code: the states, and what a freeze
//! and a commit do.
//!
//! Fails: with both texts.

use aggregate::commit::Commit;
use aggregate::freeze::Freeze;
use aggregate::{dot, steps};

const DOCUMENT: &str = include_str!("../../../docs/consistency-point.md");

/// The rows of the table below a heading.
fn rows_below(heading: &str) -> String {
    let section = DOCUMENT.split_once(heading).map(|(_, rest)| rest);
    let table = section.and_then(|section| section.split_once("| --- | --- | --- |\n"));
    let Some((_, rows)) = table else { panic!("the document has no table below '{heading}'") };
    rows.lines().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_diagram_is_that_of_the_code() {
    let block = DOCUMENT.split_once("```dot\n").and_then(|(_, rest)| rest.split_once("```"));
    let Some((diagram, _)) = block else { panic!("the document has no diagram") };
    assert_eq!(diagram, dot(), "the document on the left, the code on the right");
}

#[test]
fn the_steps_of_a_freeze_are_those_of_the_code() {
    let code = steps::table(&Freeze::STEPS);
    assert_eq!(rows_below("## What a freeze does"), code, "the document on the left");
}

#[test]
fn the_steps_of_a_commit_are_those_of_the_code() {
    let code = steps::table(&Commit::STEPS);
    assert_eq!(rows_below("## What a commit does"), code, "the document on the left");
}
