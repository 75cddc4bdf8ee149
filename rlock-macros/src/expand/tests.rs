use expect_test::{Expect, expect};
use proc_macro2::{Ident, TokenStream, TokenTree};
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
                    fn __rlock_function() -> &'static ::core::primitive::str {
                        ::core::any::type_name_of_val(&__rlock_function)
                    }
                    let __rlock_plan = ::rlock_core::__private::Plan::new(
                        "order:<id>",
                        __rlock_function,
                    );
                    let __rlock_key = ::rlock_core::__private::KeyText::new("order:");
                    let __rlock_key = __rlock_key
                        .value("id", ::rlock_core::attribute::KeyValue::<7usize>::as_display(&id));
                    let __rlock_plan = __rlock_plan.and(__rlock_key);
                    let __rlock_plan = __rlock_plan.lease(::core::time::Duration::new(30u64, 0u32));
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
                    return __rlock_run.await;
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
                    fn __rlock_function() -> &'static ::core::primitive::str {
                        ::core::any::type_name_of_val(&__rlock_function)
                    }
                    let __rlock_plan = ::rlock_core::__private::Plan::new(
                        "order:<id:08>",
                        __rlock_function,
                    );
                    let __rlock_key = ::rlock_core::__private::KeyText::new("order:");
                    let __rlock_key = __rlock_key
                        .value("id:08", &::core::format_args!("{:08}", & id));
                    let __rlock_plan = __rlock_plan.and(__rlock_key);
                    let __rlock_plan = __rlock_plan.wait(::core::time::Duration::new(0u64, 0u32));
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
                    return ::rlock_core::__private::returned(&__rlock_outcome)
                        .__rlock_judged()
                        .or_error(__rlock_outcome);
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
                        fn __rlock_function() -> &'static ::core::primitive::str {
                            ::core::any::type_name_of_val(&__rlock_function)
                        }
                        let __rlock_plan = ::rlock_core::__private::Plan::new(
                            "<self.name>:<id>",
                            __rlock_function,
                        );
                        let __rlock_key = ::rlock_core::__private::KeyText::new("");
                        let __rlock_key = __rlock_key
                            .value(
                                "self.name",
                                ::rlock_core::attribute::KeyValue::<1usize>::as_display(&self.name),
                            );
                        let __rlock_key = __rlock_key.text(":");
                        let __rlock_key = __rlock_key
                            .value(
                                "id",
                                ::rlock_core::attribute::KeyValue::<13usize>::as_display(&id),
                            );
                        let __rlock_plan = __rlock_plan.and(__rlock_key);
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
                        return __rlock_run.await;
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
                fn __rlock_function() -> &'static ::core::primitive::str {
                    ::core::any::type_name_of_val(&__rlock_function)
                }
                let __rlock_plan = ::facade::rlock::__private::Plan::new(
                    "account:<from.id()>",
                    __rlock_function,
                );
                let __rlock_key = ::facade::rlock::__private::KeyText::new("account:");
                let __rlock_key = __rlock_key
                    .value(
                        "from.id()",
                        ::facade::rlock::attribute::KeyValue::<9usize>::as_display(&from.id()),
                    );
                let __rlock_plan = __rlock_plan.and(__rlock_key);
                let __rlock_key = ::facade::rlock::__private::KeyText::new("account:");
                let __rlock_key = __rlock_key
                    .value(
                        "pair.0",
                        ::facade::rlock::attribute::KeyValue::<9usize>::as_display(&pair.0),
                    );
                let __rlock_plan = __rlock_plan.and(__rlock_key);
                let __rlock_plan = __rlock_plan.client(&locks);
                let __rlock_plan = __rlock_plan.lease(LEASE);
                let __rlock_plan = __rlock_plan.wait(::core::time::Duration::new(0u64, 0u32));
                let __rlock_plan = __rlock_plan.watchdog(false);
                let __rlock_plan = __rlock_plan.max_hold(::core::time::Duration::new(90u64, 0u32));
                let __rlock_plan = __rlock_plan
                    .at_least(::core::time::Duration::new(1u64, 500000000u32));
                let __rlock_plan = __rlock_plan.continue_when_lost();
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
                return __rlock_run.await;
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
                fn __rlock_function() -> &'static ::core::primitive::str {
                    ::core::any::type_name_of_val(&__rlock_function)
                }
                let __rlock_plan = ::rlock_core::__private::Plan::new(
                    "night:<id>",
                    __rlock_function,
                );
                let __rlock_key = ::rlock_core::__private::KeyText::new("night:");
                let __rlock_key = __rlock_key
                    .value("id", ::rlock_core::attribute::KeyValue::<7usize>::as_display(&id));
                let __rlock_plan = __rlock_plan.and(__rlock_key);
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
                return __rlock_run.await;
            }
        "#]],
    );
}

#[test]
fn the_hold_is_a_variable_between_the_arguments_and_the_body() {
    for item in [
        quote!(
            async fn pay(id: u64) -> R {
                body
            }
        ),
        quote!(
            fn pay(id: u64) -> R {
                body
            }
        ),
        quote!(
            fn pay(id: u64) -> impl Future<Output = R> {
                async move { body }
            }
        ),
    ] {
        let expanded = expanded(quote!(key = "k:<id>", guard = lock), &item);
        let (before, body) = expanded
            .split_once("letlock=::rlock_core::__private::hold();")
            .expect("a variable");
        assert!(before.ends_with("letid=id;let_=&id;"), "{before}");
        assert!(body.contains("{const_:()=();body}"), "{body}");
    }
}

#[test]
fn a_rejected_attribute_leaves_the_hold_in_the_body() {
    for item in [
        quote!(
            async fn pay() -> R {
                #![allow(dead_code)]
                lock.key()
            }
        ),
        quote!(
            fn pay() -> Pin<Box<dyn Future<Output = R>>> {
                Box::pin(async move { lock.key() })
            }
        ),
    ] {
        let args = quote!(key = "k", lease = "0s", guard = lock);
        let expanded = crate::expand(args, &item).to_string().replace(' ', "");
        assert!(expanded.contains("compile_error"), "{expanded}");
        let kept = "letlock=::rlock_core::__private::hold();lock.key()";
        assert!(expanded.contains(kept), "{expanded}");
    }
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

#[test]
fn a_key_of_a_list_borrows_it_after_the_other_placeholders_are_rendered() {
    check(
        quote!(key = "<shop.name()>:<shop.ids[].number>"),
        &quote!(
            fn close(shop: &Shop) -> Result<(), E> {}
        ),
        &expect![[r#"
            fn close(shop: &Shop) -> Result<(), E> {
                fn __rlock_function() -> &'static ::core::primitive::str {
                    ::core::any::type_name_of_val(&__rlock_function)
                }
                let __rlock_plan = ::rlock_core::__private::Plan::new(
                    "<shop.name()>:<shop.ids[].number>",
                    __rlock_function,
                );
                let __rlock_value0 = ::rlock_core::__private::KeyText::new("")
                    .value(
                        "shop.name()",
                        ::rlock_core::attribute::KeyValue::<1usize>::as_display(&shop.name()),
                    );
                let __rlock_plan = __rlock_plan
                    .and_list(
                        "<shop.name()>:<shop.ids[].number>",
                        shop.ids.iter(),
                        |__rlock_element| {
                            let __rlock_key = ::rlock_core::__private::KeyText::new("");
                            let __rlock_key = __rlock_key.and(&__rlock_value0);
                            let __rlock_key = __rlock_key.text(":");
                            let __rlock_key = __rlock_key
                                .value(
                                    "shop.ids[].number",
                                    ::rlock_core::attribute::KeyValue::<
                                        15usize,
                                    >::as_display(&__rlock_element.number),
                                );
                            __rlock_key
                        },
                    );
                #[allow(clippy::result_large_err)]
                let __rlock_outcome = ::rlock_core::__private::run_blocking(
                    __rlock_plan,
                    move || -> Result<(), E> {
                        #[allow(clippy::shadow_same)]
                        let shop = shop;
                        let _ = &shop;
                        {
                            const _: () = ();
                        }
                    },
                );
                return ::rlock_core::__private::returned(&__rlock_outcome)
                    .__rlock_judged()
                    .or_error(__rlock_outcome);
            }
        "#]],
    );
}

#[test]
fn a_shared_lock_is_an_option_of_the_plan() {
    let item = quote!(
        fn read(id: u8) -> Result<(), E> {}
    );
    let expanded = expanded(quote!(lease = "1s", shared, key = "config:<id>"), &item);
    assert_eq!(
        calls(&expanded),
        [
            "and(__rlock_key)",
            "shared()",
            "lease(Duration::new(1u64,0u32))"
        ]
    );
}

#[test]
fn each_key_is_shared_or_not() {
    let item = quote!(
        fn read(id: u8, ids: &[u8]) -> Result<(), E> {}
    );
    let one = expanded(quote!(key = shared "config:<id>"), &item);
    assert_eq!(calls(&one), ["and_shared(__rlock_key)"]);
    let list = expanded(
        quote!(key = [shared "a:<ids[]>", "b:<ids[]>", shared "c:<id>", ("d"), shared ("e"),]),
        &item,
    );
    assert_eq!(
        calls(&list),
        [
            "and_shared(__rlock_key)",
            "and(__rlock_key)",
            "and_shared(__rlock_key)",
            "and_shared_list(\"a:<ids[]>\",ids.iter(),…)",
            "and_list(\"b:<ids[]>\",ids.iter(),…)",
        ]
    );
}

#[test]
fn permits_follow_the_client_and_are_not_retained() {
    let item = quote!(
        fn call(locks: &LockClient, most: u32) -> Result<(), E> {}
    );
    let permits = expanded(
        quote!(key = [shared "a", "b"], wait = "0s", permits = most, client = locks),
        &item,
    );
    assert_eq!(
        calls(&permits),
        [
            "and_shared(__rlock_key)",
            "and(__rlock_key)",
            "client(&locks)",
            "permits(most)",
            "wait(Duration::new(0u64,0u32))",
            "retain(Duration::ZERO)",
        ]
    );
    assert!(permits.contains("let_=&most;"), "{permits}");
    for literal in [
        quote!(3),
        quote!(3u32),
        quote!(0x3),
        quote!((3)),
        quote!(4_294_967_295),
    ] {
        let permits = expanded(quote!(key = "a", retain = "0s", permits = #literal), &item);
        assert!(permits.contains("__rlock_plan.permits("), "{literal}");
        assert_eq!(permits.matches(".retain(").count(), 1, "{permits}");
    }
}

/// Returns the expansion without spaces.
fn expanded(args: TokenStream, item: &TokenStream) -> String {
    let expanded = crate::expand(args, item).to_string();
    assert!(!expanded.contains("compile_error"), "{expanded}");
    expanded.replace(' ', "")
}

/// Returns the calls of the plan in an expansion, without closures.
fn calls(expanded: &str) -> Vec<String> {
    let calls = expanded.split("let__rlock_plan=__rlock_plan.").skip(1);
    let call = |call: &str| {
        let (call, _) = call.split_once(';').expect("a statement");
        let call = match call.split_once('|') {
            Some((arguments, _)) => format!("{arguments}…)"),
            None => call.to_owned(),
        };
        call.replace("::core::time::", "")
    };
    calls.map(call).collect()
}

/// Returns the names in `tokens` that an item of the user could have: all except keywords, paths with `::` in front,
/// fields, methods, and names in an attribute.
fn open_names(tokens: TokenStream) -> Vec<String> {
    let mut names = Vec::new();
    let mut before = String::new();
    for token in tokens {
        match &token {
            TokenTree::Group(group) if !before.ends_with('#') => {
                names.extend(open_names(group.stream()));
            }
            TokenTree::Ident(ident)
                if syn::parse_str::<Ident>(&ident.to_string()).is_ok()
                    && !before.ends_with("::")
                    && (!before.ends_with('.') || before.ends_with("..")) =>
            {
                names.push(ident.to_string());
            }
            _ => {}
        }
        before.push_str(&token.to_string());
    }
    names
}

#[test]
fn no_name_of_the_expansion_can_be_that_of_an_item_of_the_user() {
    let options = quote! {
        key = ["a:<one:04>", shared "c", shared "d:<list[]>", "b:<two.name()>:<LIMIT>:<list[].0:?>:<list[].1>"],
        lease = one.lease(), wait = "forever", watchdog = true, max_hold = "1m", at_least = "1s",
        on_lost = "continue", guard = hold
    };
    let answers = [
        quote!(),
        quote!(or_else = handler),
        quote!(if_taken = other),
        quote!(if_taken = other, or_else = handler),
    ];
    let functions = [
        quote!(
            async fn f(one: &One, two: Two, list: List) -> Output {
                body
            }
        ),
        quote!(
            fn f(one: &One, two: Two, list: List) -> Output {
                body
            }
        ),
        quote!(
            fn f<G>(one: &One, two: Two, list: List) -> Output {}
        ),
        quote!(
            async fn f(&self, mut one: One, _two: &mut Two, Pair { two, list }: Pair) -> Output {}
        ),
        quote!(
            fn f(one: One, two: Two, list: List) -> impl Future<Output = Output> {
                async { body }
            }
        ),
        quote!(
            fn f(one: One, two: Two, list: List) -> Pin<Box<dyn Future<Output = Output> + Send>> {
                Box::pin(async move {
                    let one = one;
                    body
                })
            }
        ),
    ];
    let mut ours = 0;
    for function in &functions {
        for answers in &answers {
            for more in [
                quote!(),
                quote!(retain = "0s", client = locks,),
                quote!(permits = one.most(),),
                quote!(crate = ::facade,),
            ] {
                let args = quote!(#options, #more #answers);
                let theirs = format!("{args} {function}");
                let theirs: Vec<&str> = theirs
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .collect();
                let expanded = crate::expand(args, function);
                assert!(
                    !expanded.to_string().contains("compile_error"),
                    "{expanded}"
                );
                for name in open_names(expanded) {
                    let is_ours = name.starts_with("__rlock_");
                    ours += usize::from(is_ours);
                    assert!(
                        is_ours || theirs.contains(&&*name),
                        "`{name}` of {function}"
                    );
                }
            }
        }
    }
    assert!(ours > 1000, "only {ours} names were found");
}
