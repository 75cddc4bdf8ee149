//! The expansion: render the key, box the body, hand both to the core.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Type, parse_quote, parse_quote_spanned};

use self::arguments::Arguments;
use crate::args::Args;
use crate::future;
use crate::signature::{Function, Kind};

mod arguments;
mod plan;

/// Writes the function anew, with its body under the lock.
pub(crate) fn expand(function: &Function, args: &Args) -> TokenStream {
    let (inner_attributes, statements) = function.split_body();
    let mut signature = function.signature.clone();
    let inside = match &function.kind {
        Kind::Async | Kind::Sync => {
            let arguments = Arguments::of(function, &statements, args);
            arguments.strip(&mut signature);
            locked(function, &function.body, &statements, &arguments, args)
        }
        Kind::Future {
            block,
            parameters,
            rest,
        } => {
            let arguments = Arguments::of(function, rest, args);
            arguments.strip(&mut signature);
            let parameters = arguments.strip_statements(parameters);
            let locked = locked(function, block, rest, &arguments, args);
            let block = Group::new(Delimiter::Brace, quote!(#parameters #locked));
            future::with_block(statements, &block)
        }
    };
    let front = &function.front;
    // With other braces than the user's own, `dead_code` would fall silent.
    let braces = braces(quote!(#inner_attributes #inside), function.body.span());
    quote!(#front #signature #braces)
}

/// Runs statements under the lock. They come from the braces `block`.
fn locked(
    function: &Function,
    block: &Group,
    statements: &TokenStream,
    arguments: &Arguments<'_>,
    args: &Args,
) -> TokenStream {
    let output = output(function);
    let plan = plan::plan(function, args);
    let body = body(function, block, statements, &arguments.take(), &output);
    let run = run(function, &body, &output, args);
    quote!(#plan #run)
}

/// `Box::pin(async move { …; { the user's statements } })`, or a closure of the same.
///
/// All braces are where the user's are, and so is the closure: only there do errors look as without it.
fn body(
    function: &Function,
    block: &Group,
    statements: &TokenStream,
    arguments: &TokenStream,
    output: &Type,
) -> TokenStream {
    let site = Span::mixed_site();
    let user = block.span_open();
    // Around a lone expression, rustc would call the inner braces unnecessary.
    let not_alone = quote_spanned!(site=> const _: () = (););
    let body = braces(quote!(#not_alone #statements), block.span());
    if let Kind::Sync = function.kind {
        let inside = braces(quote!(#arguments #body), block.span());
        // An error may show the head of the closure: it looks like that of the function.
        let head = user.located_at(function.signature.fn_token.span);
        return quote_spanned!(head=> move || -> #output #inside);
    }
    // It never runs. It tells the compiler what the body returns, as the signature would. An error
    // may show its variable: it looks like the type.
    let edge = Ident::new("__edge", output.span());
    let edge = quote_spanned! {site=>
        if let ::core::option::Option::Some(#edge) = ::core::option::Option::None::<#output> {
            return #edge;
        }
    };
    let inside = braces(quote!(#arguments #edge #body), block.span());
    let future = quote_spanned!(user=> async move #inside);
    quote_spanned!(site=> ::std::boxed::Box::pin(#future))
}

fn braces(inside: TokenStream, span: Span) -> Group {
    let mut braces = Group::new(Delimiter::Brace, inside);
    braces.set_span(span);
    braces
}

/// `let body = …; run(plan, body).await`, to be blamed on the return type if that cannot hold an error.
///
/// The type is left to inference: named, it would be reported twice. `or_else` comes before the
/// body, which takes the arguments over.
fn run(function: &Function, body: &TokenStream, output: &Type, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let sync = matches!(function.kind, Kind::Sync);
    if let Some(or_else) = &args.or_else {
        let site = site.located_at(or_else.span());
        let core = core(args, site);
        if sync {
            quote_spanned!(site=> #core::run_blocking_or_else(plan, #or_else, #body))
        } else {
            quote_spanned!(site=> #core::run_or_else(plan, #or_else, #body).await)
        }
    } else {
        let at_type = site.located_at(match output {
            Type::Path(output) => output.path.segments.last().span(),
            output => output.span(),
        });
        let core = core(args, at_type);
        if sync {
            // Bound to a variable, the closure could not give away what it captures.
            return quote_spanned!(at_type=> #core::run_blocking(plan, #body));
        }
        let local = Ident::new("body", site);
        let bind = quote_spanned!(site=> let #local = #body;);
        quote_spanned!(at_type=> #bind #core::run(plan, #local).await)
    }
}

/// The path of what the core keeps for this expansion. An error is shown where `site` is.
fn core(args: &Args, site: Span) -> TokenStream {
    let Some(krate) = &args.krate else {
        return quote_spanned!(site=> ::rlock_core::__private);
    };
    let krate = krate.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(site));
        token
    });
    quote_spanned!(site=> #(#krate)*::__private)
}

/// The return type, with `_` for each `impl Trait`, which cannot be named in a body.
fn output(function: &Function) -> Type {
    struct Erase;
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                let site = Span::mixed_site().located_at(ty.span());
                *ty = parse_quote_spanned!(site=> _);
            } else {
                visit_mut::visit_type_mut(self, ty);
            }
        }
    }
    let mut output = function
        .return_type()
        .cloned()
        .unwrap_or_else(|| parse_quote!(()));
    Erase.visit_type_mut(&mut output);
    output
}

#[cfg(test)]
#[path = "expand/tests.rs"]
mod tests;
