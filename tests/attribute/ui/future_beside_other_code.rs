use rlock_core::{LockError, distributed_lock};

use std::{future::Future, pin::Pin};

#[distributed_lock(key = "night")]
fn after_a_statement(name: &str) -> impl Future<Output = Result<usize, LockError>> {
    let length = name.len();
    async move { Ok(length) }
}

#[distributed_lock(key = "night", or_else = |_| Box::pin(async { 0 }))]
fn of_another(name: &str) -> Pin<Box<dyn Future<Output = usize> + '_>> {
    Box::pin(length(name))
}

async fn length(name: &str) -> usize {
    name.len()
}

fn main() {}
