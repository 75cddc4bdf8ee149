//! Expands a rejected attribute: emits the errors, and keeps the function as it was.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use crate::args::Args;
use crate::errors::Errors;
use crate::expand;
use crate::signature::Function;

/// Keeps the item, so that nothing else breaks and editors go on working inside it.
pub(crate) fn keep(item: &TokenStream, errors: Errors) -> TokenStream {
    let errors = errors.into_tokens();
    quote! {
        #item
        #errors
    }
}

/// Keeps a function, with the variable of its hold, and without warnings about the arguments that only the rejected
/// options use.
pub(crate) fn keep_function(
    item: &TokenStream,
    function: &Function,
    args: &Args,
    errors: Errors,
) -> TokenStream {
    let site = Span::mixed_site();
    let allow = quote_spanned!(site=> #[allow(unused_variables)]);
    let hides_a_parameter = |name: &Ident| function.binding(&name.to_string()).is_some();
    let with_guard = match &args.guard {
        Some(name) if hides_a_parameter(name) => None,
        _ => expand::guard(args).map(|guard| function.with_statement(&guard)),
    };
    let item = with_guard.as_ref().unwrap_or(item);
    keep(&quote!(#allow #item), errors)
}

#[cfg(test)]
mod tests {
    use quote::quote;

    #[test]
    fn a_rejected_attribute_leaves_the_function_as_it_was_and_adds_the_errors() {
        for args in [
            quote!(),
            quote!(key = "<unknown>"),
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
}
