//! Every rejection: what was written, and the right form of it.

use std::fmt::Write;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, LitStr, Signature, Type};

use crate::args::{Args, Known, OPTIONS};
use crate::duration::Time;
use crate::errors::Errors;
use crate::nearest::nearest;
use crate::signature::Function;
use crate::template::{Placeholder, Template};

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

/// Checks that the function is one that can be locked, and that the options fit it.
pub(crate) fn function(function: &Function, args: &Args, errors: &mut Errors) {
    let signature = &function.signature;
    errors.collect(asyncness(signature));
    errors.collect(return_type(function, args.named.contains(&"or_else")));
    for template in &args.keys {
        for placeholder in template.placeholders() {
            errors.collect(root(template, placeholder, function));
        }
    }
}

fn asyncness(signature: &Signature) -> syn::Result<()> {
    if let Some(constness) = &signature.constness {
        return error(
            constness.span,
            "a `const fn` cannot lock: what runs at compile time has no server to ask",
        );
    }
    if signature.asyncness.is_none() {
        return error(
            signature.fn_token.span,
            format_args!(
                "`#[distributed_lock]` needs an `async fn`: write `async fn {}`; for synchronous code use `lock.run_blocking(…)`",
                signature.ident
            ),
        );
    }
    Ok(())
}

/// Refuses the return types that certainly cannot carry an error. Others, aliases among them, are
/// for the compiler to judge.
fn return_type(function: &Function, or_else: bool) -> syn::Result<()> {
    let way_out = "return `Result<_, E>` with `E: From<LockError>`";
    let name = &function.signature.ident;
    match function.return_type() {
        Some(Type::Never(never)) => error(
            never.span(),
            format_args!(
                "`!` has no value for a lock that failed: {way_out}, as in `Result<Infallible, E>`"
            ),
        ),
        Some(Type::Tuple(unit)) if unit.elems.is_empty() && !or_else => error(
            unit.span(),
            format_args!(
                "`()` has no value for a lock that failed: {way_out}, or give `or_else = |error| …`"
            ),
        ),
        None if !or_else => error(
            name.span(),
            format_args!(
                "`{name}` returns nothing, so a failed lock would go unseen: {way_out}, or give `or_else = |error| …`"
            ),
        ),
        _ => Ok(()),
    }
}

fn root(template: &Template, placeholder: &Placeholder, function: &Function) -> syn::Result<()> {
    if function.binding(&placeholder.root).is_some() {
        return Ok(());
    }
    let Placeholder {
        text,
        position,
        root,
        ..
    } = placeholder;
    let name = &function.signature.ident;
    let mut message = format!("`<{text}>` at character {position} of the key: ");
    let _ = match &**root {
        "self" => write!(message, "`{name}` has no `self`"),
        _ => write!(message, "`{root}` is no parameter of `{name}`"),
    };
    let parameters = function
        .bindings
        .iter()
        .map(|binding| binding.name.to_string());
    let parameters: Vec<String> = parameters.collect();
    let parameters = || parameters.iter().map(String::as_str);
    let _ = match list(parameters()) {
        none if none.is_empty() => write!(message, ", it has no parameters"),
        list => write!(message, ", it has {list}"),
    };
    if let Some(meant) = nearest(root, parameters()) {
        let _ = write!(
            message,
            ": did you mean `<{meant}{}>`?",
            &text.trim()[root.len()..]
        );
    } else if parameters().any(|parameter| parameter == "self") {
        let _ = write!(message, "; for a field write `<self.{}>`", text.trim());
    }
    error(template.literal.span(), message)
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

/// Says that an item without a body cannot be locked.
pub(crate) fn no_body(signature: &Signature) -> syn::Error {
    let name = &signature.ident;
    syn::Error::new(
        name.span(),
        format_args!(
            "`{name}` has no body to run under a lock: put `#[distributed_lock(…)]` on its implementation"
        ),
    )
}

/// Says what stands where a function should.
pub(crate) fn no_function(item: TokenStream) -> syn::Error {
    let mut span = Span::call_site();
    let mut what = "something else";
    let mut after_const = false;
    for token in item {
        let TokenTree::Ident(word) = token else {
            continue;
        };
        let text = word.to_string();
        span = word.span();
        what = match &*text {
            "pub" | "unsafe" | "async" | "default" | "extern" | "auto" => continue,
            "const" => {
                after_const = true;
                continue;
            }
            "fn" => "a function in a form that is not known",
            "struct" => "a struct",
            "enum" => "an enum",
            "union" => "a union",
            "trait" => "a trait",
            "impl" => "an `impl` block",
            "mod" => "a module",
            "static" => "a static",
            "type" => "a type alias",
            "use" => "an import",
            _ if after_const => "a constant",
            _ => "something else",
        };
        break;
    }
    let way_out = match what {
        "an `impl` block" | "a trait" => "put it on each method that is to be locked",
        _ => "put it on an `async fn`",
    };
    syn::Error::new(
        span,
        format_args!("`#[distributed_lock]` locks a function, and this is {what}: {way_out}"),
    )
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
