//! The shapes: Rust files with a comment `//@ key = "k"` in place of the attribute.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// The start of a comment that becomes the attribute.
const MARK: &str = "//@ ";

/// The start of a line that names the editions of a file. Without it, the file is in all editions with `async`.
const EDITIONS: &str = "//@editions ";

/// A file of shapes.
pub(crate) struct Source {
    /// The name of the file's module.
    pub(crate) name: String,
    pub(crate) text: String,
}

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
        match named {
            Some(named) => named.split_whitespace().any(|named| named == edition),
            None => edition != "2015",
        }
    }

    /// Inserts the attribute at its places. Line numbers do not change.
    pub(crate) fn locked(&self) -> String {
        let mut locked = String::with_capacity(2 * self.text.len());
        for line in self.text.lines() {
            match split(line) {
                Some((before, options)) => {
                    let _ = write!(
                        locked,
                        "{before}#[::rlock_core::distributed_lock({options})]"
                    );
                }
                None => locked.push_str(line),
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

    /// Finds the line of the attribute above a line.
    pub(crate) fn place(&self, line: usize) -> Option<usize> {
        let above = self.text.lines().enumerate().take(line);
        let marked = above.filter(|(_, line)| split(line).is_some()).last()?;
        Some(marked.0 + 1)
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
