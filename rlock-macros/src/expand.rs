//! The expansion: render the key, box the body, hand both to the core.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, Type, parse_quote, parse_quote_spanned};

use crate::args::Args;
use crate::bindings::Binding;
use crate::future;
use crate::mention::mentions;
use crate::signature::{Function, Kind};
use crate::template::Template;

mod plan;

/// Writes the function anew, with its body under the lock.
pub(crate) fn expand(function: &Function, args: &Args) -> TokenStream {
    let (inner_attributes, statements) = function.split_body();
    let inside = match &function.kind {
        Kind::Async | Kind::Sync => locked(function, &function.body, &statements, args),
        Kind::Future {
            block,
            parameters,
            rest,
        } => {
            let locked = locked(function, block, rest, args);
            let block = Group::new(Delimiter::Brace, quote!(#parameters #locked));
            future::with_block(statements, &block)
        }
    };
    let head = &function.head;
    let mut braces = Group::new(Delimiter::Brace, quote!(#inner_attributes #inside));
    // With other braces than the user's own, `dead_code` would fall silent.
    braces.set_span(function.body.span());
    quote!(#head #braces)
}

/// Runs statements under the lock. They come from the braces `block`.
fn locked(
    function: &Function,
    block: &Group,
    statements: &TokenStream,
    args: &Args,
) -> TokenStream {
    let output = output(function);
    let plan = plan::plan(function, args);
    let body = body(function, block, statements, &output, args);
    let run = run(function, &body, &output, args);
    quote!(#plan #run)
}

/// `Box::pin(async move { …; { the user's statements } })`, or a closure of the same.
fn body(
    function: &Function,
    block: &Group,
    statements: &TokenStream,
    output: &Type,
    args: &Args,
) -> TokenStream {
    let site = Span::mixed_site();
    let captures = function
        .bindings
        .iter()
        .filter(|binding| is_captured(binding, statements, args))
        .map(capture);
    let mut body = Group::new(Delimiter::Brace, statements.clone());
    // With the user's own braces, rustc would call them unnecessary.
    body.set_span(site.located_at(block.span()));
    if let Kind::Sync = function.kind {
        return quote_spanned! {site=>
            move || -> #output {
                #(#captures)*
                #body
            }
        };
    }
    // It never runs. It tells the compiler what the body returns, as the signature would.
    let edge = quote_spanned! {site.located_at(output.span())=>
        if let ::core::option::Option::Some(edge) = ::core::option::Option::None::<#output> {
            return edge;
        }
    };
    quote_spanned! {site=>
        ::std::boxed::Box::pin(async move {
            #(#captures)*
            #edge
            #body
        })
    }
}

/// Tells whether the body has to take an argument over, whole, so that it is dropped before the
/// lock is released.
///
/// An argument that nothing uses is left alone: it should go on being reported as unused.
fn is_captured(binding: &Binding, statements: &TokenStream, args: &Args) -> bool {
    let name = &binding.name;
    let uses = |option: &Option<Expr>| {
        option
            .as_ref()
            .is_some_and(|value| mentions(&value.to_token_stream(), name))
    };
    let mut placeholders = args.keys.iter().flat_map(Template::placeholders);
    name.to_string().starts_with('_')
        || mentions(statements, name)
        // What `or_else` still needs cannot be given away.
        || !uses(&args.or_else)
            && (uses(&args.client) || placeholders.any(|it| binding.is(&it.root)))
}

/// `let _ = &name;`: a mere mention of a part, `name.id`, would capture that part alone.
fn capture(Binding { name, cfg, .. }: &Binding) -> TokenStream {
    let site = Span::mixed_site();
    let underscore = name.to_string().starts_with('_');
    let allow =
        underscore.then(|| quote_spanned!(site=> #[allow(clippy::used_underscore_binding)]));
    quote_spanned!(site=> #(#cfg)* #allow let _ = &#name;)
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
