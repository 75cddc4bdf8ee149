//! What is wrong with a function, or with what stands in the place of one.

use std::fmt::Write;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::{PathArguments, Signature, Type, TypePath};

use super::{error, list};
use crate::args::Args;
use crate::bindings::Binding;
use crate::errors::Errors;
use crate::nearest::nearest;
use crate::signature::{Function, Kind};
use crate::template::{Part, Placeholder, Template};

/// Checks that the function is one that can be locked, and that the options fit it.
pub(crate) fn function(function: &Function, args: &Args, errors: &mut Errors) {
    errors.collect(qualifiers(&function.signature));
    errors.collect(locked_in_full(function));
    errors.collect(return_type(function, args.named.contains(&"or_else")));
    for template in &args.keys {
        errors.collect(braced_parameter(template, function));
        for placeholder in template.placeholders() {
            errors.collect(placeholder_of(template, placeholder, function));
        }
    }
}

/// Refuses `{id}` where `id` is a parameter: whoever is used to `format!` means its value, and every
/// call would lock the same key.
fn braced_parameter(template: &Template, function: &Function) -> syn::Result<()> {
    for part in &template.parts {
        let Part::Text(text) = part else { continue };
        let braced = text
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'));
        let Some((tag, _)) = braced else { continue };
        let root = tag.split(['.', ':', '(']).next().unwrap_or_default().trim();
        if function.binding(root).is_some() {
            return error(
                template.literal.span(),
                format_args!(
                    "`{{{tag}}}` in the key is fixed text, a Redis Cluster hash tag, and `{root}` is a parameter: write \
                     `<{tag}>` for its value, or `{{<{tag}>}}` for a hash tag of it"
                ),
            );
        }
    }
    Ok(())
}

fn qualifiers(signature: &Signature) -> syn::Result<()> {
    if let Some(constness) = &signature.constness {
        return error(
            constness.span,
            "a `const fn` cannot lock: what runs at compile time has no server to ask",
        );
    }
    match &signature.abi {
        Some(abi) if abi.name.as_ref().is_none_or(|name| name.value() != "Rust") => error(
            abi.extern_token.span,
            format_args!(
                "an `extern` function cannot lock: a caller outside of Rust can take neither the error nor the panic of a \
                 lock; put the attribute on a Rust function that `{}` calls",
                signature.ident
            ),
        ),
        _ => Ok(()),
    }
}

/// Refuses a function that answers a future and does more than that, or less: the lock would cover
/// the making of the future alone.
fn locked_in_full(function: &Function) -> syn::Result<()> {
    if let Kind::Sync = function.kind
        && function.returns_a_future()
    {
        let name = &function.signature.ident;
        return Err(syn::Error::new_spanned(
            function.written_type(),
            format_args!(
                "`{name}` returns a future, and the lock would be given back before that runs: write `async fn {name}`, \
                 or let the whole body be `async move {{ … }}` or `Box::pin(async move {{ … }})`"
            ),
        ));
    }
    Ok(())
}

/// Refuses the return types that certainly cannot carry an error. Others, aliases among them, are
/// for the compiler to judge.
fn return_type(function: &Function, or_else: bool) -> syn::Result<()> {
    let way_out = "return `Result<_, E>` with `E: From<LockError>`";
    let name = &function.signature.ident;
    let (span, problem) = match function.return_type() {
        Some(Type::Never(never)) => {
            return error(
                never.span(),
                format_args!(
                    "`!` has no value for a lock that failed: {way_out}, as in `Result<Infallible, E>`"
                ),
            );
        }
        _ if or_else => return Ok(()),
        Some(Type::Tuple(unit)) if unit.elems.is_empty() => {
            let span = match function.kind {
                // Of a method that returns nothing, async-trait wrote this.
                Kind::Future { .. } => name.span(),
                Kind::Async | Kind::Sync => unit.span(),
            };
            let problem = "`()` has no value for a lock that failed".to_owned();
            (span, problem)
        }
        Some(_) => return Ok(()),
        None => {
            let problem = format!("`{name}` returns nothing, so a failed lock would go unseen");
            (name.span(), problem)
        }
    };
    error(
        span,
        format_args!("{problem}: {way_out}, or give `or_else = |error| …`"),
    )
}

fn placeholder_of(
    template: &Template,
    placeholder: &Placeholder,
    function: &Function,
) -> syn::Result<()> {
    match function.binding(&placeholder.root) {
        Some(binding) => rendered(template, placeholder, binding),
        None => no_parameter(template, placeholder, function),
    }
}

/// Refuses what has no rendering by its looks. Other types are for the compiler to judge.
fn rendered(template: &Template, placeholder: &Placeholder, binding: &Binding) -> syn::Result<()> {
    let Placeholder {
        text,
        position,
        steps,
        format,
        ..
    } = placeholder;
    if steps.is_empty() && format.is_none() && binding.ty.as_ref().is_some_and(is_option) {
        let message = format_args!(
            "`<{text}>` at character {position} of the key: an `Option` has no text of its own, and `None` would be one \
             key for all: write `<{text}:?>` if that is meant, or take the lock in a function that has the value"
        );
        return error(template.literal.span(), message);
    }
    Ok(())
}

fn is_option(ty: &Type) -> bool {
    match ty {
        Type::Reference(inner) => is_option(&inner.elem),
        Type::Paren(inner) => is_option(&inner.elem),
        Type::Group(inner) => is_option(&inner.elem),
        Type::Path(TypePath {
            qself: None, path, ..
        }) => path.segments.last().is_some_and(|last| {
            last.ident == "Option" && matches!(last.arguments, PathArguments::AngleBracketed(_))
        }),
        _ => false,
    }
}

fn no_parameter(
    template: &Template,
    placeholder: &Placeholder,
    function: &Function,
) -> syn::Result<()> {
    let Placeholder {
        text,
        position,
        root,
        ..
    } = placeholder;
    let name = &function.signature.ident;
    let mut message = format!("`<{text}>` at character {position} of the key: ");
    let is_hidden = |binding: &Binding| binding.name.to_string().starts_with("__arg");
    if root != "self" && function.bindings.iter().any(is_hidden) {
        let _ = write!(
            message,
            "`{root}` is not in sight: async-trait moves the patterns of `{name}` into its body, which another \
             attribute has wrapped since; put `#[distributed_lock]` above that attribute"
        );
        return error(template.literal.span(), message);
    }
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
        "an `impl` block" => {
            "put it on each method that is to be locked, and set what they share on their client, with \
             `LockClient::builder()`"
        }
        "a trait" => "put it on each method that is to be locked",
        _ => "put it on a function or a method",
    };
    syn::Error::new(
        span,
        format_args!("`#[distributed_lock]` locks a function, and this is {what}: {way_out}"),
    )
}
