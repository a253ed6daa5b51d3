//! Tests of what counts as an import, and of the ratchets.

use super::*;

/// A crate of files with these modules ("" is the root) and texts.
fn walls(files: &[(&str, &str)]) -> Walls {
    let source = |(module, text): &(&str, &str)| {
        let names: Vec<String> =
            module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let path = if names.is_empty() {
            "src/lib.rs".to_owned()
        } else {
            format!("src/{}.rs", names.join("/"))
        };
        sources::parse(&syn::parse_file(text).unwrap(), path, names)
    };
    Walls::of(&files.iter().map(source).collect::<Vec<_>>())
}

#[test]
fn files_that_name_one_another_are_a_cycle() {
    let found = walls(&[
        ("", "mod a; mod b; mod c;"),
        ("a", "use crate::b::{B, C as D};"),
        ("b", "fn f() -> super::c::C { crate::c::new() }"),
        ("c", "fn g() { assert!(crate::a::is_good(1), \"{}\", 2); }"),
    ]);
    assert_eq!(found.cycle, ["src/a.rs", "src/b.rs", "src/c.rs"]);
    assert_eq!(found.files, 3);
}

#[test]
fn names_are_followed_to_the_file_that_they_come_from() {
    let found = walls(&[
        ("", "mod a; mod b; pub use b::inner::Thing; pub use units::Block;"),
        ("a", "use crate::{Thing, Block};"),
        ("b", "pub mod inner;"),
        ("b::inner", "use crate::a::X; pub struct Thing;"),
    ]);
    assert_eq!(found.cycle, ["src/a.rs", "src/b/inner.rs"]);
}

#[test]
fn a_parent_that_only_declares_its_modules_is_in_no_cycle() {
    let found =
        walls(&[("", "mod a;"), ("a", "mod b; pub(super) struct A;"), ("a::b", "use super::A;")]);
    assert_eq!(found.cycle, [""; 0]);
    let found = walls(&[
        ("", "mod a;"),
        ("a", "mod b; pub(super) struct A; fn f() { b::f() }"),
        ("a::b", "use super::A;"),
    ]);
    assert_eq!(found.cycle, ["src/a.rs", "src/a/b.rs"]);
}

#[test]
fn who_may_see_an_item_is_no_import() {
    let found = walls(&[
        ("", "mod a;"),
        ("a", "mod b; fn f() { b::f() }"),
        ("a::b", "pub(super) fn f() {} pub(in crate::a) fn g() {}"),
    ]);
    assert_eq!(found.cycle, [""; 0]);
}

#[test]
fn tests_do_not_count() {
    let found = walls(&[
        ("", "mod a; mod b;"),
        ("a", "use crate::b::B; #[cfg(test)] mod tests; #[cfg(test)] use crate::b::X;"),
        ("b", "#[cfg(all(test, not(loom)))] mod tests { use crate::a::A; }"),
    ]);
    assert_eq!(found.cycle, [""; 0]);
}

#[test]
fn a_module_in_braces_belongs_to_its_file() {
    let found = walls(&[
        ("", "mod a; mod b;"),
        ("a", "mod inside { use super::super::b::B; use super::here; } fn here() {}"),
        ("b", "use crate::a::A;"),
    ]);
    assert_eq!(found.cycle, ["src/a.rs", "src/b.rs"]);
}

#[test]
fn methods_of_a_type_are_counted_by_files() {
    let found = walls(&[
        ("", "mod a; mod b; mod c; pub use a::Inner;"),
        ("a", "struct Inner; impl Inner { fn f() {} } impl Inner {} impl Clone for Other {}"),
        ("b", "impl<'a, P> crate::Inner<'a, P> { fn h() {} } impl Scoped<calls::Create> {}"),
        ("c", "impl Scoped<calls::Remove> {}"),
    ]);
    let (name, files) = found.spread.unwrap();
    assert_eq!((name.as_str(), files.len()), ("Inner", 2));
}

#[test]
fn types_of_one_name_are_two() {
    let found = walls(&[
        ("", "mod a; mod b; mod c;"),
        ("a", "struct State; impl State {}"),
        ("b", "struct State; impl State {}"),
        ("c", "use super::b::State; impl State {}"),
    ]);
    let (name, files) = found.spread.unwrap();
    assert_eq!((name.as_str(), files.len()), ("State", 2));
    assert!(!files.contains("src/a.rs"));
}

#[test]
fn a_ratchet_that_grew_or_fell_is_found() {
    let measured = || {
        let cycle = ["src/a.rs", "src/b.rs"].map(str::to_owned).to_vec();
        BTreeMap::from([("raid".to_owned(), Walls { files: 3, cycle, spread: None })])
    };
    let whats = |noted: &str| -> Vec<String> {
        compare(noted, &measured()).into_iter().map(|finding| finding.to_string()).collect()
    };
    assert_eq!(whats("# crate cycle spread\nraid 2 0\n"), [""; 0]);
    assert!(whats("raid 1 0\n")[0].contains("2 files in the largest import cycle, 1 before"));
    assert!(whats("raid 3 0\n")[0].contains("write 2 for 3"));
    assert!(whats("raid 2 1\n")[0].contains("write 0 for 1"));
    assert!(whats("")[0].contains("no line for the crate 'raid'"));
    assert!(whats("raid 2 0\nraids 1 1\n")[0].contains("there is no crate 'raids'"));
    assert!(whats("raid two 2 0\n")[0].contains("two numbers"));
    assert!(whats("raid 2 0\nraid 2 0\n")[0].contains("a second line"));
}
