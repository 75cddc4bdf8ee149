//! Keeps the arguments that a `#[tracing::instrument]` below the attribute records. It is expanded later, with the
//! body that the lock generated.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;

use crate::mention::mentions;
use crate::signature::Function;

#[derive(Default)]
pub(super) struct Instrument {
    present: bool,
    skips_all: bool,
    skipped: TokenStream,
    rest: TokenStream,
}

impl Instrument {
    pub(super) fn of(function: &Function) -> Self {
        let mut instrument = Self::default();
        for attribute in function.attributes() {
            let tokens = attribute.meta.to_token_stream();
            if has_instrument(&tokens) {
                instrument.present = true;
                instrument.read(tokens);
            }
        }
        instrument
    }

    fn read(&mut self, tokens: TokenStream) {
        let mut skips = false;
        for token in tokens {
            let word = matches!(&token, TokenTree::Ident(word) if word == "skip");
            match token {
                TokenTree::Group(group) if skips => self.skipped.extend(group.stream()),
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(word) if word == "skip_all" => self.skips_all = true,
                token => self.rest.extend([token]),
            }
            skips = word;
        }
    }

    /// Returns whether an expression, such as that of `parent`, may use the argument. The expression may run after
    /// the body has consumed its arguments.
    pub(super) fn uses(&self, argument: &Ident) -> bool {
        mentions(&self.rest, argument)
    }

    /// Returns whether the span records the argument as a field.
    pub(super) fn records(&self, argument: &Ident) -> bool {
        self.present && !self.skips_all && !mentions(&self.skipped, argument)
    }
}

/// Returns whether this is `tracing::instrument`, or a `cfg_attr` of it.
fn has_instrument(attribute: &TokenStream) -> bool {
    attribute.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => word == "instrument",
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            has_instrument(&group.stream())
        }
        _ => false,
    })
}
