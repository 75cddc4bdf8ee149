//! What is left of a rejected attribute: the item as it was, beside the errors.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::errors::Errors;

/// Keeps the item, so that nothing else breaks and editors go on working inside it.
pub(crate) fn keep(item: &TokenStream, errors: Errors) -> TokenStream {
    let errors = errors.into_tokens();
    quote! {
        #item
        #errors
    }
}

/// Keeps a function, without warnings about the arguments that only the rejected options use.
pub(crate) fn keep_function(item: &TokenStream, errors: Errors) -> TokenStream {
    let site = Span::mixed_site();
    let allow = quote_spanned!(site=> #[allow(unused_variables)]);
    keep(&quote!(#allow #item), errors)
}

#[cfg(test)]
mod tests {
    use quote::quote;

    #[test]
    fn a_rejected_attribute_leaves_the_function_as_it_was_beside_the_errors() {
        for args in [
            quote!(),
            quote!(key = "<nobody>"),
            quote!(key = ),
            quote!(key = "k", lease = f(1, ) g),
        ] {
            let item = quote! {
                #[other] pub async fn pay(&self, id: u64) -> Result<(), E> { let half = ; }
            };
            let expanded = crate::expand(args.clone(), &item).to_string();
            let kept = quote!(#[allow(unused_variables)] #item).to_string();
            let rest = expanded
                .strip_prefix(&kept)
                .unwrap_or_else(|| panic!("{expanded}"));
            assert!(rest.contains("compile_error !"), "{args}: {rest}");
        }
    }

    #[test]
    fn several_mistakes_are_reported_at_once() {
        let args = quote!(key = "<oder>", lease = "0s", wat = 1, watchdog = "no", key = "<id", lease = "1s" wait = "5s");
        let item = quote! { const fn pay(order: u64) -> R {} };
        let expanded = crate::expand(args, &item).to_string();
        assert_eq!(expanded.matches("compile_error").count(), 9, "{expanded}");
    }
}
