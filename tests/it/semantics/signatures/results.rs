//! Results: aliases, coercions, `impl Trait`, and other types.

use std::{convert::Infallible, error::Error, fmt::Display};

use rlock_core::{LockError, distributed_lock};

use super::held::{Fail, Outcome, assert_held, run};

mod other {
    /// An alias that does not look like a `Result`.
    pub(super) type Answer<T> = super::Outcome<T>;
}

#[distributed_lock(key = "alias")]
async fn alias() -> other::Answer<u8> {
    assert_held("alias").await;
    Ok(1)
}

#[distributed_lock(key = "lock-error")]
async fn error_of_the_lock() -> Result<(), LockError> {
    assert_held("lock-error").await;
    Ok(())
}

#[distributed_lock(key = "impl:<count>")]
async fn impl_in_a_result(count: u8) -> Result<impl Iterator<Item = u8>, Fail> {
    assert_held("impl:3").await;
    let more: u8 = "1".parse()?;
    if count == 0 {
        return Ok(0..more);
    }
    Ok(0..count + more)
}

/// A trait object from one expression, another from an early return.
#[distributed_lock(key = "boxed:<number>")]
async fn boxed(number: u8) -> Result<Box<dyn Display + Send>, Box<dyn Error + Send + Sync>> {
    assert_held(&format!("boxed:{number}")).await;
    if number > 3 {
        return Ok(Box::new(number));
    }
    "5".parse::<u8>()?;
    Ok(Box::new("text"))
}

#[distributed_lock(key = "infers:<text>")]
async fn infers(text: &str) -> Outcome<u8> {
    assert_held("infers:5").await;
    let parsed = text.parse()?;
    Ok(parsed)
}

#[distributed_lock(key = "fails")]
async fn fails() -> Outcome<u8> {
    assert_held("fails").await;
    let number: u8 = "no number".parse()?;
    unreachable!("{number}")
}

#[distributed_lock(key = "diverges")]
async fn diverges(number: u8) -> Result<Infallible, Fail> {
    assert_held("diverges").await;
    loop {
        if number > 0 {
            return Err("".parse::<u8>().expect_err("no number").into());
        }
    }
}

#[distributed_lock(key = "panics")]
async fn panics() -> Outcome {
    assert_held("panics").await;
    panic!("in the body")
}

#[distributed_lock(key = "option", or_else = |_| None)]
async fn option() -> Option<u8> {
    assert_held("option").await;
    let number = "3".parse().ok()?;
    Some(number)
}

#[distributed_lock(key = "nothing", or_else = drop)]
async fn nothing() {
    assert_held("nothing").await;
}

#[tokio::test]
async fn a_result_is_what_the_function_says() {
    assert_eq!(run(alias()).await.expect("free"), 1);
    run(error_of_the_lock()).await.expect("free");
    let numbers = run(impl_in_a_result(3)).await.expect("free");
    assert_eq!(numbers.count(), 4);
    assert_eq!(run(boxed(1)).await.expect("free").to_string(), "text");
    assert_eq!(run(boxed(4)).await.expect("free").to_string(), "4");
    assert_eq!(run(infers("5")).await.expect("free"), 5);
    assert!(matches!(run(fails()).await, Err(Fail::Number(_))));
    assert!(matches!(run(diverges(1)).await, Err(Fail::Number(_))));
    assert_eq!(run(option()).await, Some(3));
    run(nothing()).await;
}

#[tokio::test]
async fn a_body_that_panics_releases_its_lock() {
    let panicked = tokio::spawn(run(panics())).await.expect_err("it panics");
    assert!(panicked.is_panic());
    crate::semantics::signatures::held::assert_free("panics").await;
}

#[tokio::test]
async fn a_lock_that_is_taken_is_an_error_of_the_function() {
    #[distributed_lock(key = "taken", wait = "0s")]
    async fn refused() -> Outcome {
        unreachable!("it is taken")
    }
    let lock = crate::semantics::signatures::held::client().lock("taken");
    let guard = lock.acquire().await.expect("free");
    let refused = run(refused()).await;
    assert!(
        matches!(refused, Err(Fail::Lock(LockError::Timeout { ref key, .. })) if key == "taken"),
        "{refused:?}"
    );
    guard.release().await.expect("held");
}
