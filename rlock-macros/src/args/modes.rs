//! Checks the options `shared`, `permits` and `take`.

use proc_macro2::Ident;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitInt, LitStr, Token};

use super::keys::Written;
use super::{Args, errors, no_literal, skip_to_comma};
use crate::errors::{Errors, error};
use crate::options::LockOption;

/// Refuses a value behind the flag `shared`.
pub(super) fn flag(name: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
    if input.is_empty() || input.peek(Token![,]) || input.peek(Ident::peek_any) {
        return Ok(());
    }
    let value = skip_to_comma(&input.fork())?;
    let message = if input.peek(LitStr) {
        "a key that is `shared` belongs to `key`: write `key = [shared \"tenant:<tenant>\", \"order:<id>\"]`"
    } else {
        "`shared` takes no value: write `key = \"config:<id>\", shared`, or leave `shared` out for an exclusive lock"
    };
    Err(syn::Error::new_spanned(quote!(#name #value), message))
}

/// Returns the number that a literal stands for.
fn literal(value: &Expr) -> Option<&LitInt> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => Some(number),
        _ => None,
    }
}

/// Reads the value of `permits` or `take`, and checks it if it is a literal.
pub(super) fn permits(option: LockOption, value: Expr) -> syn::Result<Expr> {
    let Some(number) = literal(&value) else {
        return no_literal(option, value);
    };
    if !matches!(number.suffix(), "" | "u32") {
        return Err(errors::wrong_kind(option, &value));
    }
    match number.base10_digits().parse::<u32>() {
        Ok(1..) => Ok(value),
        Ok(0) if option == LockOption::Take => error(
            number.span(),
            format_args!(
                "`take = {number}` takes nothing: a call takes at least 1 permit; leave `take` out to take one"
            ),
        ),
        // More than there can be, as the number of permits shows.
        Err(_) if option == LockOption::Take => Ok(value),
        Ok(0) => error(
            number.span(),
            format_args!(
                "`permits = {number}` lets no call in: it must be at least 1; for an exclusive lock, leave `permits` out"
            ),
        ),
        Err(_) => error(
            number.span(),
            format_args!(
                "`permits = {number}` is too large: at most {} calls hold a lock at once; for no limit write `shared` \
                 instead",
                u32::MAX
            ),
        ),
    }
}

/// Checks what the modes of a lock exclude.
pub(super) fn check(args: &Args, errors: &mut Errors) {
    errors.collect(shared_takes_effect(args));
    if let Some(permits) = &args.permits {
        errors.collect(permits_of_some_key(args, permits));
        errors.collect(no_retention(args));
    }
    if let Some(take) = &args.take {
        errors.collect(enough_permits(args, take));
    }
}

/// Refuses `take` without `permits`, and more of them than there are if both are literals.
fn enough_permits(args: &Args, take: &Expr) -> syn::Result<()> {
    if !args.named.contains(&LockOption::Permits) {
        return error(
            take.span(),
            "`take` without `permits`: add their number, as in `permits = 8, take = 3`",
        );
    }
    let number = |value: &Expr| literal(value)?.base10_parse::<u32>().ok();
    let Some(permits) = args.permits.as_ref().and_then(number) else {
        return Ok(());
    };
    match literal(take) {
        Some(taken) if number(take).is_none_or(|number| number > permits) => error(
            taken.span(),
            format_args!(
                "`take = {taken}` takes more permits than there are, {permits}: raise `permits` or lower `take`"
            ),
        ),
        _ => Ok(()),
    }
}

/// Refuses `shared` before a key if all keys are shared, or if the list also has this key without it.
fn shared_takes_effect(args: &Args) -> syn::Result<()> {
    let is_exclusive = |key: &Written| {
        let mut others = args.written.iter().filter(|other| other.shared.is_none());
        others.any(|other| other.literal.value() == key.literal.value())
    };
    for key in &args.written {
        match &key.shared {
            Some(word) if args.shared => {
                return error(
                    word.span(),
                    "`shared` before a key has no effect here: the option `shared` shares all keys; remove one of the two",
                );
            }
            Some(word) if is_exclusive(key) => {
                return error(
                    word.span(),
                    "`shared` before this key has no effect: the list has the same key without it, which makes it exclusive; \
                     remove one of the two keys",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses `permits` if all keys are shared.
fn permits_of_some_key(args: &Args, permits: &Expr) -> syn::Result<()> {
    if args.shared {
        return error(
            permits.span(),
            "`permits` with `shared`: a shared lock has no limit of holders; remove `shared` to limit them, or `permits` to \
             share the lock",
        );
    }
    if !args.written.is_empty() && args.written.iter().all(|key| key.shared.is_some()) {
        return error(
            permits.span(),
            "`permits` applies to no key, because all keys are `shared`: remove `shared` before the key to limit, or remove \
             `permits`",
        );
    }
    Ok(())
}

/// Refuses `retain` with `permits`.
fn no_retention(args: &Args) -> syn::Result<()> {
    match args.retained_at() {
        None => Ok(()),
        Some(at) => error(
            at,
            "`retain` with `permits`: a permit is not retained, because each call has its own; remove `retain` or `permits`",
        ),
    }
}
