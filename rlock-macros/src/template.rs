//! Key templates: literal text, and placeholders in angle brackets.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::{Index, LitStr};

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

/// `<order.id>`: a parameter, and the way from it to the value.
#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    /// As written between the brackets.
    pub(crate) text: String,
    /// The character of the template at which `<` stands, counted from 1.
    pub(crate) position: usize,
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Call(String),
    Index(u32),
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
        self.parts.iter().filter_map(|part| match part {
            Part::Value(placeholder) => Some(placeholder),
            Part::Text(_) => None,
        })
    }
}

impl Placeholder {
    /// Builds the expression that the placeholder stands for: `root.step.step()`.
    ///
    /// The steps resolve where the template was written, the root wherever the parameter does.
    pub(crate) fn expression(&self, root: &Ident, template: Span) -> TokenStream {
        let located = Span::mixed_site().located_at(template);
        let mut root = root.clone();
        root.set_span(root.span().located_at(template));
        let steps = self.steps.iter().map(|step| match step {
            Step::Field(name) => {
                let name = identifier(name, template);
                quote_spanned!(located=> .#name)
            }
            Step::Call(name) => {
                let name = identifier(name, template);
                quote_spanned!(located=> .#name())
            }
            Step::Index(index) => {
                let index = Index {
                    index: *index,
                    span: located,
                };
                quote_spanned!(located=> .#index)
            }
        });
        quote_spanned!(located=> #root #(#steps)*)
    }

    fn parse(text: &str, position: usize) -> Result<Self, String> {
        let place = format!("`<{text}>` at character {position} of the key");
        if text.trim().is_empty() {
            return Err(format!(
                "{place} names nothing: write the name of a parameter, as in `<id>`, or `<<>>` for literal brackets"
            ));
        }
        if text.contains(':') && !text.contains("::") {
            return Err(format!(
                "{place}: a placeholder takes no format, its value is rendered by `Display`"
            ));
        }
        let mut words = text.split('.').map(str::trim);
        let root = words.next().unwrap_or_default();
        if root != "self" {
            check_name(root, &place)?;
        }
        let steps = words
            .map(|word| step(word, &place))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            position,
            root: root.to_owned(),
            steps,
        })
    }
}

fn step(word: &str, place: &str) -> Result<Step, String> {
    if let Some(name) = word.strip_suffix("()") {
        let name = name.trim_end();
        check_name(name, place)?;
        Ok(Step::Call(name.to_owned()))
    } else if word.starts_with(|first: char| first.is_ascii_digit()) {
        word.parse()
            .map(Step::Index)
            .map_err(|_| format!("{place}: `{word}` is no index of a tuple"))
    } else {
        check_name(word, place)?;
        Ok(Step::Field(word.to_owned()))
    }
}

fn check_name(word: &str, place: &str) -> Result<(), String> {
    if syn::parse_str::<Ident>(word).is_ok() {
        Ok(())
    } else if syn::parse_str::<Ident>(&format!("r#{word}")).is_ok() {
        Err(format!("{place}: `{word}` is a keyword, write `r#{word}`"))
    } else {
        Err(format!(
            "{place} is no placeholder: write a parameter, a field, a call without arguments or an index, \
             as in `<id>`, `<order.id>`, `<user.id()>`, `<pair.0>`"
        ))
    }
}

fn identifier(name: &str, span: Span) -> Ident {
    match name.strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, span),
        None => Ident::new(name, span),
    }
}

/// Splits a template, or says what is wrong with it and at which character.
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
                scan.literal(character, position)?;
            }
            '<' => {
                let mut text = String::new();
                loop {
                    match characters.next() {
                        Some((_, '>')) => break,
                        Some((_, inside)) if inside != '<' => text.push(inside),
                        _ => {
                            return Err(format!(
                                "`<` at character {position} of the key is never closed: \
                                 close the placeholder with `>`, or write `<<` for a literal `<`"
                            ));
                        }
                    }
                }
                scan.placeholder(Placeholder::parse(&text, position)?)?;
            }
            '>' => {
                return Err(format!(
                    "`>` at character {position} of the key closes no placeholder: write `>>` for a literal `>`"
                ));
            }
            _ => scan.literal(character, position)?,
        }
    }
    scan.finish()
}

/// What has been read of a template so far.
#[derive(Default)]
struct Scan {
    parts: Vec<Part>,
    literal_bytes: usize,
    tag: Tag,
}

/// The braces that mark a Redis Cluster hash tag.
#[derive(Default, Clone, Copy)]
enum Tag {
    #[default]
    None,
    Open {
        position: usize,
        empty: bool,
    },
    Closed,
}

impl Scan {
    fn literal(&mut self, character: char, position: usize) -> Result<(), String> {
        self.tag = match (character, self.tag) {
            ('{', Tag::None) => Tag::Open {
                position,
                empty: true,
            },
            ('{', _) | ('}', Tag::None | Tag::Closed | Tag::Open { empty: true, .. }) => {
                return Err(tag_error(character, position));
            }
            ('}', Tag::Open { .. }) => Tag::Closed,
            (_, Tag::Open { position, .. }) => Tag::Open {
                position,
                empty: false,
            },
            (_, tag) => tag,
        };
        self.literal_bytes += character.len_utf8();
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push(character),
            _ => self.parts.push(Part::Text(character.into())),
        }
        Ok(())
    }

    fn placeholder(&mut self, placeholder: Placeholder) -> Result<(), String> {
        if let Some(previous) = self.previous_without_separator() {
            return Err(format!(
                "`<{0}>` and `<{1}>` at character {2} of the key run into each other, so that different values \
                 would share a key: put `:` between them, as in `<{0}>:<{1}>`",
                previous.text, placeholder.text, placeholder.position
            ));
        }
        if let Tag::Open { empty, .. } = &mut self.tag {
            *empty = false;
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
        if let Tag::Open { position, .. } = self.tag {
            return Err(tag_error('{', position));
        }
        if self.literal_bytes > LONGEST {
            return Err(format!(
                "the key has {} bytes, the longest may have {LONGEST}",
                self.literal_bytes
            ));
        }
        Ok(self.parts)
    }
}

fn tag_error(brace: char, position: usize) -> String {
    format!(
        "`{brace}` at character {position} of the key: braces mark the Redis Cluster hash tag, one pair at most, \
         closed, not nested and not empty, as in `{{order:<id>}}:items`"
    )
}

#[cfg(test)]
#[path = "template/tests.rs"]
mod tests;
