use expect_test::{Expect, expect};
use proc_macro2::TokenStream;
use quote::quote;

/// Compares with what the attribute makes of an item, formatted.
#[track_caller]
fn check(args: TokenStream, item: &TokenStream, expected: &Expect) {
    let expanded = crate::expand(args, item);
    let file = syn::parse2(expanded).expect("the expansion is a file of items");
    expected.assert_eq(&prettyplease::unparse(&file));
}

/// Puts a method into an `impl`, where it may use `self`.
#[track_caller]
fn check_method(args: TokenStream, item: &TokenStream, expected: &Expect) {
    let expanded = crate::expand(args, item);
    let file = syn::parse2(quote!(impl S { #expanded })).expect("the expansion is a method");
    expected.assert_eq(&prettyplease::unparse(&file));
}

#[test]
fn the_expansion_of_a_method_fits_on_a_screen() {
    check_method(
        quote!(key = "order:<id>", lease = "30s"),
        &quote! {
            pub async fn pay(&self, id: OrderId) -> Result<Receipt, OrderError> {
                self.charge(id).await
            }
        },
        &expect![[r#"
            impl S {
                pub async fn pay(&self, id: OrderId) -> Result<Receipt, OrderError> {
                    let __rlock_plan = ::rlock_core::__private::Plan::new(
                            ::core::concat!("order:<id>\n", ::core::module_path!(), "::pay"),
                            ::rlock_core::__private::key(
                                &[
                                    ::rlock_core::__private::Part::Text("order:"),
                                    ::rlock_core::__private::value(&id),
                                ],
                            ),
                        )
                        .lease(::core::time::Duration::new(30u64, 0u32));
                    let __rlock_run = {
                        let __rlock_body = ::rlock_core::__private::Box::pin(async move {
                            let _ = &self;
                            #[allow(clippy::shadow_same)]
                            let id = id;
                            let _ = &id;
                            if let ::core::option::Option::Some(__rlock_edge) = ::core::option::Option::None::<
                                Result<Receipt, OrderError>,
                            > {
                                return __rlock_edge;
                            }
                            {
                                const _: () = ();
                                self.charge(id).await
                            }
                        });
                        ::rlock_core::__private::returned_by(&__rlock_body)
                            .__rlock_judged()
                            .run(__rlock_plan, __rlock_body)
                    };
                    __rlock_run.await
                }
            }
        "#]],
    );
}

#[test]
fn the_expansion_of_a_synchronous_method_fits_on_a_screen_too() {
    check_method(
        quote!(key = "order:<id:08>", wait = "0s"),
        &quote! {
            pub fn pay(&self, id: OrderId) -> Result<Receipt, OrderError> {
                self.charge(id)
            }
        },
        &expect![[r#"
            impl S {
                pub fn pay(&self, id: OrderId) -> Result<Receipt, OrderError> {
                    let __rlock_plan = ::rlock_core::__private::Plan::new(
                            ::core::concat!("order:<id:08>\n", ::core::module_path!(), "::pay"),
                            ::rlock_core::__private::key(
                                &[
                                    ::rlock_core::__private::Part::Text("order:"),
                                    ::rlock_core::__private::value(
                                        &::core::format_args!("{:08}", & id),
                                    ),
                                ],
                            ),
                        )
                        .wait(::core::time::Duration::new(0u64, 0u32));
                    #[allow(clippy::result_large_err)]
                    let __rlock_outcome = ::rlock_core::__private::run_blocking(
                        __rlock_plan,
                        move || -> Result<Receipt, OrderError> {
                            let _ = &self;
                            #[allow(clippy::shadow_same)]
                            let id = id;
                            let _ = &id;
                            {
                                const _: () = ();
                                self.charge(id)
                            }
                        },
                    );
                    ::rlock_core::__private::returned(&__rlock_outcome)
                        .__rlock_judged()
                        .or_error(__rlock_outcome)
                }
            }
        "#]],
    );
}

#[test]
fn of_a_method_by_async_trait_the_boxed_block_is_locked() {
    check_method(
        quote!(key = "<self.name>:<id>"),
        &quote! {
            fn pay<'life0, 'async_trait>(&'life0 self, __arg1: Order)
                -> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = Result<R, E>> + ::core::marker::Send + 'async_trait>>
            where
                'life0: 'async_trait,
            {
                Box::pin(async move {
                    let __self = self;
                    let Order { id } = { let __arg1 = __arg1; __arg1 };
                    let __ret: Result<R, E> = { __self.charge(id).await };
                    __ret
                })
            }
        },
        &expect![[r#"
            impl S {
                fn pay<'life0, 'async_trait>(
                    &'life0 self,
                    __arg1: Order,
                ) -> ::core::pin::Pin<
                    Box<
                        dyn ::core::future::Future<
                            Output = Result<R, E>,
                        > + ::core::marker::Send + 'async_trait,
                    >,
                >
                where
                    'life0: 'async_trait,
                {
                    Box::pin(async move {
                        let Order { id } = {
                            let __arg1 = __arg1;
                            __arg1
                        };
                        let __rlock_plan = ::rlock_core::__private::Plan::new(
                            ::core::concat!("<self.name>:<id>\n", ::core::module_path!(), "::pay"),
                            ::rlock_core::__private::key(
                                &[
                                    ::rlock_core::__private::value(&self.name),
                                    ::rlock_core::__private::Part::Text(":"),
                                    ::rlock_core::__private::value(&id),
                                ],
                            ),
                        );
                        let __rlock_run = {
                            let __rlock_body = ::rlock_core::__private::Box::pin(async move {
                                let _ = &self;
                                #[allow(clippy::shadow_same)]
                                let id = id;
                                let _ = &id;
                                if let ::core::option::Option::Some(__rlock_edge) = ::core::option::Option::None::<
                                    Result<R, E>,
                                > {
                                    return __rlock_edge;
                                }
                                {
                                    const _: () = ();
                                    let __self = self;
                                    let __ret: Result<R, E> = { __self.charge(id).await };
                                    __ret
                                }
                            });
                            ::rlock_core::__private::returned_by(&__rlock_body)
                                .__rlock_judged()
                                .run(__rlock_plan, __rlock_body)
                        };
                        __rlock_run.await
                    })
                }
            }
        "#]],
    );
}

#[test]
fn every_option_becomes_one_call() {
    check(
        quote! {
            key = ["account:<from.id()>", "account:<pair.0>"],
            client = locks,
            lease = LEASE,
            wait = "0s",
            watchdog = false,
            max_hold = "1m30s",
            at_least = "1500ms",
            on_lost = "continue",
            or_else = |error| Outcome::Skipped(error),
            crate = ::facade::rlock,
        },
        &quote! {
            async fn transfer(locks: &LockClient, from: Account, pair: (u64, u64)) -> Outcome {
                go(from, pair).await
            }
        },
        &expect![[r#"
            async fn transfer(locks: &LockClient, from: Account, pair: (u64, u64)) -> Outcome {
                let __rlock_plan = ::facade::rlock::__private::Plan::new(
                        ::core::concat!(
                            "account:<from.id()>\n", ::core::module_path!(), "::transfer"
                        ),
                        ::facade::rlock::__private::key(
                            &[
                                ::facade::rlock::__private::Part::Text("account:"),
                                ::facade::rlock::__private::value(&from.id()),
                            ],
                        ),
                    )
                    .and(
                        ::facade::rlock::__private::key(
                            &[
                                ::facade::rlock::__private::Part::Text("account:"),
                                ::facade::rlock::__private::value(&pair.0),
                            ],
                        ),
                    )
                    .client(&locks)
                    .lease(LEASE)
                    .wait(::core::time::Duration::new(0u64, 0u32))
                    .watchdog(false)
                    .max_hold(::core::time::Duration::new(90u64, 0u32))
                    .at_least(::core::time::Duration::new(1u64, 500000000u32))
                    .continue_when_lost();
                let __rlock_run = {
                    let __rlock_run = ::facade::rlock::__private::run_or_else(
                        __rlock_plan,
                        |error| Outcome::Skipped(error),
                        ::facade::rlock::__private::Box::pin(async move {
                            #[allow(clippy::shadow_same)]
                            let locks = locks;
                            let _ = &locks;
                            #[allow(clippy::shadow_same)]
                            let from = from;
                            let _ = &from;
                            #[allow(clippy::shadow_same)]
                            let pair = pair;
                            let _ = &pair;
                            if let ::core::option::Option::Some(__rlock_edge) = ::core::option::Option::None::<
                                Outcome,
                            > {
                                return __rlock_edge;
                            }
                            {
                                const _: () = ();
                                go(from, pair).await
                            }
                        }),
                    );
                    ::facade::rlock::__private::returned_by(&__rlock_run).__rlock_judged();
                    __rlock_run
                };
                __rlock_run.await
            }
        "#]],
    );
}

#[test]
fn the_body_takes_the_arguments_over_but_for_what_or_else_needs() {
    check(
        quote!(key = "night:<id>", or_else = |_| fallback),
        &quote! {
            async fn run(
                mut used: A,
                #[allow(unused)] unused: B,
                _held: C,
                #[cfg(unix)] Pair { mut left, right, id }: Pair,
                fallback: D,
            ) -> impl Future<Output = ()> {
                #![allow(dead_code)]
                println!("{used} {}", left.unused)
            }
        },
        &expect![[r#"
            async fn run(
                used: A,
                unused: B,
                _held: C,
                #[cfg(unix)]
                Pair { left, right, id }: Pair,
                fallback: D,
            ) -> impl Future<Output = ()> {
                #![allow(dead_code)]
                let __rlock_plan = ::rlock_core::__private::Plan::new(
                    ::core::concat!("night:<id>\n", ::core::module_path!(), "::run"),
                    ::rlock_core::__private::key(
                        &[
                            ::rlock_core::__private::Part::Text("night:"),
                            ::rlock_core::__private::value(&id),
                        ],
                    ),
                );
                let __rlock_run = {
                    let __rlock_run = ::rlock_core::__private::run_or_else(
                        __rlock_plan,
                        |_| fallback,
                        ::rlock_core::__private::Box::pin(async move {
                            #[allow(clippy::shadow_same)]
                            let mut used = used;
                            #[allow(unused)]
                            #[allow(clippy::shadow_same)]
                            let unused = unused;
                            #[allow(
                                clippy::shadow_same,
                                clippy::used_underscore_binding,
                                clippy::no_effect_underscore_binding
                            )]
                            let _held = _held;
                            #[cfg(unix)]
                            #[allow(clippy::shadow_same)]
                            let mut left = left;
                            #[cfg(unix)]
                            #[allow(clippy::shadow_same)]
                            let id = id;
                            #[cfg(unix)]
                            let _ = &id;
                            if let ::core::option::Option::Some(__rlock_edge) = ::core::option::Option::None::<
                                _,
                            > {
                                return __rlock_edge;
                            }
                            {
                                const _: () = ();
                                println!("{used} {}", left.unused)
                            }
                        }),
                    );
                    ::rlock_core::__private::returned_by(&__rlock_run).__rlock_judged();
                    __rlock_run
                };
                __rlock_run.await
            }
        "#]],
    );
}

#[test]
fn impl_trait_is_left_out_of_the_hint_for_the_return_type() {
    let item = quote! {
        async fn list() -> Result<(impl Iterator<Item = u8>, Vec<Box<dyn Fn(u8)>>), E> { todo() }
    };
    let expanded = crate::expand(quote!(key = "k"), &item)
        .to_string()
        .replace(' ', "");
    assert!(
        expanded.contains("None::<Result<(_,Vec<Box<dynFn(u8)>>),E>>"),
        "{expanded}"
    );
}
