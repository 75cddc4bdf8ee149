//! Recognizes functions that are not `async` but return a future, as async-trait makes them.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    AngleBracketedGenericArguments, Block, Expr, GenericArgument, Local, Pat, PathArguments, Stmt,
    Token, Type, TypeParamBound, TypePath, parse_quote_spanned,
};

use crate::bindings::{self, Binding};

/// Returns the output of a future of type `ty`: the written type, as in `impl Future<Output = R>` and `Pin<Box<dyn
/// Future<Output = R>>>`, else a projection of `ty`, else `_`.
pub(crate) fn output(ty: &Type) -> Type {
    if let Some(written) = written_output(ty) {
        return written.clone();
    }
    let site = Span::mixed_site().located_at(last_span(ty));
    match ty {
        Type::ImplTrait(_) => parse_quote_spanned!(site=> _),
        ty => parse_quote_spanned!(site=> <#ty as ::core::future::Future>::Output),
    }
}

/// Returns the span for an error about a type: the last word of a path, else the start of the type.
pub(crate) fn last_span(ty: &Type) -> Span {
    match ty {
        Type::Path(TypePath { path, .. }) => path.segments.last().span(),
        ty => ty.span(),
    }
}

fn written_output(ty: &Type) -> Option<&Type> {
    match ty {
        Type::ImplTrait(future) => output_of_bounds(&future.bounds),
        Type::TraitObject(future) => output_of_bounds(&future.bounds),
        Type::Paren(inner) => written_output(&inner.elem),
        Type::Group(inner) => written_output(&inner.elem),
        Type::Path(TypePath {
            qself: None, path, ..
        }) => {
            let last = path.segments.last()?;
            (last.ident == "Pin" || last.ident == "Box").then_some(())?;
            written_output(first_type(arguments(&last.arguments)?)?)
        }
        _ => None,
    }
}

fn output_of_bounds(bounds: &Punctuated<TypeParamBound, Token![+]>) -> Option<&Type> {
    bounds.iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return None;
        };
        let last = bound.path.segments.last()?;
        if last.ident != "Future" {
            return None;
        }
        arguments(&last.arguments)?
            .args
            .iter()
            .find_map(|argument| match argument {
                GenericArgument::AssocType(output) if output.ident == "Output" => Some(&output.ty),
                _ => None,
            })
    })
}

fn arguments(arguments: &PathArguments) -> Option<&AngleBracketedGenericArguments> {
    match arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments),
        _ => None,
    }
}

fn first_type(arguments: &AngleBracketedGenericArguments) -> Option<&Type> {
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// Finds the braces of a body that consists of `async move { … }` or `Box::pin(async move { … })`, with or without
/// `move`.
pub(crate) fn async_block(body: &TokenStream) -> Option<Group> {
    let tokens: Vec<TokenTree> = body.clone().into_iter().collect();
    match &*tokens {
        [TokenTree::Ident(asyncness), moving @ .., block]
            if asyncness == "async" && is_move(moving) =>
        {
            braces(block.clone())
        }
        [path @ .., TokenTree::Group(arguments)]
            if arguments.delimiter() == Delimiter::Parenthesis && is_box_pin(path) =>
        {
            async_block(&arguments.stream())
        }
        // A macro passed it on as `$body:expr`.
        [TokenTree::Group(passed_on)] if passed_on.delimiter() == Delimiter::None => {
            async_block(&passed_on.stream())
        }
        _ => None,
    }
}

fn is_move(words: &[TokenTree]) -> bool {
    match words {
        [] => true,
        [TokenTree::Ident(word)] => word == "move",
        _ => false,
    }
}

fn is_box_pin(path: &[TokenTree]) -> bool {
    let path: String = path.iter().map(ToString::to_string).collect();
    path == "Box::pin" || path.ends_with("::boxed::Box::pin")
}

/// Replaces the braces that [`async_block`] finds by a block with `move`.
///
/// A block without `move` compiles only if it borrows from references alone. Moving these references is equivalent.
pub(crate) fn with_block(body: TokenStream, block: &Group) -> TokenStream {
    let mut tokens: Vec<TokenTree> = body.into_iter().collect();
    if let Some(TokenTree::Group(last)) = tokens.pop() {
        let group = if let Some(braces) = braces(last.clone().into()) {
            if let Some(TokenTree::Ident(word)) = tokens.last()
                && word == "async"
            {
                tokens.push(Ident::new("move", word.span()).into());
            }
            let mut block = block.clone();
            block.set_span(braces.span());
            block
        } else {
            let mut group = Group::new(last.delimiter(), with_block(last.stream(), block));
            group.set_span(last.span());
            group
        };
        tokens.push(group.into());
    }
    tokens.into_iter().collect()
}

/// Takes the statements out of an async block with which async-trait rebinds the parameters, so that a key can name
/// the parts of one, and counts as a use.
///
/// Of `async fn pay(&self, id: Id, (total, tax): (Money, Money))` async-trait makes
/// `fn pay<'life0>(&'life0 self, id: Id, __arg2: (Money, Money))` with, ahead of the user's body,
/// the fake edge, `let __self = self;`, `let id = id;` and
/// `let (total, tax) = { let __arg2 = __arg2; __arg2 };`.
///
/// The variables of a pattern then stand in the place of the parameter. Returns the statements taken
/// out, and the rest.
pub(crate) fn take_parameters(
    statements: TokenStream,
    parameters: &mut Vec<Binding>,
) -> (Vec<Local>, TokenStream) {
    let Ok(parsed) = Block::parse_within.parse2(statements.clone()) else {
        return (Vec::new(), statements);
    };
    let mut taken = Vec::new();
    let mut rest = TokenStream::new();
    let mut ahead = true;
    for (index, statement) in parsed.into_iter().enumerate() {
        let rebound = match &statement {
            Stmt::Local(local) if ahead => parameter_of(local, parameters),
            _ => None,
        };
        let is_edge = index == 0 && matches!(statement, Stmt::Expr(Expr::If(_), None));
        ahead &= rebound.is_some() || is_edge;
        match (statement, rebound) {
            (Stmt::Local(local), Some(parameter)) if take(&local, parameter, parameters) => {
                taken.push(local);
            }
            (statement, _) => statement.to_tokens(&mut rest),
        }
    }
    if taken.is_empty() {
        (taken, statements)
    } else {
        (taken, rest)
    }
}

/// Finds the parameter that a `let` rebinds, if it does no more than that.
fn parameter_of(local: &Local, parameters: &[Binding]) -> Option<usize> {
    let name = variable(&local.init.as_ref()?.expr)?;
    parameters
        .iter()
        .position(|parameter| parameter.name == *name)
}

/// The variable that an expression is: `id`, or `{ let id = id; id }`.
fn variable(expression: &Expr) -> Option<&Ident> {
    match expression {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Block(block) => match &*block.block.stmts {
            [
                Stmt::Local(Local {
                    init: Some(init), ..
                }),
                Stmt::Expr(last, None),
            ] => variable(last).filter(|last| variable(&init.expr) == Some(last)),
            _ => None,
        },
        _ => None,
    }
}

/// Puts the variables of a pattern in the place of the parameter, which async-trait named. Returns
/// whether the names that the user wrote are in scope now: `let __self = self;` has no such name.
fn take(local: &Local, parameter: usize, parameters: &mut Vec<Binding>) -> bool {
    let Binding {
        name, mutability, ..
    } = &mut parameters[parameter];
    if let Pat::Ident(rebound) = &local.pat {
        let is_it = rebound.ident == *name;
        if is_it {
            *mutability = rebound.mutability;
        }
        return is_it;
    }
    if !name.to_string().starts_with("__arg") {
        return false;
    }
    let parts = bindings::of_pattern(&local.attrs, &local.pat);
    parameters.splice(parameter..=parameter, parts);
    true
}

#[cfg(test)]
#[path = "future/tests.rs"]
mod tests;

/// Takes the braces out of a token, also if a macro passed them on as `$body:block`.
pub(crate) fn braces(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Brace => Some(group),
            Delimiter::None => {
                let mut inside = group.stream().into_iter();
                let only = inside.next()?;
                inside.next().is_none().then_some(only).and_then(braces)
            }
            _ => None,
        },
        _ => None,
    }
}
