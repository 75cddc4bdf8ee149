//! Collects all mistakes in one attribute, so that one compile reports them together.

use proc_macro2::{Span, TokenStream, TokenTree};

/// Returns an error at this place.
pub(crate) fn error<T>(at: Span, message: impl std::fmt::Display) -> syn::Result<T> {
    Err(syn::Error::new(at, message))
}

#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    /// Keeps the error of a result, and gives its value back.
    pub(crate) fn collect<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Writes the mistakes as `compile_error!` items; nothing if there are none.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let errors = self.0.map(syn::Error::into_compile_error);
        // Edition 2015 has no `::core`. All editions have the macro without a path.
        let is_path = |token: &TokenTree| match token {
            TokenTree::Punct(punct) => punct.as_char() == ':',
            TokenTree::Ident(ident) => ident == "core",
            _ => false,
        };
        let tokens = errors.into_iter().flatten();
        tokens.filter(|token| !is_path(token)).collect()
    }
}
