//! The largest group of nodes that all reach one another (Tarjan's strongly connected components).
//!
//! Invariants: a node alone is no cycle. Of groups of the same size the first in order counts, so
//! that the answer is the same each time.

use std::collections::{BTreeMap, BTreeSet};

type Edges<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The nodes of the largest cycle, in order; none if there is no cycle.
pub(super) fn largest<'a>(edges: &Edges<'a>) -> Vec<&'a str> {
    let mut largest: Vec<&str> = Vec::new();
    for group in components(edges) {
        if group.len() > 1 && group.len() > largest.len() {
            largest = group;
        }
    }
    largest.sort_unstable();
    largest
}

fn components<'a>(edges: &Edges<'a>) -> Vec<Vec<&'a str>> {
    let mut search = Search::default();
    for node in edges.keys() {
        if !search.index.contains_key(node) {
            search.visit(edges, node);
        }
    }
    search.found
}

#[derive(Default)]
struct Search<'a> {
    index: BTreeMap<&'a str, usize>,
    low: BTreeMap<&'a str, usize>,
    stack: Vec<&'a str>,
    found: Vec<Vec<&'a str>>,
}

impl<'a> Search<'a> {
    /// Visits a node and all that it reaches; gives the lowest index that any of them reaches.
    fn visit(&mut self, edges: &Edges<'a>, node: &'a str) -> usize {
        let index = self.index.len();
        self.index.insert(node, index);
        self.low.insert(node, index);
        self.stack.push(node);
        for next in edges.get(node).into_iter().flatten() {
            let reached = match self.index.get(next) {
                None => self.visit(edges, next),
                Some(reached) if self.stack.contains(next) => *reached,
                Some(_) => continue,
            };
            let low = self.low.entry(node).or_insert(index);
            *low = reached.min(*low);
        }
        let low = self.low.get(node).copied().unwrap_or(index);
        if low == index {
            let place = self.stack.iter().position(|other| *other == node).unwrap_or(0);
            self.found.push(self.stack.split_off(place));
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(edges: &[(&'static str, &[&'static str])]) -> Vec<&'static str> {
        largest(&edges.iter().map(|(from, to)| (*from, to.iter().copied().collect())).collect())
    }

    #[test]
    fn a_chain_is_no_cycle() {
        assert_eq!(cycle(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]), [""; 0]);
        assert_eq!(cycle(&[("a", &["a"])]), [""; 0]);
    }

    #[test]
    fn the_largest_of_several_counts() {
        let edges: &[(&str, &[&str])] = &[
            ("a", &["b"]),
            ("b", &["a", "c"]),
            ("c", &["d"]),
            ("d", &["e", "f"]),
            ("e", &["c"]),
            ("f", &[]),
        ];
        assert_eq!(cycle(edges), ["c", "d", "e"]);
    }

    #[test]
    fn cycles_that_share_a_node_are_one() {
        assert_eq!(cycle(&[("a", &["b", "c"]), ("b", &["a"]), ("c", &["a"])]), ["a", "b", "c"]);
    }
}
