use super::Function;
use quote::quote;

fn names(item: proc_macro2::TokenStream) -> Vec<String> {
    let function = Function::parse(item).unwrap();
    function
        .bindings
        .iter()
        .map(|binding| binding.name.to_string())
        .collect()
}

#[test]
fn every_variable_of_the_parameters_is_found_in_patterns_too() {
    assert_eq!(
        names(quote! {
            async fn f(
                mut self: Arc<Self>,
                a: u8,
                mut b: u8,
                _: u8,
                (c, [d, e @ ..]): (u8, [u8; 3]),
                Order { id, total: Money(cents), .. }: Order,
                &r#type: &u8,
                (Ok(same) | Err(same)): Result<u8, u8>,
            ) -> R {}
        }),
        [
            "self", "a", "b", "c", "d", "e", "id", "cents", "r#type", "same"
        ]
    );
    assert!(
        names(quote!(
            fn f() {}
        ))
        .is_empty()
    );
}

#[test]
fn a_variable_has_the_condition_and_the_lints_of_its_parameter() {
    let function = Function::parse(quote!(
        async fn f(
            #[cfg(unix)]
            #[allow(unused)]
            a: u8,
            S {
                #[cfg(test)]
                b,
            }: S,
        ) {
        }
    ))
    .unwrap();
    let attributes: Vec<_> = function
        .bindings
        .iter()
        .map(|binding| binding.attributes.len())
        .collect();
    assert_eq!(attributes, [2, 1]);
}

#[test]
fn inner_attributes_are_set_apart_from_the_statements() {
    let function = Function::parse(quote!(
        pub async fn f() {
            #![allow(unused)]
            #[allow(dead_code)]
            let x = 1;
        }
    ))
    .unwrap();
    let (inner, rest) = function.split_body();
    assert_eq!(inner.to_string(), quote!(#![allow(unused)]).to_string());
    assert_eq!(
        rest.to_string(),
        quote!(#[allow(dead_code)] let x = 1;).to_string()
    );
}

#[test]
fn a_signature_that_cannot_be_read_is_refused_with_the_reason() {
    for (item, reason) in [
        (
            "fn f() -> Result<Box<Fn(u8) -> u8>, E> {}",
            "`Fn(…)` as a type needs `dyn`: write `dyn Fn(…)`",
        ),
        (
            "fn f(x: &mut FnMut()) -> R {}",
            "`FnMut(…)` as a type needs `dyn`: write `dyn FnMut(…)`",
        ),
        (
            "fn f(u8) -> R {}",
            "`#[distributed_lock]` cannot read this signature: expected `:`",
        ),
        (
            "fn f<F: Fn(u8)>(f: impl for<'a> Fn(&'a u8), u8) -> R where F: FnOnce() {}",
            "`#[distributed_lock]` cannot read this signature: expected `:`",
        ),
    ] {
        let error = Function::parse(item.parse().unwrap()).err().expect(item);
        assert_eq!(error.to_string(), reason, "{item}");
    }
}

#[test]
fn methods_of_all_kinds_are_functions() {
    for method in [
        quote!(
            pub(crate) async unsafe fn f<'a, T: Tr<'a>>(&'a self) -> &'a T
            where
                T: Sized,
            {
            }
        ),
        quote!(default async fn f() {}),
        quote!(
            #[doc = "x"]
            async fn f(self: Pin<&mut Self>) -> impl Tr {}
        ),
        quote!(
            const fn f() {}
        ),
    ] {
        assert!(Function::parse(method).is_ok());
    }
}
