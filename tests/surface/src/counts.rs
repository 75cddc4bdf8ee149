//! Counts what a user has to know of the surface.

use std::fmt::Write as _;

use crate::listing::{Line, Listing, Part};

/// rlock-proto has a surface of its own, which follows every change of the machine, so its whole would hide the rest.
const HEADING: &str = "\
The public surface of rlock-core with all features, written by `scripts/surface`. It has the items of rlock-proto and
rlock-macros that rlock-core exports. A trait's methods are listed at the trait only.

";

/// Returns the heading of the file, with a row for each number.
pub(crate) fn table(listing: &Listing) -> String {
    let mut kinds = [
        ("types", 0),
        ("traits", 0),
        ("functions", 0),
        ("macros", 0),
        ("constants", 0),
    ];
    for line in listing.root().filter(|line| line.part == Part::Item) {
        kinds[kind(&line.text)].1 += 1;
    }
    let modules = listing
        .modules()
        .filter(|path| path.matches("::").count() == 1);
    let mut kinds: Vec<(&str, usize)> = kinds.into();
    kinds.push(("modules", modules.count()));
    let names: usize = kinds.iter().map(|(_, count)| count).sum();
    let kinds = kinds.iter().filter(|(_, count)| *count > 0);
    let kinds: Vec<String> = kinds
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();

    let client = connecting(listing, "LockClient");
    let builder = connecting(listing, "LockClientBuilder");
    let mut text = HEADING.to_owned();
    let mut row = |count: usize, what: &str, of: &str| {
        let _ = writeln!(text, "{count:>4}  {what}{of}");
    };
    row(names, "names at the root of the crate: ", &kinds.join(", "));
    row(
        methods(listing, "LockClientBuilder").len(),
        "methods of LockClientBuilder",
        "",
    );
    row(
        client.len() + builder.len(),
        "ways to make a client: ",
        &[client, builder].concat().join(", "),
    );
    row(
        methods(listing, "LockGuard").len(),
        "methods of LockGuard",
        "",
    );
    for (returned, what) in [
        ("Token", "of them for a token: "),
        ("Fence", "of them for a fence: "),
    ] {
        let returning: Vec<&str> = methods(listing, "LockGuard")
            .into_iter()
            .filter(|line| {
                let (_, of) = line.text.split_once(" -> ").unwrap_or_default();
                of.contains(returned)
            })
            .filter_map(name)
            .collect();
        row(returning.len(), what, &returning.join(", "));
    }
    text
}

fn kind(text: &str) -> usize {
    let words = text.split(' ').filter(|word| !word.starts_with("#["));
    let mut kinds = words.filter_map(|word| match word {
        "struct" | "enum" | "union" | "type" => Some(0),
        "trait" => Some(1),
        "fn" => Some(2),
        "macro" | "attribute" => Some(3),
        "static" => Some(4),
        _ => None,
    });
    kinds.next().unwrap_or(4)
}

/// Returns the methods of the type, and of what it dereferences to.
fn methods<'a>(listing: &'a Listing, of: &str) -> Vec<&'a Line> {
    let lines = || listing.root();
    let deref = lines().filter(|line| line.name == of && line.part == Part::Traits);
    let target = deref.filter_map(|line| {
        let (_, target) = line.text.split_once("Deref<Target = ")?;
        target.split_once('>')
    });
    let types: Vec<&str> = target.map(|(target, _)| target).chain([of]).collect();
    lines()
        .filter(|line| line.part == Part::Member && line.text.contains("fn "))
        .filter(|line| types.contains(&&*line.name))
        .collect()
}

/// Returns the methods of the type that make a client: from nothing, or from a builder.
fn connecting(listing: &Listing, of: &str) -> Vec<String> {
    let makes_a_client = |line: &&Line| {
        let (call, returned) = line.text.split_once(" -> ").unwrap_or((&line.text, ""));
        match of {
            "LockClient" => returned.contains("Self") && !call.contains("self"),
            _ => returned
                .replace("LockClientBuilder", "")
                .contains("LockClient"),
        }
    };
    let made = methods(listing, of).into_iter().filter(makes_a_client);
    made.filter_map(name)
        .map(|name| format!("{of}::{name}"))
        .collect()
}

/// Returns the name of a method: `key` of `fn LockGuard::key(&self) -> &str`.
fn name(line: &Line) -> Option<&str> {
    let (path, _) = line.text.split_once('(')?;
    let (_, name) = path.rsplit_once("::")?;
    Some(name.split('<').next().unwrap_or(name))
}
