//! What is left of a rejected attribute: the item as it was, beside the errors.

use proc_macro2::TokenStream;
use quote::quote;

use crate::errors::Errors;

/// Keeps the item, so that nothing else breaks and editors go on working inside of it.
pub(crate) fn keep(item: &TokenStream, errors: Errors) -> TokenStream {
    let errors = errors.into_tokens();
    quote! {
        #item
        #errors
    }
}
