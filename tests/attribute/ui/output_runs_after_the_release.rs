use rlock_core::{LockError, distributed_lock};

use futures_util::stream::{self, Stream};
use std::{future::Ready, vec};

struct Store;

#[distributed_lock(key = "lines")]
async fn lines() -> Result<impl Stream<Item = u8>, LockError> {
    Ok(stream::iter(vec![1, 2]))
}

#[distributed_lock(key = "night", on_error = |_| None)]
async fn maybe() -> Option<Ready<u8>> {
    None
}

#[distributed_lock(key = "night")]
fn all() -> Result<Vec<Ready<u8>>, LockError> {
    Ok(Vec::new())
}

impl Store {
    #[distributed_lock(key = "night")]
    fn boxed(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<Ready<u8>, LockError>> + '_>> {
        Box::pin(async move { Ok(std::future::ready(1)) })
    }
}

#[distributed_lock(key = "night", allow_future_output = "yes")]
async fn of_the_wrong_kind() -> Result<Ready<u8>, LockError> {
    Ok(std::future::ready(1))
}

#[distributed_lock(key = "night", allow_future_output = true)]
async fn meant() -> Result<Ready<u8>, LockError> {
    Ok(std::future::ready(1))
}

fn main() {}
