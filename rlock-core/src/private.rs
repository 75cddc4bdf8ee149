//! What the attribute expands to. Not part of the public interface.

#![allow(missing_docs)]

use std::{fmt::Display, future::Future, ops::Deref, pin::Pin, time::Duration};

use smallvec::smallvec;

use crate::{
    client::LockClient,
    error::LockError,
    few::Few,
    key::escape,
    lock::Lock,
    options::Wait,
    run::{self, OnLost},
    scope,
};

/// What an annotation asks for, its keys rendered.
#[derive(Debug)]
#[must_use]
pub struct Plan {
    keys: Few<String>,
    client: Option<LockClient>,
    lease: Option<Duration>,
    wait: Option<Wait>,
    watchdog: Option<bool>,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
    on_lost: OnLost,
}

impl Plan {
    pub fn new(key: String) -> Self {
        Self {
            keys: smallvec![key],
            client: None,
            lease: None,
            wait: None,
            watchdog: None,
            max_hold: None,
            at_least: None,
            on_lost: OnLost::default(),
        }
    }

    /// Takes a further key together with the others.
    pub fn and(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub fn client<C: AsClient + ?Sized>(mut self, client: &C) -> Self {
        self.client = Some(client.as_client().clone());
        self
    }

    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(Wait::For(wait));
        self
    }

    pub fn wait_forever(mut self) -> Self {
        self.wait = Some(Wait::Forever);
        self
    }

    pub fn watchdog(mut self, renew: bool) -> Self {
        self.watchdog = Some(renew);
        self
    }

    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = Some(at_least);
        self
    }

    pub fn continue_when_lost(mut self) -> Self {
        self.on_lost = OnLost::Continue;
        self
    }

    fn find_client(&self) -> Result<LockClient, LockError> {
        let named = self.client.clone();
        let client = named.or_else(scope::client).or_else(LockClient::installed);
        client.ok_or_else(|| LockError::NoClient {
            key: self.keys.join("`, `"),
        })
    }

    fn into_lock(self) -> Result<Lock, LockError> {
        let mut lock = Lock::new(self.find_client()?, self.keys);
        if let Some(lease) = self.lease {
            lock = lock.lease(lease);
        }
        match self.wait {
            Some(Wait::For(wait)) => lock = lock.wait(wait),
            Some(Wait::Forever) => lock = lock.wait_forever(),
            Some(Wait::Never) | None => {}
        }
        if let Some(renew) = self.watchdog {
            lock = lock.watchdog(renew);
        }
        if let Some(max_hold) = self.max_hold {
            lock = lock.max_hold(max_hold);
        }
        if let Some(at_least) = self.at_least {
            lock = lock.at_least(at_least);
        }
        Ok(lock)
    }
}

/// What `client = …` may be: a client, or whatever leads to one by [`Deref`], through any layers.
#[diagnostic::on_unimplemented(
    message = "`client` takes a `LockClient`, and `{Self}` neither is one nor leads to one",
    label = "no `LockClient`",
    note = "write a `LockClient`, a reference to one, or an `Arc` of one, as in `client = self.locks`"
)]
pub trait AsClient {
    fn as_client(&self) -> &LockClient;
}

impl AsClient for LockClient {
    fn as_client(&self) -> &LockClient {
        self
    }
}

// An error should be about the type that was written, not about the innermost one.
#[diagnostic::do_not_recommend]
impl<T: Deref<Target: AsClient> + ?Sized> AsClient for T {
    fn as_client(&self) -> &LockClient {
        (**self).as_client()
    }
}

/// A piece of a key template.
#[expect(
    missing_debug_implementations,
    reason = "a value need not be printable by Debug"
)]
pub enum Part<'a> {
    Text(&'a str),
    Value(&'a dyn Display),
}

/// A value in a key. An error shows the line of the bound, and so what to do.
pub fn value<T>(value: &T) -> Part<'_>
where
    T: Display, // or what a format asks for, as in `<id:?>`; an `Option` needs one
{
    Part::Value(value)
}

/// Renders a key: text verbatim, values escaped.
#[must_use]
pub fn key(parts: &[Part<'_>]) -> String {
    use std::fmt::Write;

    let mut key = String::with_capacity(32);
    for part in parts {
        match part {
            Part::Text(text) => key.push_str(text),
            Part::Value(value) => {
                // A `String` takes everything; only a broken `Display` answers an error, and then
                // what it wrote so far is the value.
                let _ = write!(key, "{}", escape(value));
            }
        }
    }
    key
}

/// What an annotated function may return: a place for the error of the lock.
#[diagnostic::on_unimplemented(
    message = "a function with `#[distributed_lock]` returns a `Result` whose error can hold a `LockError`",
    label = "this cannot hold a `LockError`",
    note = "return `Result<_, E>` where `E: From<rlock_core::LockError>`, or give `or_else = |error| …`"
)]
pub trait FromLockError {
    fn from_lock_error(error: LockError) -> Self;
}

impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// Runs the body of an annotated function.
pub async fn run<F, R>(plan: Plan, body: Pin<Box<F>>) -> R
where
    F: Future<Output = R>,
    R: FromLockError,
{
    run_or_else(plan, R::from_lock_error, body).await
}

/// Runs the body of an annotated function that makes its own of a lock's error.
pub async fn run_or_else<F, R, H>(plan: Plan, or_else: H, body: Pin<Box<F>>) -> R
where
    F: Future<Output = R>,
    H: FnOnce(LockError) -> R,
{
    let outcome = async {
        let on_lost = plan.on_lost;
        let guards = plan.into_lock()?.acquire_all().await?;
        run::run(guards, on_lost, body).await
    };
    outcome.await.unwrap_or_else(or_else)
}

/// Runs the body of an annotated synchronous function.
pub fn run_blocking<F, R>(plan: Plan, body: F) -> R
where
    F: FnOnce() -> R,
    R: FromLockError,
{
    run_blocking_or_else(plan, R::from_lock_error, body)
}

/// Runs the body of an annotated synchronous function that makes its own of a lock's error.
pub fn run_blocking_or_else<F, R, H>(plan: Plan, or_else: H, body: F) -> R
where
    F: FnOnce() -> R,
    H: FnOnce(LockError) -> R,
{
    let run = move || {
        let on_lost = plan.on_lost;
        let guards = plan.into_lock()?.acquire_all_blocking()?;
        run::run_blocking(guards, on_lost, body)
    };
    run().unwrap_or_else(or_else)
}
