//! Placeholders: a parameter, the way from it to a value, and the format of that.

use std::iter::Peekable;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Index;

use super::format;

/// `<order.id>`: a parameter, and the way from it to the value.
#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    /// As written between the brackets.
    pub(crate) text: String,
    /// The character of the template at which `<` stands, counted from 1.
    pub(crate) position: usize,
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
    /// What stands after the colon of `<amount:08>`, for `format_args!`.
    pub(crate) format: Option<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Call(String),
    Index(u32),
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

    pub(super) fn parse(text: &str, position: usize) -> Result<Self, String> {
        let place = format!("`<{text}>` at character {position} of the key");
        if text.trim().is_empty() {
            return Err(format!(
                "{place} names nothing: write the name of a parameter, as in `<id>`, or `<<>>` for literal brackets"
            ));
        }
        let (path, format) = match text.split_once(':') {
            // A path of Rust, which the check of the name refuses.
            Some((_, after)) if after.starts_with(':') && !format::is_valid(after) => (text, None),
            Some((path, format)) => {
                let format = &format.replace("<<", "<").replace(">>", ">");
                format::check(format).map_err(|wrong| format!("{place}: {wrong}"))?;
                (path, Some(format.to_owned()))
            }
            None => (text, None),
        };
        let mut words = path.split('.').map(str::trim);
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
            format,
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
    if is_name(word) {
        Ok(())
    } else if is_name(&format!("r#{word}")) {
        Err(format!("{place}: `{word}` is a keyword, write `r#{word}`"))
    } else {
        Err(format!(
            "{place} is no placeholder: write a parameter, a field, a call without arguments or an index, \
             as in `<id>`, `<order.id>`, `<user.id()>`, `<pair.0>`"
        ))
    }
}

/// Whether this is an identifier and nothing besides. The parser passes over comments and white space.
fn is_name(word: &str) -> bool {
    let passed_over =
        |c: char| c == '/' || c.is_whitespace() || matches!(c, '\u{200e}' | '\u{200f}');
    !word.contains(passed_over) && syn::parse_str::<Ident>(word).is_ok()
}

fn identifier(name: &str, span: Span) -> Ident {
    match name.strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, span),
        None => Ident::new(name, span),
    }
}

/// Reads what stands between `<` and `>`. Answers nothing if the end is missing.
///
/// `<` and `>` as an alignment in a format are written twice, as everywhere in a template.
pub(super) fn inside(
    characters: &mut Peekable<impl Iterator<Item = (usize, char)>>,
) -> Option<String> {
    let mut text = String::new();
    loop {
        match characters.next()?.1 {
            bracket @ ('<' | '>')
                if format::may_be_aligned(&text)
                    && characters.next_if(|(_, next)| *next == bracket).is_some() =>
            {
                text.extend([bracket, bracket]);
            }
            '>' => return Some(text),
            '<' => return None,
            character => text.push(character),
        }
    }
}
