//! Rejects functions that cannot be locked, and placeholders that name no parameter.

use std::fmt::Write;

use syn::spanned::Spanned;
use syn::{Expr, PathArguments, Signature, Type, TypePath};

use crate::args::{Args, Key, Wait};
use crate::bindings::Binding;
use crate::duration::Time;
use crate::errors::{Errors, error};
use crate::names::{list, nearest};
use crate::options::LockOption;
use crate::signature::{Function, Kind};
use crate::template::{Part, Placeholder, Template};

/// Checks that the function is one that can be locked, and that the options fit it.
pub(crate) fn function(function: &Function, args: &Args, errors: &mut Errors) {
    errors.collect(qualifiers(&function.signature));
    errors.collect(track_caller(function));
    errors.collect(return_type(function, args));
    errors.collect(unquoted_forever(function, args));
    errors.collect(guard_is_no_parameter(function, args));
    for Key { template, .. } in &args.keys {
        errors.collect(braced_parameter(template, function));
        for placeholder in template.placeholders() {
            errors.collect(placeholder_of(template, placeholder, function));
        }
    }
}

/// Refuses `{id}` where `id` is a parameter. A user of `format!` means its value, and every call would lock the
/// same key.
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

/// Refuses `#[track_caller]` on a synchronous function, where it has no effect.
fn track_caller(function: &Function) -> syn::Result<()> {
    let attributes = function.attributes();
    let found = attributes
        .iter()
        .find(|found| found.path().is_ident("track_caller"));
    match (&function.kind, found) {
        (Kind::Sync, Some(attribute)) => Err(syn::Error::new_spanned(
            attribute,
            "`#[track_caller]` has no effect on a locked function: its body becomes a closure, and Rust passes no caller's \
             location to closures; remove it, or put it on a function that calls the locked one",
        )),
        _ => Ok(()),
    }
}

fn qualifiers(signature: &Signature) -> syn::Result<()> {
    if let Some(constness) = &signature.constness {
        return error(
            constness.span,
            "a `const fn` cannot lock: code that runs at compile time has no server to ask",
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

/// Refuses the return types that certainly cannot carry an error. Others, aliases among them, are
/// for the compiler to judge.
fn return_type(function: &Function, args: &Args) -> syn::Result<()> {
    let way_out = "return `Result<_, E>` with `E: From<LockError>`";
    let name = &function.signature.ident;
    let (span, problem) = match function.return_type() {
        Some(Type::Never(never)) => {
            return error(
                never.span(),
                format_args!(
                    "`!` has no value for the error of a lock: {way_out}, as in `Result<Infallible, E>`"
                ),
            );
        }
        _ if args.named.contains(&LockOption::OnError) => return Ok(()),
        Some(Type::Tuple(unit)) if unit.elems.is_empty() => {
            let span = match function.kind {
                // Of a method that returns nothing, async-trait wrote this.
                Kind::Future { .. } => name.span(),
                Kind::Async | Kind::Sync => unit.span(),
            };
            let problem = "`()` has no value for the error of a lock".to_owned();
            (span, problem)
        }
        Some(_) => return Ok(()),
        None => {
            let problem =
                format!("`{name}` returns nothing, so the error of a lock would go unnoticed");
            (name.span(), problem)
        }
    };
    let more = if args.named.contains(&LockOption::IfTaken) {
        " as well: `if_taken` covers only a taken lock"
    } else {
        ""
    };
    error(
        span,
        format_args!("{problem}: {way_out}, or give `on_error = |error| …`{more}"),
    )
}

/// Refuses `wait = forever`, unless `forever` is a parameter.
fn unquoted_forever(function: &Function, args: &Args) -> syn::Result<()> {
    match &args.wait {
        Some(Wait::For(Time::Expression(Expr::Path(written))))
            if written.path.is_ident("forever") && function.binding("forever").is_none() =>
        {
            error(
                written.span(),
                format_args!(
                    "`forever` is not a parameter of `{}`: write `wait = \"forever\"`",
                    function.signature.ident
                ),
            )
        }
        _ => Ok(()),
    }
}

/// Refuses a variable for the hold that would hide a parameter from the body.
fn guard_is_no_parameter(function: &Function, args: &Args) -> syn::Result<()> {
    match &args.guard {
        Some(name) if function.binding(&name.to_string()).is_some() => error(
            name.span(),
            format_args!(
                "`guard = {name}` would hide the parameter `{name}` of `{}` from its body: choose another name",
                function.signature.ident
            ),
        ),
        _ => Ok(()),
    }
}

fn placeholder_of(
    template: &Template,
    placeholder: &Placeholder,
    function: &Function,
) -> syn::Result<()> {
    match function.binding(&placeholder.root) {
        Some(binding) => rendered(template, placeholder, binding),
        None if is_constant(placeholder, function) => Ok(()),
        None => no_parameter(template, placeholder, function),
    }
}

/// Returns whether the root of a placeholder is a constant: written in capitals, and no parameter in capitals. The
/// compiler reports a constant that does not exist.
fn is_constant(placeholder: &Placeholder, function: &Function) -> bool {
    let root = &placeholder.root;
    let mut constants = function.signature.generics.const_params();
    let is_parameter = || function.binding(&root.to_lowercase()).is_some();
    constants.any(|constant| constant.ident == *root)
        || placeholder.may_be_constant() && !is_parameter()
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
    let Some(ty) = &binding.ty else {
        return Ok(());
    };
    if !steps.is_empty() || format.is_some() {
        return Ok(());
    }
    let problem = match without_references(ty) {
        ty if is_generic(ty, "Option") => format!(
            "an `Option` has no text of its own, and `None` would be one key for all: write `<{text}:?>` if you want \
             that, or take the lock in a function that has the value"
        ),
        ty if matches!(ty, Type::Slice(_) | Type::Array(_)) || is_generic(ty, "Vec") => {
            format!("a list has no text of its own: write `<{text}[]>` for a key of each element")
        }
        _ => return Ok(()),
    };
    let place = format_args!("`<{text}>` at character {position} of the key: {problem}");
    error(template.literal.span(), place)
}

fn without_references(ty: &Type) -> &Type {
    match ty {
        Type::Reference(inner) => without_references(&inner.elem),
        Type::Paren(inner) => without_references(&inner.elem),
        Type::Group(inner) => without_references(&inner.elem),
        ty => ty,
    }
}

/// Returns whether a type is written `name<…>`, with or without a path.
fn is_generic(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(TypePath {
            qself: None, path, ..
        }) => path.segments.last().is_some_and(|last| {
            last.ident == name && matches!(last.arguments, PathArguments::AngleBracketed(_))
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
            "`{root}` is not in scope: async-trait moves the patterns of `{name}` into its body, which another \
             attribute has wrapped since; put `#[distributed_lock]` above that attribute"
        );
        return error(template.literal.span(), message);
    }
    let _ = match &**root {
        "self" => write!(message, "`{name}` has no `self`"),
        _ => write!(message, "`{root}` is not a parameter of `{name}`"),
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
