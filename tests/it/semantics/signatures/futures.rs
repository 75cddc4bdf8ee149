//! Functions that are not `async` and return a future of any type.

use std::future::{Future, IntoFuture};
use std::pin::Pin;

use rlock_core::{LockError, distributed_lock};

use super::held::{Outcome, assert_free, assert_held, run};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An alias with a misleading name.
type BoxFuture<T> = Boxed<'static, Outcome<T>>;

#[distributed_lock(key = "aliased:<id>")]
fn aliased(id: u8) -> Boxed<'static, Outcome<u8>> {
    Box::pin(async move {
        assert_held("aliased:1").await;
        Ok(id)
    })
}

#[distributed_lock(key = "skipped:<id>", or_else = |_| 0)]
fn skipped(id: u8) -> Boxed<'static, u8> {
    Box::pin(async move {
        assert_held("skipped:1").await;
        id
    })
}

#[distributed_lock(key = "borrowed:<name>")]
fn borrowed(name: &str) -> Boxed<'_, Outcome<usize>> {
    Box::pin(async move {
        assert_held("borrowed:ada").await;
        Ok(name.parse::<usize>().unwrap_or(name.len()))
    })
}

#[distributed_lock(key = "named:<id>")]
fn named_as_another(id: u8) -> BoxFuture<u8> {
    Box::pin(async move {
        assert_held("named:1").await;
        Ok(id)
    })
}

#[distributed_lock(key = "into:<id>")]
fn into_future(id: u8) -> impl IntoFuture<Output = Outcome<u8>, IntoFuture: Send> {
    async move {
        assert_held("into:1").await;
        Outcome::Ok(id)
    }
}

struct Shelf {
    name: String,
}

impl Shelf {
    #[distributed_lock(key = "shelf:<self.name>:<id>")]
    #[allow(clippy::manual_async_fn)]
    fn unmoved(&self, id: String) -> impl Future<Output = Outcome<usize>> + Send {
        async {
            assert_held("shelf:top:1").await;
            drop(id);
            Ok(self.name.len())
        }
    }

    #[distributed_lock(key = "shelf:<self.name>")]
    fn unmoved_in_a_box(&mut self) -> Boxed<'_, Outcome<usize>> {
        Box::pin(async {
            assert_held("shelf:top").await;
            self.name.push('!');
            Ok(self.name.len())
        })
    }
}

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
    type Future = Pin<Box<dyn Future<Output = Result<u64, LockError>> + Send>>;

    #[distributed_lock(key = "payment:<request.order>")]
    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(async move {
            assert_held("payment:7").await;
            Ok(request.order)
        })
    }
}

#[tokio::test]
async fn a_future_is_locked_while_it_runs_whatever_its_type_is_called() {
    assert_eq!(run(aliased(1)).await.expect("free"), 1);
    assert_eq!(run(skipped(1)).await, 1);
    assert_eq!(run(borrowed("ada")).await.expect("free"), 3);
    assert_eq!(run(named_as_another(1)).await.expect("free"), 1);
    assert_eq!(run(into_future(1).into_future()).await.expect("free"), 1);
    assert_free("aliased:1").await;
    let mut shelf = Shelf {
        name: "top".to_owned(),
    };
    assert_eq!(run(shelf.unmoved("1".to_owned())).await.expect("free"), 3);
    assert_eq!(run(shelf.unmoved_in_a_box()).await.expect("free"), 4);
}

#[tokio::test]
async fn a_tower_service_is_locked_while_its_response_future_runs() {
    let call = Payments.call(Request { order: 7 });
    assert_free("payment:7").await;
    assert_eq!(run(call).await.expect("free"), 7);
    assert_free("payment:7").await;
}
