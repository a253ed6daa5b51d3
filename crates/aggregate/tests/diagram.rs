//! Compares the diagram in docs/consistency-point.md with the table of states.
//!
//! Fails: with both texts.

use aggregate::consistency_point::dot;

const DOCUMENT: &str = include_str!("../../../docs/consistency-point.md");

#[test]
fn the_diagram_is_that_of_the_code() {
    let block = DOCUMENT.split_once("```dot\n").and_then(|(_, rest)| rest.split_once("```"));
    let Some((diagram, _)) = block else { panic!("the document has no diagram") };
    assert_eq!(diagram, dot(), "the document on the left, the code on the right");
}
