use rlock_core::{LockError, distributed_lock};

use std::{
    future::{Future, IntoFuture, Ready},
    pin::Pin,
};

type Aliased = Pin<Box<dyn Future<Output = Result<usize, LockError>>>>;

struct Request;

impl IntoFuture for Request {
    type Output = usize;
    type IntoFuture = Ready<usize>;

    fn into_future(self) -> Ready<usize> {
        std::future::ready(1)
    }
}

#[distributed_lock(key = "night")]
fn after_a_statement(name: &str) -> impl Future<Output = Result<usize, LockError>> {
    let length = name.len();
    async move { Ok(length) }
}

#[distributed_lock(key = "night", on_error = |_| Box::pin(async { 0 }))]
fn of_another(name: &str) -> Pin<Box<dyn Future<Output = usize> + '_>> {
    Box::pin(length(name))
}

#[distributed_lock(key = "night")]
fn under_an_alias(name: String) -> Aliased {
    println!("{name}");
    Box::pin(async move { Ok(name.len()) })
}

#[distributed_lock(key = "night", on_error = |_| Box::pin(async { Ok(0) }))]
fn under_an_alias_with_an_answer(name: String) -> Aliased {
    println!("{name}");
    Box::pin(async move { Ok(name.len()) })
}

#[distributed_lock(key = "night")]
fn in_a_result(name: String) -> Result<Aliased, LockError> {
    Ok(Box::pin(async move { Ok(name.len()) }))
}

#[distributed_lock(key = "night")]
fn of_a_parameter<F: Future>(future: F) -> Result<F, LockError> {
    Ok(future)
}

#[distributed_lock(key = "night", on_error = |_| Request)]
fn into_future() -> Request {
    Request
}

async fn length(name: &str) -> usize {
    name.len()
}

fn main() {}
