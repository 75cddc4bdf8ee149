#![deny(warnings)]
// Bodies may hold whatever they like.
#![allow(clippy::await_holding_lock, clippy::never_loop)]
//! Every kind of body.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard};

use rlock_core::{LockClient, LockError, current, distributed_lock};

type Outcome<T = ()> = Result<T, LockError>;

#[distributed_lock(key = "labels")]
async fn labels(number: u8) -> Outcome<u8> {
    let found = 'search: {
        if number > 1 {
            break 'search 3;
        }
        4
    };
    Ok(found)
}

#[distributed_lock(key = "attributes")]
async fn inner_attributes() -> Outcome {
    #![allow(unused_variables)]
    let unused = 5;
    Ok(())
}

#[distributed_lock(key = "diverges")]
async fn diverges(number: u8) -> Outcome<u8> {
    loop {
        if number > 0 {
            return Ok(number);
        }
        panic!("zero");
    }
}

#[distributed_lock(key = "guards")]
async fn guards(guard: MutexGuard<'_, u8>, number: std::future::Ready<u8>) -> Outcome<u8> {
    let held = *guard;
    drop(guard);
    Ok(held + number.await)
}

#[distributed_lock(key = "names:<plan>:<body>:<edge>")]
async fn names_of_the_expansion(plan: u8, body: u8, edge: u8) -> Outcome<u8> {
    Ok(plan + body + edge)
}

#[distributed_lock(key = "empty", or_else = |_| ())]
async fn empty() {}

struct Shelf(String);

impl Shelf {
    /// The block borrows its arguments.
    #[distributed_lock(key = "shelf:<self.0>")]
    fn shelve(&mut self, id: String) -> Pin<Box<dyn Future<Output = Outcome<usize>> + Send + '_>> {
        Box::pin(async {
            self.0 += &id;
            Ok(self.0.len())
        })
    }
}

unsafe fn danger() -> u8 {
    assert!(current().is_some(), "the body runs without its lock");
    1
}

#[distributed_lock(key = "async")]
async unsafe fn danger_later(number: u8) -> Outcome<u8> {
    Ok(number + unsafe { danger() })
}

#[distributed_lock(key = "sync")]
unsafe fn danger_here(number: u8) -> Outcome<u8> {
    Ok(number + unsafe { danger() })
}

#[distributed_lock(key = "bare")]
unsafe fn danger_without_a_block(number: u8) -> Outcome<u8> {
    #![allow(unsafe_op_in_unsafe_fn)]
    Ok(number + danger())
}

macro_rules! function {
    ($name:ident, $argument:ident, $key:literal, $lease:expr, $body:block) => {
        #[distributed_lock(key = $key, lease = $lease)]
        async fn $name($argument: u8) -> Outcome<u8> $body
    };
}
function!(made, number, "made:<number>", "5s", { Ok(3) });

macro_rules! hygienic {
    ($name:ident) => {
        #[distributed_lock(key = "hygienic:<number>")]
        async fn $name(number: u8) -> Outcome<u8> {
            Ok(number)
        }
    };
}
hygienic!(hygienic);

async fn all() -> Outcome {
    labels(1).await?;
    inner_attributes().await?;
    diverges(1).await?;
    names_of_the_expansion(1, 2, 3).await?;
    empty().await;
    let mut shelf = Shelf("top".to_owned());
    assert_eq!(shelf.shelve("1".to_owned()).await?, 4);
    made(1).await?;
    hygienic(1).await?;
    assert_eq!(unsafe { danger_later(1) }.await?, 2);
    tokio::task::block_in_place(|| unsafe {
        assert_eq!(danger_here(1)?, 2);
        assert_eq!(danger_without_a_block(1)?, 2);
        Ok(())
    })
}

#[tokio::main]
async fn main() {
    let locks = LockClient::in_memory();
    let mutex = Mutex::new(3);
    let guards = guards(mutex.lock().unwrap(), std::future::ready(1));
    assert_eq!(locks.scope(guards).await.unwrap(), 4);
    // All other futures are `Send`.
    let all = async move { locks.scope(all()).await };
    tokio::spawn(all).await.unwrap().unwrap();
}
