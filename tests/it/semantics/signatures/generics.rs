//! Generics, lifetimes and `impl Trait`.

use std::{fmt::Display, marker::PhantomData};

use rlock_core::distributed_lock;

use super::held::{Outcome, assert_held, run};

#[distributed_lock(key = "generic:<value>")]
async fn generic<T>(value: T) -> Outcome<T>
where
    T: Display + Send,
{
    assert_held("generic:7").await;
    Ok(value)
}

#[distributed_lock(key = "const:<fill>")]
async fn const_generic<const N: usize>(fill: u8) -> Outcome<[u8; N]> {
    assert_held("const:5").await;
    Ok([fill; N])
}

#[distributed_lock(key = "named:<text>")]
async fn named_lifetime<'a>(text: &'a str, other: &str) -> Outcome<&'a str> {
    assert_held("named:text").await;
    Ok(&text[other.len()..])
}

#[distributed_lock(key = "elided:<text>")]
async fn elided_lifetime(text: &str) -> Outcome<impl Iterator<Item = char>> {
    assert_held("elided:text").await;
    Ok(text.chars())
}

#[distributed_lock(key = "impl:<value>")]
async fn impl_argument(value: impl Display + Send) -> Outcome<String> {
    assert_held("impl:1").await;
    Ok(value.to_string())
}

#[distributed_lock(key = "calls")]
async fn called_with<F>(call: F, number: u8) -> Outcome<u8>
where
    F: AsyncFnOnce(u8) -> u8,
{
    assert_held("calls").await;
    Ok(call(number).await)
}

struct Wrapped<'a, T>(T, PhantomData<&'a ()>);

impl<'a, T: Display + Send + Sync> Wrapped<'a, T> {
    #[distributed_lock(key = "wrapped:<self.0>:<text>")]
    async fn get(&self, text: &'a str) -> Outcome<(&T, &'a str)> {
        assert_held("wrapped:1:text").await;
        Ok((&self.0, text))
    }

    #[distributed_lock(key = "made:<value>")]
    async fn make(value: T) -> Outcome<Self> {
        assert_held("made:1").await;
        Ok(Self(value, PhantomData))
    }
}

#[tokio::test]
async fn generics_and_lifetimes_are_the_function_s_own_affair() {
    assert_eq!(run(generic(7)).await.expect("free"), 7);
    assert_eq!(run(const_generic::<3>(5)).await.expect("free"), [5; 3]);
    let rest = run(named_lifetime("text", "t")).await.expect("free");
    assert_eq!(rest, "ext");
    let letters = run(elided_lifetime("text")).await.expect("free");
    assert_eq!(letters.count(), 4);
    assert_eq!(run(impl_argument(1)).await.expect("free"), "1");
    assert_eq!(
        called_with(async |x| x + 1, 1).await.expect("free"),
        2,
        "the plain function is not known to be Send either"
    );
    let wrapped = run(Wrapped::make(1)).await.expect("free");
    assert_eq!(run(wrapped.get("text")).await.expect("free"), (&1, "text"));
}
