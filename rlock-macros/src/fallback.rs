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
            let rest = expanded
                .strip_prefix(&item.to_string())
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
