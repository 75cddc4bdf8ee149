//! Arranges the items of a surface: by module, then by name, with what belongs to a type below it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use crate::{
    documented::{Documented, Item},
    paths,
};

const ROOT: &str = "rlock_core";
const PROTO: &str = "rlock_proto";

/// The items of each module.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    modules: BTreeMap<String, BTreeSet<Line>>,
}

/// One item. The order of the fields is that of the lines.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    /// The name in the module: that of the item, or of the type to which the item belongs.
    name: String,
    part: Part,
    /// The path in the module, by which items of one part are sorted.
    path: String,
    text: String,
}

/// What a line shows of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// The item itself.
    Item,
    /// The traits that the type implements.
    Traits,
    /// A variant or a field.
    Data,
    /// A method, or an associated constant or type.
    Member,
}

/// Lists the items of one crate.
struct Lister<'a> {
    of: &'a Documented,
    impls: HashMap<u32, Implementation<'a>>,
    names: &'a Names,
}

/// Where the items of other crates and modules have their public names.
struct Names {
    /// The path in rlock-core of each item of rlock-proto that rlock-core exports, by its path there.
    exported: HashMap<String, String>,
    modules: BTreeSet<String>,
}

/// The head of an `impl` block of a trait, and the associated types.
struct Implementation<'a> {
    item: &'a Item,
    types: Vec<String>,
}

impl Listing {
    pub(crate) fn of(
        core: &Documented,
        proto: &Documented,
        options: &[String],
    ) -> Result<Self, String> {
        let modules = core.items.iter().filter_map(|item| module(&item.text));
        let mut names = Names {
            exported: HashMap::new(),
            modules: modules.map(str::to_owned).collect(),
        };
        let mut listing = Self::default();
        let mut add = |path: &str, part, text| {
            let (module, path) = names.split(path);
            listing.add(module, path, part, text);
        };
        let mut exported = HashMap::new();
        for item in &core.items {
            let Some(path) = item.text.strip_prefix("pub use ") else {
                continue;
            };
            let (_, name) = path.rsplit_once("::").unwrap_or(("", path));
            let origin = core.origin(item).unwrap_or_default();
            if origin.starts_with(PROTO) {
                exported.insert(origin, path.to_owned());
            } else if origin == "rlock_macros::distributed_lock" {
                add(
                    path,
                    Part::Item,
                    marked("attribute distributed_lock", core.feature(item)),
                );
                for option in options {
                    let text = format!("{name}({option})");
                    add(&format!("{path}::{option}"), Part::Member, text);
                }
            } else {
                return Err(format!(
                    "`{path}` is exported from `{origin}`, which only rlock-proto and rlock-macros may be"
                ));
            }
        }
        names.exported = exported;
        for of in [core, proto] {
            Lister::new(of, &names).list(&mut listing);
        }
        Ok(listing)
    }

    fn add(&mut self, module: &str, path: &str, part: Part, text: String) {
        // The type of another crate, which implements a trait for one of this crate.
        let module = if module.is_empty() { ROOT } else { module };
        let name = path.split("::").next().unwrap_or(path).to_owned();
        let lines = self.modules.entry(module.to_owned()).or_default();
        lines.insert(Line {
            name,
            part,
            path: path.to_owned(),
            text,
        });
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (module, lines) in &self.modules {
            writeln!(f, "mod {module}")?;
            for line in lines {
                let indent = if line.part == Part::Item { 2 } else { 4 };
                writeln!(f, "{:indent$}{}", "", line.text)?;
            }
            if self.modules.keys().next_back() != Some(module) {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

impl Names {
    /// Returns the public path of an item.
    fn public<'a>(&'a self, path: &'a str) -> String {
        let exported = self.exported.iter().find_map(|(origin, public)| {
            let rest = path.strip_prefix(origin.as_str())?;
            (rest.is_empty() || rest.starts_with("::")).then(|| format!("{public}{rest}"))
        });
        exported.unwrap_or_else(|| path.to_owned())
    }

    /// Splits a public path into the module, and the path in it.
    fn split<'a>(&'a self, path: &'a str) -> (&'a str, &'a str) {
        let splits = path.rmatch_indices("::");
        let mut parts = splits.map(|(at, _)| (&path[..at], &path[at + 2..]));
        parts
            .find(|(module, _)| self.modules.contains(*module))
            .unwrap_or(("", path))
    }

    /// Returns the text with paths as a reader of the module writes them.
    fn shortened(&self, text: &str) -> String {
        paths::each(text, |path| {
            let public = self.public(path);
            match self.split(&public) {
                ("", path) => paths::shortened(path),
                (_, path) => path.to_owned(),
            }
        })
    }
}

impl<'a> Lister<'a> {
    fn new(of: &'a Documented, names: &'a Names) -> Self {
        let heads = of.items.iter().filter(|item| item.text.starts_with("impl"));
        let mut impls: HashMap<u32, Implementation<'_>> = heads
            .map(|item| {
                let types = Vec::new();
                (item.id, Implementation { item, types })
            })
            .collect();
        for item in &of.items {
            let of_trait = item.parent.and_then(|parent| impls.get_mut(&parent));
            let (Some(of_trait), Some(text)) = (of_trait, item.text.strip_prefix("pub type "))
            else {
                continue;
            };
            let shown = text.split_once(" = ").and_then(|(path, of)| {
                let (_, name) = path.rsplit_once("::")?;
                Some(format!("{name} = {}", names.shortened(of)))
            });
            of_trait.types.extend(shown);
        }
        Self { of, impls, names }
    }

    fn list(&self, listing: &mut Listing) {
        let mut traits: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for item in &self.of.items {
            if let Some(implementation) = self.impls.get(&item.id) {
                let Some((of, on)) = item.text.split_once(" for ") else {
                    continue;
                };
                self.list_impl(implementation, of, on, &mut traits, listing);
            } else if self.is_of_trait(item) || module(&item.text).is_some() {
                // The line of the trait, or of the module, stands for it.
            } else if let Some(path) = subject(&item.text) {
                self.list_item(item, &self.names.public(path), listing);
            }
        }
        for (path, traits) in traits {
            let (module, path) = self.names.split(&path);
            let traits: Vec<String> = traits.into_iter().collect();
            let text = format!("impl {} for {path}", traits.join(" + "));
            listing.add(module, path, Part::Traits, text);
        }
    }

    fn list_item(&self, item: &Item, path: &str, listing: &mut Listing) {
        let (module, path) = self.names.split(path);
        if module.is_empty() || item.text.starts_with("pub use ") {
            return;
        }
        let text = item.text.replacen("pub ", "", 1);
        let words = text.strip_prefix("#[non_exhaustive] ").unwrap_or(&text);
        // Nothing stands before the path of a variant or a field.
        let is_data = words.starts_with(ROOT) || words.starts_with(PROTO);
        let part = match (path.contains("::"), is_data) {
            (false, _) => Part::Item,
            (true, true) => Part::Data,
            (true, false) => Part::Member,
        };
        // The name of a tuple struct does not depend on its private fields.
        let text = self.names.shortened(text.trim_end_matches("(_)"));
        listing.add(module, path, part, marked(&text, self.of.feature(item)));
    }

    fn list_impl(
        &self,
        implementation: &Implementation<'_>,
        of: &str,
        on: &str,
        traits: &mut BTreeMap<String, BTreeSet<String>>,
        listing: &mut Listing,
    ) {
        let (generics, name) = split_generics(of);
        let is_hidden = |path: &str| {
            let public = self.names.public(path);
            let is_own = public.starts_with(ROOT) || public.starts_with(PROTO);
            is_own && self.names.split(&public).1.contains("::")
        };
        let Some(on_path) = subject(on) else {
            // For all types that are something.
            if !is_hidden(name) {
                let (module, path) = self.names.split(name);
                let text = self.names.shortened(&format!("{of} for {on}"));
                listing.add(module, path, Part::Traits, text);
            }
            return;
        };
        let public = self.names.public(on_path);
        if name.ends_with("StructuralPartialEq")
            || is_hidden(name)
            || is_hidden(on_path)
            || self.names.split(&public).0.is_empty()
        {
            return;
        }
        let mut shown = self.names.shortened(name);
        if !implementation.types.is_empty() {
            let types = implementation.types.join(", ");
            shown = match shown.strip_suffix('>') {
                Some(start) => format!("{start}, {types}>"),
                None => format!("{shown}<{types}>"),
            };
        }
        let only_lifetimes = !generics.contains(|c: char| c.is_uppercase());
        if on == on_path && only_lifetimes {
            traits.entry(public).or_default().insert(shown);
        } else {
            let (module, path) = self.names.split(&public);
            let on = self.names.shortened(on);
            let text = format!("impl{generics} {shown} for {on}");
            listing.add(module, path, Part::Traits, text);
        }
    }

    /// Returns whether the item belongs to the `impl` block of a trait.
    fn is_of_trait(&self, item: &Item) -> bool {
        let parent = item.parent.and_then(|parent| self.impls.get(&parent));
        parent.is_some_and(|of| of.item.text.contains(" for "))
    }
}

fn module(text: &str) -> Option<&str> {
    text.strip_prefix("pub mod ")
}

/// Returns the path of the item that the text defines: the first one that has more than one name.
fn subject(text: &str) -> Option<&str> {
    let mut first = None;
    paths::each(text, |path| {
        if first.is_none() && path.contains("::") {
            first = text.find(path).map(|at| &text[at..at + path.len()]);
        }
        String::new()
    });
    first
}

/// Splits `impl<'de> Trait<'de>` into `<'de>` and `Trait<'de>`.
fn split_generics(head: &str) -> (&str, &str) {
    let head = head.strip_prefix("impl").unwrap_or(head);
    let mut depth = 0;
    for (at, c) in head.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 => return (&head[..at], &head[at + 1..]),
            _ => {}
        }
    }
    ("", head)
}

/// Adds the feature without which an item is missing.
fn marked(text: &str, feature: Option<&str>) -> String {
    match feature {
        Some(feature) => format!("{text} // feature {feature}"),
        None => text.to_owned(),
    }
}
