//! Every rejection: what was written, and the right form of it.

use std::fmt::Write;

use proc_macro2::{Ident, Punct, Span};
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::{Expr, ExprPath, Lit, LitStr};

use crate::args::{Args, Known, OPTIONS};
use crate::duration::Time;
use crate::errors::Errors;
use crate::nearest::nearest;

mod function;
mod item;

pub(crate) use function::function;
pub(crate) use item::{no_body, no_function};

fn error<T>(at: Span, message: impl std::fmt::Display) -> syn::Result<T> {
    Err(syn::Error::new(at, message))
}

/// Checks what the options ask of each other.
pub(crate) fn options(args: &Args, errors: &mut Errors) {
    errors.collect(key_given(args));
    errors.collect(hold_times(args));
}

fn key_given(args: &Args) -> syn::Result<()> {
    if args.named.contains(&"key") {
        return Ok(());
    }
    let message = "no `key` says what to lock: write `#[distributed_lock(key = \"order:<id>\")]`";
    error(Span::call_site(), message)
}

fn hold_times(args: &Args) -> syn::Result<()> {
    let (Some(Time::Literal(max_hold, most)), Some(Time::Literal(at_least, least))) =
        (&args.max_hold, &args.at_least)
    else {
        return Ok(());
    };
    if max_hold >= at_least {
        return Ok(());
    }
    let (written, other) = (most.value(), least.value());
    let message = format_args!(
        "`max_hold = {written:?}` is shorter than `at_least = {other:?}`: give the longer time to `max_hold`"
    );
    error(most.span(), message)
}

/// Finds the option of a name.
pub(crate) fn option_name(name: &Ident) -> syn::Result<&'static Known> {
    let written = name.to_string();
    if let Some(known) = OPTIONS.iter().find(|known| known.name == written) {
        return Ok(known);
    }
    // What other libraries call the same.
    let meant = match &*written {
        "ttl" | "expire" | "expiry" | "lock_at_most_for" => Some("lease"),
        "timeout" | "wait_timeout" | "acquire_timeout" => Some("wait"),
        "name" => Some("key"),
        "lock_at_least_for" => Some("at_least"),
        "skip" | "on_taken" | "on_contention" => Some("if_taken"),
        "fallback" | "on_error" | "fail" => Some("or_else"),
        _ => nearest(&written, OPTIONS.iter().map(|known| known.name)),
    };
    let mut message = format!("unknown option `{written}`");
    if let Some(meant) = meant {
        let _ = write!(message, ", did you mean `{meant}`?");
    }
    let _ = write!(
        message,
        " (the options are {})",
        list(OPTIONS.iter().map(|known| known.name))
    );
    error(name.span(), message)
}

pub(crate) fn on_lost(text: &LitStr) -> syn::Result<bool> {
    match &*text.value() {
        "cancel" => Ok(false),
        "continue" => Ok(true),
        other => error(
            text.span(),
            format_args!(
                "`on_lost = {other:?}` is neither `\"cancel\"`, which stops the body when the lease is lost, \
                 nor `\"continue\"`, which lets it run on"
            ),
        ),
    }
}

pub(crate) fn wrong_kind(option: &Known, value: &Expr) -> syn::Error {
    let Known { name, takes, form } = option;
    syn::Error::new_spanned(
        value,
        format_args!("`{name}` takes {takes}; write `{form}`"),
    )
}

/// Returns the error for an expression in place of a list of keys.
pub(crate) fn no_list(option: &Known, value: &Expr) -> syn::Error {
    let Known { name, takes, form } = option;
    syn::Error::new_spanned(
        value,
        format_args!(
            "`{name}` takes {takes}; write `{form}`, or `key = \"order:<ids[]>\"` for a key of each element of a list"
        ),
    )
}

/// Returns the error for a constant in place of a string literal.
pub(crate) fn no_constant(option: &Known, constant: &ExprPath) -> syn::Error {
    let name = option.name;
    let path = constant.to_token_stream().to_string().replace(' ', "");
    syn::Error::new_spanned(
        constant,
        format_args!(
            "`{name}` takes a string literal: when it is read, constants have no value yet; write `{name} = \"<{path}>\"` \
             for the value of one"
        ),
    )
}

/// Returns the error for a macro in place of a string literal.
pub(crate) fn no_text_yet(option: &Known, value: &Expr) -> syn::Error {
    let Known { name, form, .. } = option;
    syn::Error::new_spanned(
        value,
        format_args!(
            "`{name}` takes a string literal: when it is read, macros have no value yet; write the text itself, as in \
             `{form}`"
        ),
    )
}

pub(crate) fn given_twice(name: &Ident, option: &Known) -> syn::Error {
    let way_out = match option.name {
        "key" => {
            ": several keys are one list, as in `key = [\"account:<from>\", \"account:<to>\"]`"
        }
        _ => "",
    };
    syn::Error::new(
        name.span(),
        format_args!("`{name}` is given twice{way_out}"),
    )
}

pub(crate) fn no_keys(list: &Expr) -> syn::Error {
    syn::Error::new_spanned(
        list,
        "the list of keys is empty: write what is locked, as in `key = [\"order:<id>\"]`",
    )
}

pub(crate) fn no_value(name: &Ident, option: &Known) -> syn::Error {
    syn::Error::new(
        name.span(),
        format_args!("`{name}` needs a value: write `{}`", option.form),
    )
}

/// Says that something else stands in the place of `=`, and shows the value behind the right sign.
pub(crate) fn no_equals_sign(input: ParseStream<'_>, option: &Known) -> syn::Error {
    let Known { name, form, .. } = option;
    let right = match value_after_sign(&input.fork()) {
        Ok(value) => format!("{name} = {value}"),
        Err(_) => (*form).to_owned(),
    };
    input.error(format_args!("expected `=`: write `{right}`"))
}

fn value_after_sign(input: ParseStream<'_>) -> syn::Result<String> {
    while !input.peek(Lit) {
        input.parse::<Punct>()?;
    }
    Ok(input.parse::<Lit>()?.to_token_stream().to_string())
}

pub(crate) fn no_option(input: ParseStream<'_>) -> syn::Error {
    if input.peek(LitStr) {
        input.error("a value needs the name of its option: write `key = …`")
    } else {
        input.error("expected an option, as in `key = \"order:<id>\"`")
    }
}

pub(crate) fn no_comma(input: ParseStream<'_>) -> syn::Error {
    input.error("expected `,` between two options")
}

/// Lists names as `a`, `b` and `c`.
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match &*names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
