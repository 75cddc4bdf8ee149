//! clippy reports the same for a locked and a plain function. A lint that no longer fires leaves
//! its expectation unfulfilled, and a new lint is an error here.

use rlock_core::{LockError, distributed_lock};

use super::held::{Fail, Outcome, client, run};

#[expect(clippy::unnecessary_wraps, reason = "its callers are what is judged")]
fn number(id: u64) -> Outcome<u64> {
    Ok(id)
}

#[distributed_lock(key = "lints:<id>")]
#[expect(clippy::needless_question_mark, reason = "the lint has to fire")]
async fn needless_question(id: u64) -> Outcome<u64> {
    Ok(number(id)?)
}

#[distributed_lock(key = "lints:<id>")]
#[expect(clippy::needless_question_mark, reason = "the lint has to fire")]
fn needless_question_here(id: u64) -> Outcome<u64> {
    Ok(number(id)?)
}

#[distributed_lock(key = "lints:<id>")]
#[expect(clippy::let_and_return, reason = "the lint has to fire")]
async fn let_and_return(id: u64) -> Outcome<u64> {
    let number = number(id);
    number
}

#[distributed_lock(key = "lints:<id>")]
#[expect(clippy::let_and_return, reason = "the lint has to fire")]
fn let_and_return_here(id: u64) -> Outcome<u64> {
    let number = number(id);
    number
}

#[distributed_lock(key = "lints", or_else = |_| tokio::spawn(async { 0 }), unlocked_output = true)]
async fn returns_a_task() -> tokio::task::JoinHandle<u64> {
    tokio::spawn(async { 1 })
}

#[distributed_lock(key = "lints", or_else = |_| ())]
fn does_nothing<T>() {}

struct Large([u64; 64]);

impl From<LockError> for Large {
    fn from(_: LockError) -> Self {
        Self([0; 64])
    }
}

trait Fails {
    #[expect(clippy::result_large_err, reason = "it is judged here, and once")]
    fn fails(&self) -> Result<u64, Large>;
}

impl Fails for u8 {
    #[distributed_lock(key = "lints")]
    fn fails(&self) -> Result<u64, Large> {
        Ok(u64::from(*self))
    }
}

macro_rules! with_a_body {
    ($name:ident $here:ident $body:block) => {
        #[distributed_lock(key = "lints", or_else = |_| 0)]
        async fn $name() -> u64 $body

        #[distributed_lock(key = "lints", or_else = |_| 0)]
        fn $here() -> u64 $body
    };
}

with_a_body!(of_a_macro of_a_macro_here { 1 });

#[tokio::test]
async fn functions_that_clippy_judges_run() {
    assert_eq!(run(needless_question(1)).await.expect("free"), 1);
    assert_eq!(run(let_and_return(1)).await.expect("free"), 1);
    assert_eq!(run(returns_a_task()).await.await.expect("no panic"), 1);
    assert_eq!(run(of_a_macro()).await, 1);
}

#[test]
fn synchronous_functions_that_clippy_judges_run() {
    client();
    for locked in [needless_question_here, let_and_return_here] {
        assert_eq!(locked(1).map_err(|_: Fail| ()), Ok(1));
    }
    does_nothing::<u8>();
    let Ok(1) = 1.fails().map_err(|Large(numbers)| numbers.len()) else {
        panic!("it is free");
    };
    assert_eq!(of_a_macro_here(), 1);
}
