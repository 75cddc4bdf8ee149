//! The shapes: Rust files with a comment `//@ key = "k"` in place of the attribute.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// The start of a comment that becomes the attribute.
const MARK: &str = "//@ ";

/// The start of a line that names the editions of a file. Without it, the file is in all editions.
const EDITIONS: &str = "//@editions ";

/// A file of shapes.
pub(crate) struct Source {
    /// The name of the file's module.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// The place of an attribute: a file and a line number.
pub(crate) type Place = (String, usize);

impl Source {
    pub(crate) fn read(folder: &Path) -> io::Result<Vec<Self>> {
        let mut sources = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let name = name.into_owned();
                let text = fs::read_to_string(&path)?;
                sources.push(Self { name, text });
            }
        }
        sources.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(sources)
    }

    /// Returns whether the file belongs to an edition.
    pub(crate) fn is_for(&self, edition: &str) -> bool {
        let named = self
            .text
            .lines()
            .find_map(|line| line.strip_prefix(EDITIONS));
        named.is_none_or(|named| named.split_whitespace().any(|named| named == edition))
    }

    /// Inserts the attribute at all places except those left out. Line numbers do not change.
    pub(crate) fn locked(&self, left_out: &BTreeSet<Place>) -> String {
        let mut locked = String::with_capacity(2 * self.text.len());
        for (index, line) in self.text.lines().enumerate() {
            let place = (self.name.clone(), index + 1);
            match split(line) {
                Some((before, options)) if !left_out.contains(&place) => {
                    let _ = write!(
                        locked,
                        "{before}#[::rlock_core::distributed_lock({options})]"
                    );
                }
                _ => locked.push_str(line),
            }
            locked.push('\n');
        }
        locked
    }

    /// Counts the places of the attribute.
    pub(crate) fn shapes(&self) -> usize {
        self.text
            .lines()
            .filter(|line| split(line).is_some())
            .count()
    }

    /// Finds the shape that a line belongs to, by the place of the attribute above it.
    pub(crate) fn place(&self, line: usize) -> Option<Place> {
        let above = self.text.lines().enumerate().take(line);
        let marked = above.filter(|(_, line)| split(line).is_some()).last()?;
        Some((self.name.clone(), marked.0 + 1))
    }

    /// Returns the name of the function below a place: `order::pay`, with its module in the file, if any.
    pub(crate) fn shape(&self, place: usize) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let name = |line: &str, word: &str| {
            let mut words = line.split(|c: char| !(c.is_alphanumeric() || c == '_'));
            words.find(|found| *found == word)?;
            words.find(|name| !name.is_empty()).map(str::to_owned)
        };
        let function = lines[place..].iter().find_map(|line| name(line, "fn"));
        // A module that is already closed does not contain the function.
        let at_margin = |line: &&&str| line.starts_with(|c: char| !c.is_whitespace());
        let around = lines[..place].iter().rev().find(at_margin);
        let module = around.filter(|line| line.starts_with("pub mod "));
        let module = module.and_then(|line| name(line, "mod"));
        let parts = [module, function];
        parts.into_iter().flatten().collect::<Vec<_>>().join("::")
    }

    pub(crate) fn line(&self, number: usize) -> &str {
        let line = number
            .checked_sub(1)
            .and_then(|index| self.text.lines().nth(index));
        line.unwrap_or_default().trim()
    }
}

/// Splits a line with a mark into the text before it and the options after it.
fn split(line: &str) -> Option<(&str, &str)> {
    let (before, options) = line.split_once(MARK)?;
    Some((before, options.trim_end()))
}
