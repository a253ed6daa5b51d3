//! The source files of a crate, without those of its tests.
//!
//! Invariants: a file belongs to the module that `mod` declares it for, from `lib.rs` or `main.rs`
//! on. A module under `#[cfg(test)]`, and all below it, is left out. A module within braces
//! belongs to the file that it is in.
//!
//! Fails: with the path of the file that cannot be read or is no Rust.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// One source file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Its path below the crate's folder.
    pub(super) path: String,
    /// Its module: the names from the crate's root on; the root has none.
    pub(super) module: Vec<String>,
    /// The modules that it declares, those in its own braces left out.
    pub(super) children: BTreeSet<String>,
    /// All paths that it names, those of `use` among them, with the modules in braces that the
    /// path stands in taken off.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// What it has by another path: the name here, and the path.
    pub(super) uses: BTreeSet<(String, Vec<String>)>,
    /// The types that it has methods of, `impl` blocks without a trait: the name, and the path by
    /// which the type is named here.
    pub(super) methods_of: BTreeSet<(String, Vec<String>)>,
}

/// The files below the root `root` (`lib.rs` or `main.rs`) of the crate in `folder`; none if it has
/// no such root.
pub(super) fn of_root(folder: &Path, root: &str) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    let path = folder.join("src").join(root);
    if path.exists() {
        read(folder, &path, &folder.join("src"), Vec::new(), &mut sources)?;
    }
    Ok(sources)
}

/// Reads the file at `path`, whose modules' files are in `below`, and then those.
fn read(
    folder: &Path,
    path: &Path,
    below: &Path,
    module: Vec<String>,
    sources: &mut Vec<Source>,
) -> io::Result<()> {
    let told =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| told(&error))?;
    let file = syn::parse_file(&text).map_err(|error| told(&error))?;
    let relative = path.strip_prefix(folder).unwrap_or(path);
    let source = parse(&file, relative.to_string_lossy().into_owned(), module.clone());
    let children = source.children.clone();
    sources.push(source);
    for child in children {
        let mut module = module.clone();
        module.push(child.clone());
        let (path, below) = file_of_module(below, &child);
        read(folder, &path, &below, module, sources)?;
    }
    Ok(())
}

fn file_of_module(below: &Path, name: &str) -> (PathBuf, PathBuf) {
    let folder = below.join(name);
    let inside = folder.join("mod.rs");
    if inside.exists() { (inside, folder) } else { (below.join(format!("{name}.rs")), folder) }
}

pub(super) fn parse(file: &syn::File, path: String, module: Vec<String>) -> Source {
    let source = Source { path, module, ..Source::default() };
    let mut reader = Reader { source, braces: 0 };
    reader.visit_file(file);
    reader.source
}

struct Reader {
    source: Source,
    /// How many modules in braces are open.
    braces: usize,
}

impl Reader {
    /// Notes a path as it reads at the top of the file.
    fn note(&mut self, mut path: Vec<String>) -> Vec<String> {
        if path.first().is_some_and(|first| first == "self") {
            path.remove(0);
        }
        for _ in 0..self.braces {
            if path.first().is_some_and(|first| first == "super") {
                path.remove(0);
            }
        }
        if !path.is_empty() {
            self.source.paths.insert(path.clone());
        }
        path
    }

    fn note_use(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| {
            let mut path = before.to_vec();
            if name != "self" || path.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            syn::UseTree::Path(tree) => self.note_use(&tree.tree, &with(&tree.ident)),
            syn::UseTree::Name(tree) => {
                let path = self.note(with(&tree.ident));
                if let Some(name) = path.last().cloned() {
                    self.source.uses.insert((name, path));
                }
            }
            syn::UseTree::Rename(tree) => {
                let path = self.note(with(&tree.ident));
                self.source.uses.insert((tree.rename.to_string(), path));
            }
            syn::UseTree::Glob(_) => drop(self.note(before.to_vec())),
            syn::UseTree::Group(tree) => {
                tree.items.iter().for_each(|tree| self.note_use(tree, before));
            }
        }
    }
}

/// A type's name, with the types that it is given: `Scoped<Create>` and `Scoped<Remove>` are two
/// types. One letter is a parameter of the `impl` and names no type.
fn name_of(segment: &syn::PathSegment) -> String {
    let mut name = segment.ident.to_string();
    if let syn::PathArguments::AngleBracketed(given) = &segment.arguments {
        for argument in &given.args {
            if let syn::GenericArgument::Type(syn::Type::Path(of)) = argument
                && let Some(last) = of.path.segments.last()
                && last.ident.to_string().len() > 1
            {
                name.push_str(&format!("<{}>", name_of(last)));
            }
        }
    }
    name
}

/// Whether an item is there in builds for tests only.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg") && (words == "test" || words.starts_with("all (test"))
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_of_tests(&item.attrs) {
            return;
        }
        if item.content.is_none() {
            self.source.children.insert(item.ident.to_string());
            return;
        }
        self.braces += 1;
        visit::visit_item_mod(self, item);
        self.braces -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_of_tests(&item.attrs) {
            self.note_use(&item.tree, &[]);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_struct(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_const(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if is_of_tests(&item.attrs) {
            return;
        }
        if let (None, syn::Type::Path(of)) = (&item.trait_, item.self_ty.as_ref())
            && let Some(last) = of.path.segments.last()
        {
            let path = of.path.segments.iter().map(|segment| segment.ident.to_string());
            self.source.methods_of.insert((name_of(last), path.collect()));
        }
        visit::visit_item_impl(self, item);
    }

    /// Who may see an item is no import: `pub(super)` takes nothing from the parent.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if path.leading_colon.is_none() {
            self.note(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        // Most macros are called with expressions between commas; other calls count for nothing.
        let parser = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(expressions) = item.parse_body_with(parser) {
            expressions.iter().for_each(|expression| self.visit_expr(expression));
        }
        self.visit_path(&item.path);
    }
}
