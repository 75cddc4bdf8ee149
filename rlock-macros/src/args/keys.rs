//! Reads the option `key`: one template or a list, each with or without the word `shared` before it.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::{End, ParseStream};
use syn::{Expr, LitStr, Token, bracketed, token};

use super::{errors, peel, string};
use crate::options::LockOption;
use crate::template::Template;

/// A key, or the keys of a list of values.
pub(crate) struct Key {
    pub(crate) template: Template,
    /// Whether this key is shared, whatever the mode of the others.
    pub(crate) shared: bool,
}

impl Key {
    pub(super) fn parse(written: &Written) -> syn::Result<Self> {
        Ok(Self {
            template: Template::parse(&written.literal)?,
            shared: written.shared.is_some(),
        })
    }
}

/// A key as written.
pub(super) struct Written {
    pub(super) shared: Option<Ident>,
    pub(super) literal: LitStr,
}

/// A key that may be no literal.
type Element = (Option<Ident>, Expr);

/// Reads the keys. Rust has no expression with a word before a literal, so this reads the list itself.
pub(super) fn read(input: ParseStream<'_>) -> syn::Result<Vec<Written>> {
    if is_list(input) {
        return list(input);
    }
    let (shared, value) = element(input, &input.fork())?;
    match (shared, value) {
        // A list in parentheses.
        (None, Expr::Array(array)) => {
            let elements = array.elems.iter();
            let elements = elements.map(|value| (None, peel(value).clone()));
            written(array.bracket_token, elements.collect())
        }
        (shared, value) => {
            let literal = literal(&value)?;
            Ok(vec![Written { shared, literal }])
        }
    }
}

/// Returns whether brackets are the whole value, and not the start of an expression such as `[…].iter()`.
fn is_list(input: ParseStream<'_>) -> bool {
    input.peek(token::Bracket)
        && (input.peek2(End) || input.peek2(Token![,]) || input.peek2(syn::Ident))
}

fn list(input: ParseStream<'_>) -> syn::Result<Vec<Written>> {
    let value = input.fork();
    let content;
    let brackets = bracketed!(content in input);
    let mut elements = Vec::new();
    while !content.is_empty() {
        elements.push(element(&content, &value)?);
        if !content.is_empty() && content.parse::<Token![,]>().is_err() {
            return Err(errors::no_comma_between_keys(&content));
        }
    }
    written(brackets, elements)
}

fn written(brackets: token::Bracket, elements: Vec<Element>) -> syn::Result<Vec<Written>> {
    if elements.is_empty() {
        return Err(errors::no_keys(brackets.span.join()));
    }
    let written = |(shared, value): Element| {
        let literal = literal(&value)?;
        Ok(Written { shared, literal })
    };
    elements.into_iter().map(written).collect()
}

/// Reads one key. `value` is the start of the option's whole value.
fn element(input: ParseStream<'_>, value: ParseStream<'_>) -> syn::Result<Element> {
    let shared = shared(input)?;
    let key: Expr = input
        .parse()
        .map_err(|error| errors::no_expression(value, LockOption::Key, &error))?;
    Ok((shared, peel(&key).clone()))
}

/// Reads the word `shared` before a key.
fn shared(input: ParseStream<'_>) -> syn::Result<Option<Ident>> {
    let ahead = input.fork();
    let Ok(word) = ahead.call(Ident::parse_any) else {
        return Ok(None);
    };
    if word != "shared" {
        return if ahead.peek(LitStr) {
            Err(errors::unknown_word(&word))
        } else {
            Ok(None)
        };
    }
    // A constant, a field or a macro of this name has an error of its own.
    if ahead.peek(Token![::]) || ahead.peek(Token![.]) || ahead.peek(Token![!]) {
        return Ok(None);
    }
    if ahead.is_empty() || ahead.peek(Token![,]) {
        return Err(errors::no_key(&word));
    }
    if ahead.peek(token::Bracket) {
        return Err(errors::shared_list(&word));
    }
    input.call(Ident::parse_any).map(Some)
}

fn literal(value: &Expr) -> syn::Result<LitStr> {
    let option = LockOption::Key;
    match value {
        Expr::Path(constant) => Err(errors::no_constant(option, constant)),
        Expr::Macro(_) => Err(errors::no_text_yet(option, value)),
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Reference(_) => {
            Err(errors::no_list(option, value))
        }
        value => string(value)
            .cloned()
            .ok_or_else(|| errors::wrong_kind(option, value)),
    }
}
