//! Reads the arguments of the macro `key!`, which renders a key for code without the attribute.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, LitStr, Path, Token};

use crate::args::{peel, string};
use crate::expand::texts;
use crate::template::{Part, Template};

const SEVERAL: &str = "for several keys, write one `key!` for each, as in \
                       `lock_all([key!(\"account:<from>\"), key!(\"account:<to>\")])`, or go through a list, as in \
                       `lock_all(key!(\"item:<ids[]>\"))`";

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let read = |input: ParseStream<'_>| {
        let krate = input.parse()?;
        input.parse::<Token![;]>()?;
        Ok((krate, literal(input)?))
    };
    let expanded = read.parse2(input).and_then(|(krate, literal)| {
        let krate: Path = krate;
        let template = Template::parse(&literal)?;
        has_placeholders(&template)?;
        Ok(texts(&template, &krate))
    });
    expanded.unwrap_or_else(syn::Error::into_compile_error)
}

/// Reads the template, and refuses everything else.
fn literal(input: ParseStream<'_>) -> syn::Result<LitStr> {
    if input.is_empty() {
        let message = "the template is missing: write what is locked, as in `key!(\"order:<id>\")`";
        return Err(syn::Error::new(Span::call_site(), message));
    }
    let written = input.fork();
    let value = match input.parse::<Expr>() {
        Ok(value) if input.is_empty() || input.peek(Token![,]) => value,
        _ => {
            let written: TokenStream = written.parse()?;
            let message = "`key!` takes a string literal, as in `key!(\"order:<id>\")`";
            return Err(syn::Error::new_spanned(written, message));
        }
    };
    let value = peel(&value);
    let Some(literal) = string(value) else {
        return Err(no_literal(value));
    };
    input.parse::<Option<Token![,]>>()?;
    if input.is_empty() {
        return Ok(literal.clone());
    }
    let more = if input.peek(LitStr) {
        SEVERAL
    } else {
        "a placeholder names a variable of the scope, as in `let id = order.id(); key!(\"order:<id>\")`"
    };
    Err(input.error(format_args!(
        "`key!` takes nothing after its template: {more}"
    )))
}

fn no_literal(value: &Expr) -> syn::Error {
    let way_out = match value {
        Expr::Path(path) => {
            let path = path.to_token_stream().to_string().replace(' ', "");
            format!("write `key!(\"<{path}>\")` for the value of `{path}`")
        }
        Expr::Macro(_) => {
            "macros have no value yet when the template is read; write the text itself, as in `key!(\"order:<id>\")`"
                .to_owned()
        }
        Expr::Array(_) => SEVERAL.to_owned(),
        _ => "for example `key!(\"order:<id>\")`".to_owned(),
    };
    syn::Error::new_spanned(
        value,
        format_args!("`key!` takes a string literal: {way_out}"),
    )
}

/// Refuses a template without placeholders, in which braces are probably those of `format!`: every call would lock the
/// same key.
fn has_placeholders(template: &Template) -> syn::Result<()> {
    if template.placeholders().next().is_some() {
        return Ok(());
    }
    let text = template.parts.iter().map(|part| match part {
        Part::Text(text) => &**text,
        Part::Value(_) => "",
    });
    let text: String = text.collect();
    let way_out = match text
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
    {
        Some((tag, _)) => format!(
            "`{{{tag}}}` is fixed text, a Redis Cluster hash tag: write `<{tag}>` for the value of a variable, or \
             `{{<{tag}>}}` for a hash tag of it"
        ),
        None => format!("write `<…>` around each value, or pass the text itself, {text:?}"),
    };
    Err(syn::Error::new(
        template.literal.span(),
        format_args!("the template has no placeholder: {way_out}"),
    ))
}
