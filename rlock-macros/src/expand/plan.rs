//! The plan: the keys rendered, and one call for each option.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, ExprReference, LitStr, Token};

use super::core;
use crate::args::{Args, Wait};
use crate::duration::Time;
use crate::signature::Function;
use crate::template::{self, Part, Template};

/// The variable of the plan. With a plainer name, a constant of that name would become the pattern.
pub(super) fn name(site: Span) -> Ident {
    Ident::new("__rlock_plan", site)
}

/// `let __rlock_plan = Plan::new("…", key(…)).client(…).lease(…);`
pub(super) fn plan(function: &Function, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let core = core(args, site);
    let (lists, keys): (Vec<_>, Vec<_>) = args
        .keys
        .iter()
        .partition(|template| template.list().is_some());
    let mut keys = keys
        .into_iter()
        .map(|template| key(function, template, args));
    let at = place(function, args);
    let new = keys.next().map_or_else(
        || quote_spanned!(site=> of_lists(#at)),
        |key| quote_spanned!(site=> new(#at, #key)),
    );
    let and = keys.map(|key| quote_spanned!(site=> .and(#key)));
    let and_list = lists
        .into_iter()
        .map(|template| and_list(function, template, args));
    let client = args.client.clone().map(|client| {
        let client = borrowed(client);
        quote_spanned!(site=> .client(#client))
    });
    let lease = time("lease", args.lease.as_ref());
    let wait = args.wait.as_ref().map(|wait| match wait {
        Wait::For(time) => quote_spanned!(site=> .wait(#time)),
        Wait::Forever => quote_spanned!(site=> .wait_forever()),
    });
    let watchdog = args
        .watchdog
        .as_ref()
        .map(|on| quote_spanned!(site=> .watchdog(#on)));
    let max_hold = time("max_hold", args.max_hold.as_ref());
    let at_least = time("at_least", args.at_least.as_ref());
    let retain = time("retain", args.retain.as_ref());
    let on_lost = args
        .continue_when_lost
        .then(|| quote_spanned!(site=> .continue_when_lost()));
    let plan = name(site);
    quote_spanned! {site=>
        let #plan = #core::Plan::#new
            #(#and)* #(#and_list)* #client #lease #wait #watchdog #max_hold #at_least #retain
            #on_lost;
    }
}

/// `concat!("order:<id>\n", module_path!(), "::pay")`
fn place(function: &Function, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let template = args.keys.first().map(|template| template.literal.value());
    let template = format!("{}\n", template.unwrap_or_default());
    let function = format!("::{}", function.signature.ident.unraw());
    quote_spanned!(site=> ::core::concat!(#template, ::core::module_path!(), #function))
}

/// `.and_list("order:<ids[]>", ids.iter(), |element| key(…))`
fn and_list(function: &Function, template: &Template, args: &Args) -> TokenStream {
    let literal = &template.literal;
    let site = Span::mixed_site().located_at(literal.span());
    let list = template.list().and_then(|placeholder| {
        let root = function.binding(&placeholder.root);
        placeholder.list(root.map(|root| &root.name), literal.span())
    });
    let element = template::element(literal.span());
    let key = key(function, template, args);
    quote_spanned!(site=> .and_list(#literal, #list.iter(), |#element| #key))
}

/// `key(&[Part::Text("order:"), Part::Value(&id)])`
fn key(function: &Function, template: &Template, args: &Args) -> TokenStream {
    let literal = template.literal.span();
    let site = Span::mixed_site().located_at(literal);
    let core = core(args, site);
    let parts = template.parts.iter().map(|part| match part {
        Part::Text(text) => quote_spanned!(site=> #core::Part::Text(#text)),
        Part::Value(placeholder) => {
            let root = function.binding(&placeholder.root);
            let mut value = placeholder.expression(root.map(|root| &root.name), literal);
            if let Some(format) = &placeholder.format {
                let format = LitStr::new(&format!("{{:{format}}}"), site);
                value = quote_spanned!(site=> ::core::format_args!(#format, &#value));
            }
            quote_spanned!(site=> #core::value(&#value))
        }
    });
    quote_spanned!(site=> #core::key(&[#(#parts),*]))
}

/// `.lease(time)`
fn time(method: &str, time: Option<&Time>) -> Option<TokenStream> {
    let site = Span::mixed_site();
    let method = Ident::new(method, site);
    time.map(|time| quote_spanned!(site=> .#method(#time)))
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
