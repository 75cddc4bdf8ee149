use super::{async_block, output, take_parameters, with_block};
use crate::signature::{Function, Kind};
use proc_macro2::{Delimiter, Group, TokenStream};
use quote::{ToTokens, quote};
use syn::parse_quote;

fn output_of(ty: TokenStream) -> String {
    output(&syn::parse2(ty).unwrap())
        .to_token_stream()
        .to_string()
}

#[test]
fn the_output_of_a_future_is_what_is_written_else_a_projection() {
    for future in [
        quote!(impl Future<Output = R>),
        quote!(impl Send + std::future::Future<Output = R> + 'a),
        quote!(Pin<Box<dyn Future<Output = R> + Send + 'async_trait>>),
        quote!(::core::pin::Pin<Box<(dyn ::core::future::Future<Output = R>)>>),
    ] {
        assert_eq!(output_of(future.clone()), "R", "{future}");
    }
    for other in [
        quote!(BoxFuture<'_, R>),
        quote!(Self::Future),
        quote!(<Self as Service>::Future),
        quote!(Pin<Box<dyn Fused<R>>>),
    ] {
        let projection: syn::Type = parse_quote!(<#other as ::core::future::Future>::Output);
        assert_eq!(output_of(other), projection.to_token_stream().to_string());
    }
    for opaque in [quote!(impl Future), quote!(impl IntoFuture<Output = R>)] {
        assert_eq!(output_of(opaque.clone()), "_", "{opaque}");
    }
}

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
fn what_does_more_than_to_make_a_future_is_left_alone() {
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
fn parameters_that_async_trait_binds_in_the_block_are_bound_ahead() {
    let function = Function::parse(quote! {
        fn f<'a>(&'a self, id: u8, __arg2: (u8, u8)) -> Pin<Box<dyn Future<Output = R> + 'a>> {
            Box::pin(async move {
                let __self = self;
                let id = id;
                let (left, _) = { let __arg2 = __arg2; __arg2 };
                let __ret: R = { let (mine, _) = id; left };
                __ret
            })
        }
    })
    .unwrap();
    let Kind::Future {
        parameters, rest, ..
    } = &function.kind
    else {
        panic!("it returns a future")
    };
    assert_eq!(
        quote!(#(#parameters)*).to_string(),
        quote!(let id = id; let (left, _) = { let __arg2 = __arg2; __arg2 };).to_string()
    );
    assert!(!rest.to_string().contains("__arg2"), "{rest}");
    let names: Vec<String> = function
        .bindings
        .iter()
        .map(|binding| binding.name.to_string())
        .collect();
    assert_eq!(names, ["self", "id", "left"]);
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
