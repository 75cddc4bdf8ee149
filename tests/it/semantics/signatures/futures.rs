//! The future that a locked function returns: it holds the lock while it runs, whatever its type is called.

use std::pin::Pin;

use async_trait::async_trait;
use rlock_core::{LockError, current, distributed_lock};

use super::held::{Outcome, assert_free, assert_held, client, run};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The parts of `tower::Service` that matter here.
trait Service<Request> {
    type Response;
    type Error;
    type Future: Future<Output = Result<Self::Response, Self::Error>>;

    fn call(&mut self, request: Request) -> Self::Future;
}

struct Request {
    order: u64,
}

struct Payments;

impl Service<Request> for Payments {
    type Response = u64;
    type Error = LockError;
    type Future = Boxed<'static, Result<u64, LockError>>;

    #[distributed_lock(key = "payment:<request.order>")]
    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(async move {
            assert_held("payment:7").await;
            Ok(request.order)
        })
    }
}

struct Books(String);

#[async_trait]
trait Ledger: Send + Sync {
    fn name(&self) -> &str;

    async fn book(&self, id: u64) -> Outcome<String>;

    #[distributed_lock(key = "count:<self.name()>:<more>")]
    async fn count(&self, more: u8) -> Outcome<u8> {
        assert_held("count:books:1").await;
        Ok(more)
    }
}

#[async_trait]
impl Ledger for Books {
    fn name(&self) -> &str {
        &self.0
    }

    #[distributed_lock(key = "<self.0>:<id>", client = client())]
    async fn book(&self, id: u64) -> Outcome<String> {
        assert_held("books:3").await;
        Ok(format!("{} {id}", self.0))
    }
}

#[tokio::test]
async fn a_future_is_locked_while_it_runs_whatever_its_type() {
    assert_eq!(
        run(Payments.call(Request { order: 7 }))
            .await
            .expect("free"),
        7
    );
    let books = Books("books".to_owned());
    assert_eq!(run(books.book(3)).await.expect("free"), "books 3");
    assert_eq!(run(books.count(1)).await.expect("free"), 1);
    for key in ["payment:7", "books:3", "count:books:1"] {
        assert_free(key).await;
    }
}

#[tokio::test]
async fn a_future_that_is_never_polled_locks_nothing() {
    let books = Books("books".to_owned());
    let (boxed, future) = (books.book(99), Payments.call(Request { order: 99 }));
    assert_free("books:99").await;
    assert_free("payment:99").await;
    drop((boxed, future));
}

/// Functions that each call the next one.
macro_rules! nested {
    ($last:ident) => {
        #[distributed_lock(key = "nested")]
        async fn $last() -> Outcome<u32> {
            tokio::task::yield_now().await;
            Ok(current().map_or(0, |hold| hold.depth()))
        }
    };
    ($outer:ident $inner:ident $($rest:ident)*) => {
        #[distributed_lock(key = "nested")]
        async fn $outer() -> Outcome<u32> {
            $inner().await
        }

        nested!($inner $($rest)*);
    };
}

nested!(one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen);

#[tokio::test]
async fn fifteen_nested_functions_are_send_within_the_compilers_default_depth() {
    client();
    let entries = tokio::spawn(one()).await.expect("no panic");
    assert_eq!(entries.expect("free"), 15);
}
