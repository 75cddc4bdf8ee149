//! The expansion: render the key, box the body, hand both to the core.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprReference, Token, Type, parse_quote, parse_quote_spanned};

use crate::args::{Args, Wait};
use crate::duration::Time;
use crate::mention::mentions;
use crate::signature::{Binding, Function};
use crate::template::{Part, Template};

/// Writes the function anew, with its body under the lock.
pub(crate) fn expand(function: &Function, args: &Args) -> TokenStream {
    let (inner_attributes, statements) = function.split_body();
    let output = output(function);
    let plan = plan(function, args);
    let body = body(function, &statements, &output, args);
    let run = run(&body, &output, args);

    let head = &function.head;
    let mut braces = Group::new(Delimiter::Brace, quote!(#inner_attributes #plan #run));
    // With other braces than the user's own, `dead_code` would fall silent.
    braces.set_span(function.body.span());
    quote!(#head #braces)
}

/// `let plan = Plan::new(key(…)).client(…).lease(…);`
fn plan(function: &Function, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let core = core(args, site);
    let mut keys = args
        .keys
        .iter()
        .map(|template| key(function, template, args));
    let first = keys.next();
    let and = keys.map(|key| quote_spanned!(site=> .and(#key)));
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
    let on_lost = args
        .continue_when_lost
        .then(|| quote_spanned!(site=> .continue_when_lost()));
    quote_spanned! {site=>
        let plan = #core::Plan::new(#first)
            #(#and)* #client #lease #wait #watchdog #max_hold #at_least #on_lost;
    }
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
            let value = root.map(|root| placeholder.expression(root, literal));
            quote_spanned!(site=> #core::Part::Value(&#value))
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

/// `Box::pin(async move { …; { the user's statements } })`
fn body(function: &Function, statements: &TokenStream, output: &Type, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    let captures = function
        .bindings
        .iter()
        .filter(|binding| is_captured(binding, statements, args))
        .map(capture);
    let mut block = Group::new(Delimiter::Brace, statements.clone());
    // With the user's own braces, rustc would call them unnecessary.
    block.set_span(site.located_at(function.body.span()));
    // The `if let` never runs. It tells the compiler what the body returns, as the signature would.
    quote_spanned! {site=>
        ::std::boxed::Box::pin(async move {
            #(#captures)*
            if let ::core::option::Option::Some(edge) = ::core::option::Option::None::<#output> {
                return edge;
            }
            #block
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
fn capture(Binding { name, cfg }: &Binding) -> TokenStream {
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
fn run(body: &TokenStream, output: &Type, args: &Args) -> TokenStream {
    let site = Span::mixed_site();
    if let Some(or_else) = &args.or_else {
        let site = site.located_at(or_else.span());
        let core = core(args, site);
        quote_spanned!(site=> #core::run_or_else(plan, #or_else, #body).await)
    } else {
        let site = site.located_at(match output {
            Type::Path(output) => output.path.segments.last().span(),
            output => output.span(),
        });
        let core = core(args, site);
        let local = Ident::new("body", Span::mixed_site());
        let bind = quote_spanned!(Span::mixed_site()=> let #local = #body;);
        quote_spanned!(site=> #bind #core::run(plan, #local).await)
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
