//! Reads the annotated function: its kind, its parameters and its return type.

mod item;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Local, ReturnType, Signature, Token, Type, Visibility};

use crate::bindings::{self, Binding};
use crate::future;

/// A function, taken apart only as far as needed: the body stays the tokens that it was.
pub(crate) struct Function {
    /// All in front of the signature: attributes and visibility.
    pub(crate) front: TokenStream,
    pub(crate) signature: Signature,
    /// The braces and what is in them.
    pub(crate) body: Group,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) kind: Kind,
}

/// How a function runs, and so which part of it is to run under the lock.
pub(crate) enum Kind {
    /// An `async fn`: its body.
    Async,
    /// A plain `fn`: its body, on a thread that waits for the lock.
    Sync,
    /// A plain `fn` that is nothing but an async block: what is inside that block.
    Future {
        block: Group,
        /// Statements of the block that bind the parameters, to run ahead.
        parameters: Vec<Local>,
        /// The rest of the block.
        rest: TokenStream,
    },
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> syn::Result<Self> {
        let mut head: Vec<TokenTree> = item.clone().into_iter().collect();
        let last = head.pop();
        let head = TokenStream::from_iter(head);
        let (front, signature) = signature
            .parse2(head)
            .map_err(|error| item::no_function(item, &error))?;
        let Some(body) = last.and_then(future::braces) else {
            return Err(item::no_body(&signature));
        };
        let mut function = Self {
            front,
            body,
            bindings: bindings::of_parameters(&signature),
            kind: match signature.asyncness {
                Some(_) => Kind::Async,
                None => Kind::Sync,
            },
            signature,
        };
        if function.signature.asyncness.is_none()
            && let Some(block) = future::async_block(&function.split_body().1)
        {
            let (parameters, rest) =
                future::take_parameters(block.stream(), &mut function.bindings);
            function.kind = Kind::Future {
                block,
                parameters,
                rest,
            };
        }
        Ok(function)
    }

    /// Finds the variable that a placeholder starts from.
    pub(crate) fn binding(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.is(name))
    }

    /// Returns the function's attributes, except those above this one that are already expanded.
    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        let attributes = |input: ParseStream<'_>| {
            let attributes = input.call(Attribute::parse_outer)?;
            input.parse::<TokenStream>()?;
            Ok(attributes)
        };
        attributes.parse2(self.front.clone()).unwrap_or_default()
    }

    /// Splits the body into its inner attributes, which have to stay in front, and the rest.
    pub(crate) fn split_body(&self) -> (TokenStream, TokenStream) {
        let tokens: Vec<TokenTree> = self.body.stream().into_iter().collect();
        let mut attributes = 0;
        while let [
            TokenTree::Punct(hash),
            TokenTree::Punct(bang),
            TokenTree::Group(group),
            ..,
        ] = &tokens[attributes..]
            && hash.as_char() == '#'
            && bang.as_char() == '!'
            && group.delimiter() == Delimiter::Bracket
        {
            attributes += 3;
        }
        let (inner, rest) = tokens.split_at(attributes);
        (
            inner.iter().cloned().collect(),
            rest.iter().cloned().collect(),
        )
    }

    /// Returns the function with a statement before those of its body.
    pub(crate) fn with_statement(&self, statement: &TokenStream) -> TokenStream {
        let (inner_attributes, statements) = self.split_body();
        let statements = match &self.kind {
            Kind::Future { block, .. } => {
                let rest = block.stream();
                let block = Group::new(Delimiter::Brace, quote!(#statement #rest));
                future::with_block(statements, &block)
            }
            Kind::Async | Kind::Sync => quote!(#statement #statements),
        };
        let (front, signature) = (&self.front, &self.signature);
        let mut body = Group::new(Delimiter::Brace, quote!(#inner_attributes #statements));
        body.set_span(self.body.span());
        quote!(#front #signature #body)
    }

    /// The type that the body returns: of a future, what it resolves to.
    pub(crate) fn return_type(&self) -> Option<Type> {
        let written = self.written_type()?;
        Some(match self.kind {
            Kind::Future { .. } => future::output(written),
            Kind::Async | Kind::Sync => written.clone(),
        })
    }

    fn written_type(&self) -> Option<&Type> {
        match &self.signature.output {
            ReturnType::Default => None,
            ReturnType::Type(_, output) => Some(output),
        }
    }
}

fn signature(input: ParseStream<'_>) -> syn::Result<(TokenStream, Signature)> {
    let attributes = input.call(Attribute::parse_outer)?;
    let visibility: Visibility = input.parse()?;
    let default: Option<Token![default]> = input.parse()?;
    let front = quote!(#(#attributes)* #visibility #default);
    Ok((front, input.parse()?))
}

#[cfg(test)]
#[path = "signature/tests.rs"]
mod tests;
