//! Moves the arguments into the body, so that they are dropped as usual, and before the release.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, FnArg, Local, Pat, PatIdent, Signature};

use super::instrument::Instrument;
use crate::args::Args;
use crate::bindings::{self, Binding};
use crate::mention::mentions;
use crate::signature::{Function, Kind};
use crate::template::Template;

/// The arguments that the body of a function takes over.
pub(super) struct Arguments<'a> {
    taken: Vec<&'a Binding>,
    args: &'a Args,
    instrument: Instrument,
}

impl<'a> Arguments<'a> {
    pub(super) fn of(function: &'a Function, statements: &TokenStream, args: &'a Args) -> Self {
        let instrument = Instrument::of(function);
        let is_taken = |binding: &&Binding| {
            let used = is_used_by_an_option(args, binding);
            mentions(statements, &binding.name)
                // An argument that is still needed elsewhere cannot be moved into the body.
                || !args.answers().any(|value| uses(value, binding))
                    && !instrument.uses(&binding.name)
                    && match &function.kind {
                        // A future captures only the arguments that it uses: it may have to be `Send` or `'static`.
                        Kind::Future { parameters, .. } => used || binds(parameters, binding),
                        Kind::Async | Kind::Sync => used || !binding.judged_in_place,
                    }
        };
        Self {
            taken: function.bindings.iter().filter(is_taken).collect(),
            args,
            instrument,
        }
    }

    /// `let id = id;` for each of them, at the start of the body.
    ///
    /// To borrow errors and to lints the new variable is what the argument was, so one that the body
    /// does not use goes on being reported; unless an option uses it.
    pub(super) fn take(&self) -> TokenStream {
        let site = Span::mixed_site();
        let take = |binding: &&Binding| {
            let Binding {
                name,
                mutability,
                attributes,
                ..
            } = binding;
            if name == "self" {
                return quote_spanned!(site=> let _ = &#name;);
            }
            let underscore = name.to_string().starts_with('_');
            let mut allow = quote_spanned!(site=> clippy::shadow_same);
            if underscore {
                allow.extend(quote_spanned! {site=>
                    , clippy::used_underscore_binding, clippy::no_effect_underscore_binding
                });
            }
            let is_used = is_used_by_an_option(self.args, binding) || self.instrument.records(name);
            let used = (!underscore && is_used)
                .then(|| quote_spanned!(site=> #(#attributes)* let _ = &#name;));
            quote_spanned! {site=>
                #(#attributes)*
                #[allow(#allow)]
                let #mutability #name = #name;
                #used
            }
        };
        self.taken.iter().map(take).collect()
    }

    /// Takes `mut` and the levels of lints from the parameters: they are the new variables' now.
    pub(super) fn strip(&self, signature: &mut Signature) {
        for input in &mut signature.inputs {
            if let FnArg::Typed(typed) = input
                && self.strip_pattern(&mut typed.pat)
            {
                typed
                    .attrs
                    .retain(|attribute| !bindings::sets_lints(attribute));
            }
        }
    }

    /// Does the same to the statements by which a block binds its parameters.
    pub(super) fn strip_statements(&self, statements: &[Local]) -> TokenStream {
        let mut stripped = TokenStream::new();
        for mut statement in statements.iter().cloned() {
            self.strip_pattern(&mut statement.pat);
            statement.to_tokens(&mut stripped);
        }
        stripped
    }

    /// Returns whether the pattern binds anything that is taken.
    fn strip_pattern(&self, pattern: &mut Pat) -> bool {
        let mut strip = Strip {
            arguments: self,
            found: false,
        };
        strip.visit_pat_mut(pattern);
        strip.found
    }
}

fn is_used_by_an_option(args: &Args, binding: &Binding) -> bool {
    let templates = args.keys.iter().map(|key| &key.template);
    let mut placeholders = templates.flat_map(Template::placeholders);
    placeholders.any(|placeholder| binding.is(&placeholder.root))
        || args.expressions().any(|value| uses(value, binding))
}

/// Returns whether one of the block's statements that bind parameters binds the variable.
fn binds(parameters: &[Local], binding: &Binding) -> bool {
    parameters.iter().any(|local| {
        let bound = bindings::of_pattern(&local.attrs, &local.pat);
        bound.iter().any(|bound| bound.name == binding.name)
    })
}

fn uses(value: &Expr, binding: &Binding) -> bool {
    mentions(&value.to_token_stream(), &binding.name)
}

struct Strip<'a> {
    arguments: &'a Arguments<'a>,
    found: bool,
}

impl VisitMut for Strip<'_> {
    fn visit_pat_ident_mut(&mut self, pattern: &mut PatIdent) {
        let mut taken = self.arguments.taken.iter();
        if taken.any(|binding| binding.name == pattern.ident) {
            self.found = true;
            if pattern.by_ref.is_none() {
                pattern.mutability = None;
            }
        }
        visit_mut::visit_pat_ident_mut(self, pattern);
    }
}
