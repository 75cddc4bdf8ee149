//! Generates the plan of a function: its keys, and a statement for each option.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Expr, ExprReference, Token};

use super::core;
use super::keys::{self, List, Scope};
use crate::args::{Args, Key, Wait};
use crate::duration::Time;
use crate::signature::Function;

/// The variable of the plan. With a plainer name, a constant of that name would become the pattern.
pub(super) fn name(site: Span) -> Ident {
    Ident::new("__rlock_plan", site)
}

/// Expands to one statement for each part of a key and for each option. What an expression locks or borrows is free
/// again before the next expression runs, and before an `await` in it.
///
/// ```text
/// fn __rlock_function() -> &'static str { type_name_of_val(&__rlock_function) }
/// let plan = Plan::new("order:<id>", __rlock_function);
/// let key = KeyText::new("order:");
/// let key = key.value("id", KeyValue::<7, _>::as_display(&id));
/// let plan = plan.and("order:<id>", key);
/// let plan = plan.lease(…);
/// ```
pub(super) fn plan(function: &Function, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let core = core(args, site);
    let plan = name(site);
    // The path of a local item contains the type of a method. `module_path!` has only the module. A pointer to a
    // function is smaller than the path.
    let here = Ident::new("__rlock_function", site);
    let template = args.keys.first().map(|key| &key.template.literal);
    let new = quote_spanned! {site=>
        fn #here() -> &'static ::core::primitive::str {
            ::core::any::type_name_of_val(&#here)
        }
        let #plan = #core::Plan::new(#template, #here);
    };
    let scope = Scope {
        function: Some(function),
        krate: args.krate.as_ref(),
    };
    let single = args.keys.iter().filter(|key| key.template.list().is_none());
    let keys = single.map(|Key { template, shared }| {
        let key_name = keys::name(template);
        let key = scope.key(template);
        let and = Ident::new(if *shared { "and_shared" } else { "and" }, site);
        let literal = &template.literal;
        quote_spanned!(site=> #key let #plan = #plan.#and(#literal, #key_name);)
    });
    let lists = args.keys.iter().filter_map(|key| and_list(scope, key));
    let client = args.client.clone().map(|client| {
        let client = borrowed(client);
        quote_spanned!(site=> client(#client))
    });
    let shared = args.shared.then(|| quote_spanned!(site=> shared()));
    let permits = args.permits.as_ref();
    let permits = permits.map(|permits| quote_spanned!(site=> permits(#permits)));
    let take = args.take.as_ref();
    let take = take.map(|take| quote_spanned!(site=> take(#take)));
    let wait = args.wait.as_ref().map(|wait| match wait {
        Wait::For(time) => quote_spanned!(site=> wait(#time)),
        Wait::Forever => quote_spanned!(site=> wait_forever()),
    });
    let watchdog = args
        .watchdog
        .as_ref()
        .map(|on| quote_spanned!(site=> watchdog(#on)));
    let on_lost = args
        .continue_when_lost
        .then(|| quote_spanned!(site=> continue_when_lost()));
    // A client may retain its locks by default. But a retained lock is taken, so other clients would skip their calls
    // although no body runs, and a permit is never retained.
    let retain = match &args.retain {
        None if args.if_taken.is_some() || args.permits.is_some() => {
            Some(quote_spanned!(site=> retain(::core::time::Duration::ZERO)))
        }
        retain => time("retain", retain.as_ref()),
    };
    // Options that are not set are those of the client.
    let options = [
        client,
        shared,
        permits,
        take,
        time("lease", args.lease.as_ref()),
        wait,
        watchdog,
        time("max_hold", args.max_hold.as_ref()),
        time("min_hold", args.min_hold.as_ref()),
        retain,
        on_lost,
    ];
    let options = options.into_iter().flatten();
    quote_spanned!(site=> #new #(#keys)* #(#lists)* #(let #plan = #plan.#options;)*)
}

/// Adds a key for each element of a list. Returns `None` for a key without a list.
fn and_list(scope: Scope<'_>, key: &Key) -> Option<TokenStream> {
    let Key { template, shared } = key;
    let literal = &template.literal;
    let site = Span::mixed_site().located_at(literal.span());
    let plan = name(site);
    let key_name = keys::name(template);
    let and = if *shared {
        "and_shared_list"
    } else {
        "and_list"
    };
    let and = Ident::new(and, site);
    let List {
        same,
        elements,
        element,
        key,
    } = scope.list(template)?;
    Some(quote_spanned! {site=>
        #same
        let #plan = #plan.#and(#literal, #elements.iter(), |#element| { #key #key_name });
    })
}

/// `lease(time)`
fn time(method: &str, time: Option<&Time>) -> Option<TokenStream> {
    let site = Span::mixed_site();
    let method = Ident::new(method, site);
    time.map(|time| quote_spanned!(site=> #method(#time)))
}

/// `&value`, in parentheses where it needs them.
fn borrowed(value: Expr) -> Expr {
    Expr::Reference(ExprReference {
        attrs: Vec::new(),
        and_token: Token![&](Span::mixed_site().located_at(value.span())),
        mutability: None,
        expr: Box::new(value),
    })
}
