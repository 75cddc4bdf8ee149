#![deny(warnings)]
// Bodies may hold whatever they like.
#![allow(clippy::await_holding_lock, clippy::never_loop)]
//! Every kind of body; whatever it holds is dropped before the lock is released.

use std::sync::{Mutex, MutexGuard};

use rlock_core::{LockClient, LockError, current, distributed_lock};

type Outcome<T = ()> = Result<T, LockError>;

/// Asserts that it is dropped while its lock is held.
struct Probe;

impl Drop for Probe {
    fn drop(&mut self) {
        assert!(current().is_some(), "dropped without the lock");
    }
}

struct Pair {
    left: Probe,
    right: Probe,
}

#[distributed_lock(key = "drops")]
async fn drops(
    used: Probe,
    _unused: Probe,
    pair: Pair,
    (first, _second): (Probe, Probe),
) -> Outcome {
    let _local = Probe;
    let _mentioned = (&used, &pair.left, &first);
    Ok(())
}

#[distributed_lock(key = "moves")]
async fn moves_a_part(pair: Pair) -> Outcome {
    drop(pair.left);
    let _ = &pair.right;
    Ok(())
}

#[distributed_lock(key = "drops-here")]
fn drops_here(
    used: Probe,
    _unused: Probe,
    pair: Pair,
    (first, _second): (Probe, Probe),
) -> Outcome {
    let _local = Probe;
    let _mentioned = (&used, &pair.left, &first);
    Ok(())
}

#[distributed_lock(key = "moves-here")]
fn moves_a_part_here(pair: Pair) -> Outcome {
    drop(pair.left);
    let _ = &pair.right;
    Ok(())
}

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

#[distributed_lock(key = "items")]
async fn items(number: u8) -> Outcome<u8> {
    use Shadow::{None, Some};

    enum Shadow {
        Some,
        None,
    }

    fn inner(shadow: Shadow) -> u8 {
        match shadow {
            Some => 1,
            None => 0,
        }
    }

    macro_rules! twice {
        ($value:expr) => {
            $value + $value
        };
    }

    Ok(twice!(inner(if number > 1 { Some } else { None })))
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

#[distributed_lock(key = "infers")]
async fn infers(text: &str) -> Outcome<u8> {
    Ok(text.parse().unwrap_or_default())
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

#[distributed_lock(key = "formats")]
async fn formats(name: &str, width: usize) -> Outcome<String> {
    Ok(format!("{name:>width$}"))
}

#[distributed_lock(key = "empty", or_else = |_| ())]
async fn empty() {}

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
    drops(
        Probe,
        Probe,
        Pair {
            left: Probe,
            right: Probe,
        },
        (Probe, Probe),
    )
    .await?;
    moves_a_part(Pair {
        left: Probe,
        right: Probe,
    })
    .await?;
    tokio::task::block_in_place(|| {
        drops_here(
            Probe,
            Probe,
            Pair {
                left: Probe,
                right: Probe,
            },
            (Probe, Probe),
        )?;
        moves_a_part_here(Pair {
            left: Probe,
            right: Probe,
        })
    })?;
    labels(1).await?;
    items(1).await?;
    inner_attributes().await?;
    diverges(1).await?;
    infers("3").await?;
    names_of_the_expansion(1, 2, 3).await?;
    assert_eq!(formats("x", 3).await?, "  x");
    empty().await;
    made(1).await?;
    hygienic(1).await?;
    Ok(())
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
