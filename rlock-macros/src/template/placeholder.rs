//! Parses a placeholder: a parameter or constant, the path from it to a value, and a format.

use std::iter::Peekable;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Index;

use super::format;

/// The parsed form of `<order.id>`: a parameter or a constant, and the steps from it to the value.
#[derive(Debug, PartialEq)]
pub(crate) struct Placeholder {
    /// As written between the brackets.
    pub(crate) text: String,
    /// The character of the template at which `<` stands, counted from 1.
    pub(crate) position: usize,
    /// A parameter, or the path of a constant.
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
    /// What stands after the colon of `<amount:08>`, for `format_args!`.
    pub(crate) format: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Field(String),
    Call(String),
    Index(u32),
    /// `[]`: one key for each element.
    Each,
}

impl Placeholder {
    /// Builds the placeholder's expression: `root.step.step()`, from the element if the placeholder iterates a list.
    ///
    /// The steps resolve where the template was written, the root wherever the parameter does.
    pub(crate) fn expression(&self, parameter: Option<&Ident>, template: Span) -> TokenStream {
        match self.list_and_rest() {
            Some((_, rest)) => expression(&element(template).into_token_stream(), rest, template),
            None => expression(&self.root(parameter, template), &self.steps, template),
        }
    }

    /// Builds the list that the placeholder iterates, if any.
    pub(crate) fn list(&self, parameter: Option<&Ident>, template: Span) -> Option<TokenStream> {
        let (steps, _) = self.list_and_rest()?;
        Some(expression(&self.root(parameter, template), steps, template))
    }

    /// Returns whether both placeholders iterate the same list.
    pub(super) fn shares_list(&self, other: &Self) -> bool {
        let list = |placeholder: &Self| Some(placeholder.list_and_rest()?.0.to_vec());
        self.root == other.root && list(self) == list(other)
    }

    /// Returns whether the placeholder iterates a list.
    pub(crate) fn is_list(&self) -> bool {
        self.list_and_rest().is_some()
    }

    /// Returns the steps to the list and the steps from its element.
    fn list_and_rest(&self) -> Option<(&[Step], &[Step])> {
        let each = self.steps.iter().position(|step| *step == Step::Each)?;
        Some((&self.steps[..each], &self.steps[each + 1..]))
    }

    fn root(&self, parameter: Option<&Ident>, template: Span) -> TokenStream {
        let Some(parameter) = parameter else {
            return self.constant(template);
        };
        let mut root = parameter.clone();
        root.set_span(root.span().located_at(template));
        root.into_token_stream()
    }

    /// Returns the path of a constant, or a variable, which resolves only where the template was written.
    fn constant(&self, template: Span) -> TokenStream {
        if !self.root.contains("::") {
            return identifier(&self.root, template).into_token_stream();
        }
        let site = located(template);
        let words = self.root.split("::").map(|word| identifier(word, site));
        quote_spanned!(site=> #(#words)::*)
    }

    /// Returns whether the root is written like a constant: `NAME`, or a path that ends so.
    pub(crate) fn may_be_constant(&self) -> bool {
        self.root.contains("::") || is_constant(&self.root)
    }

    pub(super) fn parse(text: &str, position: usize) -> Result<Self, String> {
        let place = format!("`<{text}>` at character {position} of the key");
        if text.trim().is_empty() {
            return Err(format!(
                "{place} names nothing: write the name of a parameter, as in `<id>`, or `<<>>` for literal brackets"
            ));
        }
        let (path, format) = format::split(text);
        let format = format.map(|format| format.replace("<<", "<").replace(">>", ">"));
        if let Some(format) = &format {
            format::check(format).map_err(|wrong| format!("{place}: {wrong}"))?;
        }
        let mut words = path.split('.').map(str::trim);
        let (root, is_list) = each(words.next().unwrap_or_default());
        check_root(root, &place)?;
        let mut steps = Vec::from_iter(is_list.then_some(Step::Each));
        for word in words {
            let (word, is_list) = each(word);
            steps.push(step(word, &place)?);
            steps.extend(is_list.then_some(Step::Each));
        }
        if steps.iter().filter(|step| **step == Step::Each).count() > 1 {
            return Err(format!(
                "{place}: a key goes through one list, not through a list of lists: take the keys as one list"
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            position,
            root: root.to_owned(),
            steps,
            format,
        })
    }
}

/// Returns the variable for an element of a list.
pub(crate) fn element(template: Span) -> Ident {
    Ident::new("__rlock_element", located(template))
}

/// Returns the span of an expansion. With the template's own span, the compiler would take an unknown name for one that the
/// user wrote, and would suggest replacing it, and so the whole template, by a similar name.
fn located(template: Span) -> Span {
    Span::mixed_site().located_at(template)
}

/// `root.step.step()`
fn expression(root: &TokenStream, steps: &[Step], template: Span) -> TokenStream {
    let located = located(template);
    let steps = steps.iter().map(|step| match step {
        Step::Field(name) => {
            let name = identifier(name, located);
            quote_spanned!(located=> .#name)
        }
        Step::Call(name) => {
            let name = identifier(name, located);
            quote_spanned!(located=> .#name())
        }
        Step::Index(index) => {
            let index = Index {
                index: *index,
                span: located,
            };
            quote_spanned!(located=> .#index)
        }
        Step::Each => TokenStream::new(),
    });
    quote_spanned!(located=> #root #(#steps)*)
}

fn step(word: &str, place: &str) -> Result<Step, String> {
    if let Some(name) = word.strip_suffix("()") {
        let name = name.trim_end();
        check_name(name, place)?;
        Ok(Step::Call(name.to_owned()))
    } else if word.starts_with(|first: char| first.is_ascii_digit()) {
        word.parse()
            .map(Step::Index)
            .map_err(|_| format!("{place}: `{word}` is not an index of a tuple"))
    } else {
        check_name(word, place)?;
        Ok(Step::Field(word.to_owned()))
    }
}

/// Removes a trailing `[]` from a word.
fn each(word: &str) -> (&str, bool) {
    match word.strip_suffix("[]") {
        Some(list) => (list.trim_end(), true),
        None => (word, false),
    }
}

/// Checks that the root is `self`, a name, or the path of a constant.
fn check_root(root: &str, place: &str) -> Result<(), String> {
    let Some((path, name)) = root.rsplit_once("::") else {
        return match root {
            "self" => Ok(()),
            root => check_name(root, place),
        };
    };
    let is_word = |word| matches!(word, "Self" | "self" | "super" | "crate") || is_name(word);
    if path.split("::").all(is_word) && is_name(name) && is_constant(name) {
        Ok(())
    } else {
        Err(format!(
            "{place}: a path in a key names a constant, as in `<Self::NAME>` or `<limits::REGION>`; for any other value \
             write a parameter, a field or a method, as in `<self.name()>`"
        ))
    }
}

/// Returns whether a name is written like a constant: in capitals.
fn is_constant(name: &str) -> bool {
    name.contains(char::is_uppercase) && !name.contains(char::is_lowercase)
}

fn check_name(word: &str, place: &str) -> Result<(), String> {
    if is_name(word) {
        Ok(())
    } else if is_name(&format!("r#{word}")) {
        Err(format!("{place}: `{word}` is a keyword, write `r#{word}`"))
    } else {
        Err(format!(
            "{place} is not a placeholder: write a parameter, a field, a call without arguments or an index, \
             as in `<id>`, `<order.id>`, `<user.id()>`, `<pair.0>`"
        ))
    }
}

/// Returns whether this is an identifier and nothing besides. The parser passes over comments, white space and a
/// byte order mark.
fn is_name(word: &str) -> bool {
    let passed_over = |c: char| {
        c == '/' || c.is_whitespace() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{feff}')
    };
    !word.contains(passed_over) && syn::parse_str::<Ident>(word).is_ok()
}

fn identifier(name: &str, span: Span) -> Ident {
    match name.strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, span),
        // A keyword in this crate's edition, but perhaps not in that of the template.
        None if name == "gen" => Ident::new_raw(name, span),
        None => Ident::new(name, span),
    }
}

/// Reads what stands between `<` and `>`. Returns `None` if the end is missing.
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
