//! Tests the code that the attribute expands to.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote;

#[test]
fn every_option_becomes_one_call() {
    let item = quote!(
        async fn transfer(locks: &LockClient, from: Account) -> Outcome {}
    );
    let expanded = expanded(
        quote! {
            key = "account:<from.id()>",
            client = locks,
            lease = LEASE,
            wait = "0s",
            watchdog = false,
            max_hold = "1m30s",
            min_hold = "1500ms",
            on_lost = "continue",
            on_error = |error| Outcome::Skipped(error),
            crate = ::facade::rlock,
        },
        &item,
    );
    assert_eq!(
        calls(&expanded),
        [
            "and(\"account:<from.id()>\",__rlock_key)",
            "client(&locks)",
            "lease(LEASE)",
            "wait(Duration::new(0u64,0u32))",
            "watchdog(false)",
            "max_hold(Duration::new(90u64,0u32))",
            "min_hold(Duration::new(1u64,500000000u32))",
            "continue_when_lost()",
        ]
    );
    assert!(!expanded.contains("::rlock_core::"), "{expanded}");
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
            "and_shared(\"a\",__rlock_key)",
            "and(\"b\",__rlock_key)",
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

/// Returns the calls of the plan in an expansion.
fn calls(expanded: &str) -> Vec<String> {
    let calls = expanded.split("let__rlock_plan=__rlock_plan.").skip(1);
    let call = |call: &str| {
        let (call, _) = call.split_once(';').expect("a statement");
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
        lease = one.lease(), wait = "forever", watchdog = true, max_hold = "1m", min_hold = "1s",
        on_lost = "continue", guard = hold
    };
    let answers = [
        quote!(),
        quote!(on_error = handler),
        quote!(if_taken = other),
        quote!(if_taken = other, on_error = handler),
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
                let text = expanded.to_string();
                assert!(!text.contains("compile_error"), "{text}");
                assert!(
                    !text.contains(":: std ::"),
                    "not every crate has it: {text}"
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
