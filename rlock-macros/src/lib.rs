//! The attribute [`macro@distributed_lock`] of [`rlock-core`](https://docs.rs/rlock-core), which
//! re-exports it. Depend on `rlock-core`, and write `use rlock_core::distributed_lock`.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as TokenStream2;

mod args;
mod bindings;
mod check;
mod duration;
mod errors;
mod expand;
mod fallback;
mod future;
mod key;
mod mention;
mod names;
mod options;
mod signature;
mod template;

/// Runs a function under a distributed lock.
///
#[doc = include_str!("../docs/attribute.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(args.into(), &item.into()).into()
}

/// Expands `rlock_core::key!`, which adds the path of its crate before the template: `rlock_core; "order:<id>"`.
#[doc(hidden)]
#[proc_macro]
pub fn __key(input: TokenStream) -> TokenStream {
    key::expand(input.into()).into()
}

fn expand(args: TokenStream2, item: &TokenStream2) -> TokenStream2 {
    let mut errors = errors::Errors::default();
    let args = args::Args::parse(args, &mut errors);
    args.check(&mut errors);
    let function = errors.collect(signature::Function::parse(item.clone()));
    if let Some(function) = &function {
        check::function(function, &args, &mut errors);
    }
    match function {
        Some(function) if errors.is_empty() => expand::expand(&function, &args),
        Some(function) => fallback::keep_function(item, &function, &args, errors),
        None => fallback::keep(item, errors),
    }
}
