//! Parses key templates: literal text, and placeholders in angle brackets.

use syn::LitStr;

mod format;
mod placeholder;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;

pub(crate) use placeholder::{Placeholder, element};

/// The longest key that a lock can have, in bytes.
const LONGEST: usize = 1024;

/// A template and the literal that it was written as.
pub(crate) struct Template {
    pub(crate) literal: LitStr,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Value(Placeholder),
}

impl Template {
    pub(crate) fn parse(literal: &LitStr) -> syn::Result<Self> {
        match parse(&literal.value()) {
            Ok(parts) => Ok(Self {
                literal: literal.clone(),
                parts,
            }),
            Err(message) => Err(syn::Error::new(literal.span(), message)),
        }
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        placeholders(&self.parts)
    }

    /// Finds a placeholder that iterates a list. Each element has a key of its own.
    pub(crate) fn list(&self) -> Option<&Placeholder> {
        self.placeholders()
            .find(|placeholder| placeholder.is_list())
    }
}

fn placeholders(parts: &[Part]) -> impl Iterator<Item = &Placeholder> {
    parts.iter().filter_map(|part| match part {
        Part::Value(placeholder) => Some(placeholder),
        Part::Text(_) => None,
    })
}

/// Splits a template, or returns what is wrong with it and at which character.
fn parse(template: &str) -> Result<Vec<Part>, String> {
    if template.is_empty() {
        return Err(
            "the key is empty: write what is locked, as in `key = \"order:<id>\"`".to_owned(),
        );
    }
    let mut scan = Scan::default();
    let mut characters = template
        .chars()
        .enumerate()
        .map(|(index, character)| (index + 1, character))
        .peekable();
    while let Some((position, character)) = characters.next() {
        match character {
            '<' | '>' if characters.next_if(|(_, next)| *next == character).is_some() => {
                scan.literal(character, position);
            }
            '<' => {
                let Some(text) = placeholder::inside(&mut characters) else {
                    return Err(format!(
                        "`<` at character {position} of the key is never closed: \
                         close the placeholder with `>`, or write `<<` for a literal `<`"
                    ));
                };
                scan.placeholder(Placeholder::parse(&text, position)?)?;
            }
            '>' => {
                return Err(format!(
                    "`>` at character {position} of the key closes no placeholder: write `>>` for a literal `>`"
                ));
            }
            _ => scan.literal(character, position),
        }
    }
    scan.finish()
}

/// What has been read of a template so far.
#[derive(Default)]
struct Scan {
    parts: Vec<Part>,
    literal_bytes: usize,
    /// The position of each brace.
    braces: Vec<(usize, char)>,
}

impl Scan {
    fn literal(&mut self, character: char, position: usize) {
        if let '{' | '}' = character {
            self.braces.push((position, character));
        }
        self.literal_bytes += character.len_utf8();
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(character),
            _ => self.parts.push(Part::Text(character.into())),
        }
    }

    fn placeholder(&mut self, placeholder: Placeholder) -> Result<(), String> {
        if let Some(previous) = self.previous_without_separator() {
            return Err(format!(
                "`<{0}>` and `<{1}>` at character {2} of the key run into each other, so that different values \
                 would share a key: put `:` between them, as in `<{0}>:<{1}>`",
                previous.text, placeholder.text, placeholder.position
            ));
        }
        if placeholder.is_list()
            && let Some(other) = placeholders(&self.parts).find(|other| other.is_list())
            && !other.shares_list(&placeholder)
        {
            return Err(format!(
                "`<{}>` and `<{}>` at character {} of the key go through two lists, and a key goes through one: take a \
                 list of pairs, as in `<pairs[].0>:<pairs[].1>`",
                other.text, placeholder.text, placeholder.position
            ));
        }
        self.parts.push(Part::Value(placeholder));
        Ok(())
    }

    /// Finds the placeholder before, unless the text since holds a character that no value can: `:`, `{` or `}`.
    fn previous_without_separator(&self) -> Option<&Placeholder> {
        match &*self.parts {
            [.., Part::Value(previous)] => Some(previous),
            [.., Part::Value(previous), Part::Text(text)] if !text.contains([':', '{', '}']) => {
                Some(previous)
            }
            _ => None,
        }
    }

    fn finish(self) -> Result<Vec<Part>, String> {
        check_hash_tag(&self.braces)?;
        if self.literal_bytes > LONGEST {
            return Err(format!(
                "the key has {} bytes, the longest may have {LONGEST}",
                self.literal_bytes
            ));
        }
        Ok(self.parts)
    }
}

/// Checks the braces, which mark a Redis Cluster hash tag. The error names the first one that is wrong.
fn check_hash_tag(braces: &[(usize, char)]) -> Result<(), String> {
    let (position, brace) = match braces {
        [] => return Ok(()),
        [(open, '{'), (close, '}'), more @ ..] if close - open > 1 => match more.first() {
            None => return Ok(()),
            Some(wrong) => wrong,
        },
        [(_, '{'), wrong, ..] | [wrong, ..] => wrong,
    };
    Err(format!(
        "`{brace}` at character {position} of the key: braces mark the Redis Cluster hash tag, one pair at most, \
         closed, not nested and not empty, as in `{{order:<id>}}:items`"
    ))
}

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
