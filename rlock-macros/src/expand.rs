//! Expands an annotated function: renders its key, boxes its body, and hands both to the core.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Path, Type, parse_quote, parse_quote_spanned};

use self::arguments::Arguments;
use crate::args::Args;
use crate::future;
use crate::signature::{Function, Kind};

mod arguments;
mod instrument;
mod keys;
mod plan;

pub(crate) use self::keys::texts;

/// Rewrites the function so that its body runs under the lock.
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
    let body = body(
        function,
        block,
        statements,
        &arguments.take(),
        &output,
        args,
    );
    let run = run(function, &body, &output, args);
    quote!(#plan #run)
}

/// `Box::pin(async move { …; { the user's statements } })`, or a closure of the same.
///
/// All braces and the closure have the user's spans, because only then errors look as without the attribute. The
/// outer braces have this crate's edition. From 2024 on, a block drops the temporaries of its last expression before
/// its variables, and so before the arguments. Functions of all editions drop them in this order.
fn body(
    function: &Function,
    block: &Group,
    statements: &TokenStream,
    arguments: &TokenStream,
    output: &Type,
    args: &Args,
) -> TokenStream {
    let site = Span::mixed_site();
    let around = site.located_at(block.span());
    let user = block.span_open();
    // Around a lone expression, rustc would call the inner braces unnecessary.
    let not_alone = quote_spanned!(site=> const _: () = (););
    let quiet = quiet_blocks(statements.clone());
    let statements = quiet.as_ref().unwrap_or(statements);
    let body = braces(quote!(#not_alone #statements), block.span());
    let guard = guard(args);
    if let Kind::Sync = function.kind {
        let generics = mention_generics(function, statements);
        let inside = braces(quote!(#generics #arguments #guard #body), around);
        // An error may show the head of the closure: it looks like that of the function.
        let head = user.located_at(function.signature.fn_token.span);
        return quote_spanned!(head=> move || -> #output #inside);
    }
    // It never runs. It tells the compiler what the body returns, as the signature would. An error
    // may show its variable: it looks like the type.
    let edge = Ident::new("__rlock_edge", output.span());
    let edge = quote_spanned! {site=>
        if let ::core::option::Option::Some(#edge) = ::core::option::Option::None::<#output> {
            return #edge;
        }
    };
    let inside = braces(quote!(#arguments #guard #edge #body), around);
    let future = quote_spanned!(user=> async move #inside);
    let core = core(args, site);
    quote_spanned!(site=> #core::Box::pin(#future))
}

/// `let lock = hold();`, with the name of the option `guard`.
pub(crate) fn guard(args: &Args) -> Option<TokenStream> {
    let name = args.guard.as_ref()?;
    let site = Span::mixed_site();
    let core = core(args, site);
    Some(quote_spanned!(site=> let #name = #core::hold();))
}

/// Gives the braces of blocks that a macro passed on, as `$body:block`, the span of an expansion. With the span of the
/// macro's caller alone, rustc would call them unnecessary. Returns `None` if there are no such blocks.
fn quiet_blocks(tokens: TokenStream) -> Option<TokenStream> {
    let mut found = false;
    let quiet = |token: TokenTree| {
        let TokenTree::Group(group) = &token else {
            return token;
        };
        let passed_on = match group.delimiter() {
            Delimiter::None => future::braces(token.clone()),
            _ => None,
        };
        let inside = if let Some(block) = passed_on {
            let inside = quiet_blocks(block.stream()).unwrap_or_else(|| block.stream());
            braces(inside, Span::mixed_site().located_at(block.span())).into_token_stream()
        } else if let Some(inside) = quiet_blocks(group.stream()) {
            inside
        } else {
            return token;
        };
        found = true;
        let mut quiet = Group::new(group.delimiter(), inside);
        quiet.set_span(group.span());
        quiet.into()
    };
    let tokens = tokens.into_iter().map(quiet).collect();
    found.then_some(tokens)
}

/// Uses the type parameters of an empty function, because clippy does not report them as unused there.
fn mention_generics(function: &Function, statements: &TokenStream) -> Option<TokenStream> {
    let site = Span::mixed_site();
    let types = function.signature.generics.type_params();
    let types = types.map(|parameter| &parameter.ident);
    statements
        .is_empty()
        .then(|| quote_spanned!(site=> #(let _: ::core::marker::PhantomData<#types>;)*))
}

fn braces(inside: TokenStream, span: Span) -> Group {
    let mut braces = Group::new(Delimiter::Brace, inside);
    braces.set_span(span);
    braces
}

/// `return { let body = …; returned_by(&body).__rlock_judged().run(plan, body) }.await;`, to be blamed on the return type if
/// that cannot hold an error, or is a future. The borrowed variable ends with the block, so the function's future does
/// not store it.
///
/// The type is left to inference: named, it would be reported twice. `on_error` comes before the
/// body, which takes the arguments over. `return` is written out, because clippy would report its absence as the
/// user's where `clippy::implicit_return` is on.
fn run(function: &Function, body: &TokenStream, output: &Type, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let at_type = site.located_at(future::last_span(output));
    if let Kind::Sync = function.kind {
        return run_blocking(body, output, at_type, args);
    }
    let run = Ident::new("__rlock_run", at_type);
    let start = if let Some((on_error, span)) = on_error(output, at_type, args) {
        let site = site.located_at(span);
        let core = core(args, site);
        let plan = plan::name(site);
        let judged = judged("returned_by", &run, at_type, args);
        // A future as the output is not a forgotten `await`.
        let allow = args
            .allow_future_output
            .then(|| quote_spanned!(site=> #[allow(clippy::async_yields_async)]));
        quote_spanned! {site=>
            #allow
            let #run = #core::run_on_error(#plan, #on_error, #body);
            #judged;
            #run
        }
    } else {
        let plan = plan::name(at_type);
        let local = Ident::new("__rlock_body", site);
        let bind = quote_spanned!(site=> let #local = #body;);
        let judged = judged("returned_by", &local, at_type, args);
        quote_spanned!(at_type=> #bind #judged.run(#plan, #local))
    };
    quote_spanned!(at_type=> let #run = { #start }; return #run.await;)
}

/// Expands to `let outcome = run_blocking(plan, body); return returned(&outcome).__rlock_judged().or_error(outcome);`. If the
/// output is a future, the error points at the return type.
fn run_blocking(body: &TokenStream, output: &Type, at_type: Span, args: &Args) -> TokenStream {
    let outcome = Ident::new("__rlock_outcome", at_type);
    let core_at_type = core(args, at_type);
    let plan = plan::name(at_type);
    // clippy has already checked the same type in the signature.
    let run = quote_spanned! {at_type=>
        #[allow(clippy::result_large_err)]
        let #outcome = #core_at_type::run_blocking(#plan, #body);
    };
    let judged = judged("returned", &outcome, at_type, args);
    let Some((on_error, span)) = on_error(output, at_type, args) else {
        return quote_spanned!(at_type=> #run return #judged.or_error(#outcome););
    };
    let site = at_type.located_at(span);
    let core = core(args, site);
    let handler = Ident::new("__rlock_on_error", site);
    let bind = quote_spanned!(site=> let #handler = #core::handler::<#output, _>(#on_error););
    let answer = quote_spanned!(site=> #outcome.unwrap_or_else(#handler));
    quote_spanned!(at_type=> #bind #run #judged; return #answer;)
}

/// `returned(&value).__rlock_judged()`, or `Value` if the output may run without the lock.
fn judged(returned: &str, value: &Ident, at_type: Span, args: &Args) -> TokenStream {
    if args.allow_future_output {
        let requirements = requirements(args, at_type);
        return quote_spanned!(at_type=> #requirements::Value);
    }
    let core = core(args, at_type);
    let returned = Ident::new(returned, at_type);
    quote_spanned!(at_type=> #core::#returned(&#value).__rlock_judged())
}

/// Returns the expression that converts a `LockError` to the output, and its span: `on_error`, inside `if_taken`.
fn on_error(output: &Type, at_type: Span, args: &Args) -> Option<(TokenStream, Span)> {
    let on_error = args.on_error.as_ref();
    let Some(value) = &args.if_taken else {
        return on_error.map(|on_error| (on_error.to_token_stream(), on_error.span()));
    };
    let site = at_type.located_at(value.span());
    let value = quote_spanned!(site=> || #value);
    let on_error = on_error.map_or_else(
        || {
            let requirements = requirements(args, at_type);
            // With the function's path, the compiler would report one error for each type that the function is a part
            // of.
            let error = Ident::new("__rlock_error", at_type);
            quote_spanned!(at_type=> |#error| #requirements::FromLockError::from_lock_error(#error))
        },
        ToTokens::to_token_stream,
    );
    let core = core(args, site);
    let handler = quote_spanned!(site=> #core::if_taken::<#output, _, _>(#value, #on_error));
    Some((handler, site))
}

/// The path of what the core keeps for this expansion. An error is shown where `site` is.
fn core(args: &Args, site: Span) -> TokenStream {
    core_of(args.krate.as_ref(), site)
}

fn core_of(krate: Option<&Path>, site: Span) -> TokenStream {
    let krate = krate_of(krate, site);
    quote_spanned!(site=> #krate::__private)
}

/// The path of the requirements on types of the user, which errors of the compiler show.
fn requirements(args: &Args, site: Span) -> TokenStream {
    requirements_of(args.krate.as_ref(), site)
}

fn requirements_of(krate: Option<&Path>, site: Span) -> TokenStream {
    let krate = krate_of(krate, site);
    quote_spanned!(site=> #krate::attribute)
}

fn krate_of(krate: Option<&Path>, site: Span) -> TokenStream {
    let Some(krate) = krate else {
        return quote_spanned!(site=> ::rlock_core);
    };
    let krate = krate.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(site));
        token
    });
    krate.collect()
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
    let mut output = function.return_type().unwrap_or_else(|| parse_quote!(()));
    Erase.visit_type_mut(&mut output);
    output
}

#[cfg(test)]
#[path = "expand/tests.rs"]
mod tests;
