//! Rules about which crate reaches which (ARCHITECTURE.md): imports run downwards only.
//!
//! Invariants: what counts is what is linked, so dependencies of tests (dev-dependencies) do not;
//! a crate reaches what its dependencies reach, and names only its dependencies. A crate that does
//! not exist yet breaks no rule.

use super::Finding;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How far a rule goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What a crate is linked with, through others as well.
    Linked,
    /// What a crate can name: its own dependencies.
    Named,
}

/// A rule: none of `from` may reach any of `to`.
struct Rule {
    from: &'static [&'static str],
    to: &'static [&'static str],
    extent: Extent,
    why: &'static str,
}

const STORAGE: &[&str] = &[
    "ondisk",
    "media",
    "raid",
    "allocator",
    "cowfs",
    "nvlog",
    "aggregate",
    "volume",
    "operations",
];

const RULES: [Rule; 6] = [
    Rule {
        from: &["nfs", "fuse", "smb", "iscsi", "onc-rpc", "file-service", "nblade"],
        to: &["cowfs"],
        extent: Extent::Linked,
        why: "front ends know files, not blocks",
    },
    Rule {
        from: &["affinity"],
        to: STORAGE,
        extent: Extent::Linked,
        why: "the scheduler knows no block",
    },
    Rule {
        from: &["inspect", "repair"],
        to: &["allocator", "operations"],
        extent: Extent::Linked,
        why: "an independent reader is the cross-check",
    },
    Rule {
        from: &["admin-api", "admin-server", "cli", "metrics-server", "telemetry"],
        to: &["cowfs", "aggregate", "volume", "operations"],
        extent: Extent::Linked,
        why: "management talks to the engine through the trait Administration only",
    },
    Rule {
        from: &["dblade", "nfs", "fuse", "inspect"],
        to: &["device-models", "model-fs", "simulator"],
        extent: Extent::Linked,
        why: "models are for tests and benches",
    },
    Rule {
        from: &["server", "admin-api", "admin-server", "cli"],
        to: &["ondisk", "media", "raid", "cowfs", "aggregate", "volume", "operations"],
        extent: Extent::Named,
        why: "what is above management asks management",
    },
];

/// The workspace's crates and what each is linked with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the output of `cargo metadata --no-deps`.
    pub(super) fn from_metadata(metadata: &serde_json::Value) -> Option<Self> {
        let packages = metadata.get("packages")?.as_array()?;
        let mut edges = BTreeMap::new();
        for package in packages {
            let mut linked = BTreeSet::new();
            for dependency in package.get("dependencies")?.as_array()? {
                if dependency.get("kind")?.as_str() != Some("dev") {
                    linked.insert(dependency.get("name")?.as_str()?.to_owned());
                }
            }
            edges.insert(package.get("name")?.as_str()?.to_owned(), linked);
        }
        Some(Self { edges })
    }

    /// What breaks a rule, with the way there.
    pub(super) fn check(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for rule in &RULES {
            for from in rule.from {
                for to in rule.to {
                    let Some(way) = self.way(from, to) else { continue };
                    if rule.extent == Extent::Named && way.len() > 2 {
                        continue;
                    }
                    findings.push(Finding {
                        path: format!("crates/{from}/Cargo.toml"),
                        line: 1,
                        what: format!("reaches {to}: {}; {}", way.join(" -> "), rule.why),
                        warning: false,
                    });
                }
            }
        }
        findings
    }

    /// The shortest way from one crate to another, both included.
    fn way<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut waiting = VecDeque::from([from]);
        while let Some(here) = waiting.pop_front() {
            if here == to {
                let mut way = vec![here];
                while let Some(before) = way.last().and_then(|step| came_from.get(step)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            for next in self.edges.get(here).into_iter().flatten() {
                if next != from && !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, here);
                    waiting.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A dependency's name and kind.
    type Edge = (&'static str, Option<&'static str>);

    fn graph(edges: &[(&str, &[Edge])]) -> Graph {
        let dependency = |(name, kind): &Edge| json!({"name": name, "kind": kind});
        let package = |(name, dependencies): &(&str, &[Edge])| {
            let dependencies: Vec<_> = dependencies.iter().map(dependency).collect();
            json!({"name": name, "dependencies": dependencies})
        };
        let packages: Vec<_> = edges.iter().map(package).collect();
        Graph::from_metadata(&json!({ "packages": packages })).unwrap()
    }

    fn whats(graph: &Graph) -> Vec<String> {
        graph.check().into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn a_forbidden_way_is_found_through_other_crates() {
        let graph = graph(&[
            ("nfs", &[("file-service", None), ("operations", None)]),
            ("operations", &[("volume", None)]),
            ("volume", &[("cowfs", None), ("nfs", None)]),
        ]);
        assert_eq!(
            whats(&graph),
            ["reaches cowfs: nfs -> operations -> volume -> cowfs; front ends know files, not \
              blocks"]
        );
    }

    #[test]
    fn every_rule_can_fail() {
        for rule in &RULES {
            let (from, to) = (rule.from[0], rule.to[0]);
            for kind in [None, Some("build")] {
                let found = whats(&graph(&[(from, &[(to, kind)])]));
                assert!(
                    found.iter().any(|what| what.ends_with(rule.why)),
                    "{from} {to}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_above_management_may_be_linked_with_what_it_may_not_name() {
        let linked =
            graph(&[("server", &[("management", None)]), ("management", &[("raid", None)])]);
        assert_eq!(whats(&linked), [""; 0]);
        let named = graph(&[
            ("server", &[("management", None), ("raid", None)]),
            ("management", &[("raid", None)]),
        ]);
        assert_eq!(
            whats(&named),
            ["reaches raid: server -> raid; what is above management asks management"]
        );
    }

    #[test]
    fn dependencies_of_tests_do_not_count() {
        assert_eq!(whats(&graph(&[("nfs", &[("cowfs", Some("dev"))])])), [""; 0]);
    }

    #[test]
    fn loops_end() {
        let looping = graph(&[("nfs", &[("fuse", None)]), ("fuse", &[("nfs", None)])]);
        assert_eq!(whats(&looping), [""; 0]);
    }

    #[test]
    fn metadata_that_makes_no_sense_is_refused() {
        assert_eq!(Graph::from_metadata(&json!({})), None);
        assert_eq!(Graph::from_metadata(&json!({"packages": [{"name": "nfs"}]})), None);
    }
}
