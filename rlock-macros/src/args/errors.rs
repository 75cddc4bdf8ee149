//! Words the error for an option's value: what was written, and a right form of it.

use proc_macro2::{Ident, Punct, Span};
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::{Expr, ExprPath, Lit, LitStr};

use crate::errors::error;
use crate::options::LockOption;

pub(super) fn on_lost(text: &LitStr) -> syn::Result<bool> {
    match &*text.value() {
        "cancel" => Ok(false),
        "continue" => Ok(true),
        other => error(
            text.span(),
            format_args!(
                "`on_lost = {other:?}` is neither `\"cancel\"`, which stops the body when the lock is lost, \
                 nor `\"continue\"`, which lets it run on"
            ),
        ),
    }
}

pub(super) fn wrong_kind(option: LockOption, value: &Expr) -> syn::Error {
    let (name, takes, form) = (option.name(), option.takes(), option.form());
    syn::Error::new_spanned(
        value,
        format_args!("`{name}` takes {takes}; for example `{form}`"),
    )
}

/// Returns the error for an expression in place of a list of keys.
pub(super) fn no_list(option: LockOption, value: &Expr) -> syn::Error {
    let (name, takes, form) = (option.name(), option.takes(), option.form());
    syn::Error::new_spanned(
        value,
        format_args!(
            "`{name}` takes {takes}; for example `{form}`, or `key = \"order:<ids[]>\"` for a key of each \
             element of a list"
        ),
    )
}

/// Returns the error for a constant in place of a string literal.
pub(super) fn no_constant(option: LockOption, constant: &ExprPath) -> syn::Error {
    let name = option.name();
    let path = constant.to_token_stream().to_string().replace(' ', "");
    syn::Error::new_spanned(
        constant,
        format_args!(
            "`{name}` takes a string literal: constants have no value yet when the attribute is read; write \
             `{name} = \"<{path}>\"` for the value of one"
        ),
    )
}

/// Returns the error for a macro in place of a string literal.
pub(super) fn no_text_yet(option: LockOption, value: &Expr) -> syn::Error {
    let (name, form) = (option.name(), option.form());
    syn::Error::new_spanned(
        value,
        format_args!(
            "`{name}` takes a string literal: macros have no value yet when the attribute is read; write the text itself, \
             for example `{form}`"
        ),
    )
}

pub(super) fn given_twice(name: &Ident, option: LockOption) -> syn::Error {
    let way_out = match option {
        LockOption::Key => {
            ": several keys are one list, as in `key = [\"account:<from>\", \"account:<to>\"]`"
        }
        _ => "",
    };
    syn::Error::new(
        name.span(),
        format_args!("`{name}` is given twice{way_out}"),
    )
}

pub(super) fn no_keys(list: Span) -> syn::Error {
    syn::Error::new(
        list,
        "the list of keys is empty: write what is locked, as in `key = [\"order:<id>\"]`",
    )
}

/// Returns the error for `shared` without a key behind it.
pub(super) fn no_key(shared: &Ident) -> syn::Error {
    syn::Error::new(
        shared.span(),
        "`shared` stands before a key, as in `key = [shared \"tenant:<tenant>\", \"order:<id>\"]`",
    )
}

/// Returns the error for `shared ["a", "b"]`.
pub(super) fn shared_list(shared: &Ident) -> syn::Error {
    syn::Error::new(
        shared.span(),
        "`shared` stands before one key: write it before each key of the list, or share all keys with the option `shared`, \
         as in `key = [\"a\", \"b\"], shared`",
    )
}

/// Returns the error for another word than `shared` before a key.
pub(super) fn unknown_word(word: &Ident) -> syn::Error {
    syn::Error::new(
        word.span(),
        format_args!(
            "`{word}` cannot stand before a key: write `shared` for a shared lock, or nothing for an exclusive one"
        ),
    )
}

pub(super) fn no_comma_between_keys(input: ParseStream<'_>) -> syn::Error {
    input.error("expected `,` between two keys; `shared` stands before its key")
}

pub(super) fn no_value(name: &Ident, option: LockOption) -> syn::Error {
    syn::Error::new(
        name.span(),
        format_args!("`{name}` needs a value, for example `{}`", option.form()),
    )
}

/// Returns the error for a value that ends too early, as in `client = self.`, or is not an expression.
pub(super) fn no_expression(
    written: ParseStream<'_>,
    option: LockOption,
    error: &syn::Error,
) -> syn::Error {
    let (name, form) = (option.name(), option.form());
    let message =
        format_args!("the value of `{name}` is not an expression: {error}; for example `{form}`");
    match super::skip_to_comma(written) {
        Ok(written) => syn::Error::new_spanned(written, message),
        Err(_) => syn::Error::new(error.span(), message),
    }
}

/// Says that something else stands in the place of `=`, and shows the value behind the right sign.
pub(super) fn no_equals_sign(input: ParseStream<'_>, option: LockOption) -> syn::Error {
    let (name, form) = (option.name(), option.form());
    let right = match value_after_sign(&input.fork()) {
        Ok(value) => format!("{name} = {value}"),
        Err(_) => form.to_owned(),
    };
    input.error(format_args!("expected `=`: write `{right}`"))
}

fn value_after_sign(input: ParseStream<'_>) -> syn::Result<String> {
    while !input.peek(Lit) {
        input.parse::<Punct>()?;
    }
    Ok(input.parse::<Lit>()?.to_token_stream().to_string())
}

pub(super) fn no_option(input: ParseStream<'_>) -> syn::Error {
    if input.peek(LitStr) {
        input.error("a value needs the name of its option: write `key = …`")
    } else {
        input.error("expected an option, as in `key = \"order:<id>\"`")
    }
}

pub(super) fn no_comma(input: ParseStream<'_>) -> syn::Error {
    input.error("expected `,` between two options")
}
