//! Tests which functions count as returning the future of one `async` block.

use super::{async_block, take_parameters, with_block};
use crate::signature::Function;
use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote};

/// Tokens as `macro_rules!` passes on an expression or a block.
fn passed_on(tokens: TokenStream) -> TokenStream {
    Group::new(Delimiter::None, tokens).into_token_stream()
}

#[test]
fn the_block_of_a_future_is_found_and_replaced() {
    let other = Group::new(Delimiter::Brace, quote!(other()));
    for (body, replaced) in [
        (quote!(async move { a() }), quote!(async move { other() })),
        (
            quote!(Box::pin(async move { a() })),
            quote!(Box::pin(async move { other() })),
        ),
        (
            quote!(::std::boxed::Box::pin(async move { a() })),
            quote!(::std::boxed::Box::pin(async move { other() })),
        ),
        (quote!(async { a() }), quote!(async move { other() })),
        (
            quote!(Box::pin(async { a() })),
            quote!(Box::pin(async move { other() })),
        ),
        (
            passed_on(quote!(async { a() })),
            passed_on(quote!(async move { other() })),
        ),
        (
            [quote!(async), passed_on(quote!({ a() }))]
                .into_iter()
                .collect(),
            quote!(async move { other() }),
        ),
    ] {
        let block = async_block(&body).expect("it is there");
        assert_eq!(block.stream().to_string(), "a ()");
        assert_eq!(with_block(body, &other).to_string(), replaced.to_string());
    }
}

#[test]
fn a_body_that_does_more_than_make_a_future_is_left_alone() {
    for body in [
        quote!(let id = id(); async move { id }),
        quote!(async || { a() }),
        quote!(async move { a() }.boxed()),
        quote!(Box::pin(a())),
        quote!(Box::pin(async move { a() }) as _),
        quote!(Rc::pin(async move { a() })),
        quote!(),
    ] {
        assert!(async_block(&body).is_none(), "{body}");
    }
}

#[test]
fn statements_of_the_user_stay_where_they_are() {
    let mut function = Function::parse(quote!(
        fn f(order: Order) -> R {}
    ))
    .unwrap();
    let statements = quote! {
        let other = order(order);
        let Order { id } = order;
        id
    };
    let (taken, rest) = take_parameters(statements.clone(), &mut function.bindings);
    assert!(taken.is_empty());
    assert_eq!(function.bindings.len(), 1);
    assert_eq!(rest.to_string(), statements.to_string());
}
