//! What the attribute expands to. Not part of the public interface.

#![allow(missing_docs, clippy::missing_errors_doc)]

use std::{fmt::Display, future::Future, ops::Deref, pin::Pin, time::Duration};

use crate::{
    client::LockClient,
    error::LockError,
    few::Few,
    key::escape,
    lock::Lock,
    options::Wait,
    run::{Inside, OnLost, Run, Session},
    scope,
};

mod returned;

// A crate without `std` cannot name it otherwise.
pub use std::boxed::Box;

pub use returned::returned;

/// The arguments of an annotation, with rendered keys. Boxed, because each annotated function
/// compiles every move of it.
#[derive(Debug)]
#[must_use]
pub struct Plan(Box<Asked>);

#[derive(Debug)]
struct Asked {
    keys: Few<String>,
    /// The template of a list that may be empty.
    empty: Option<&'static str>,
    client: Option<LockClient>,
    lease: Option<Duration>,
    wait: Option<Wait>,
    watchdog: Option<bool>,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
    retain: Option<Duration>,
    on_lost: OnLost,
}

impl Plan {
    pub fn new(key: String) -> Self {
        Self::of_lists().and(key)
    }

    /// Makes the plan of an annotation whose keys all come from lists.
    pub fn of_lists() -> Self {
        Self(Box::new(Asked {
            keys: Few::new(),
            empty: None,
            client: None,
            lease: None,
            wait: None,
            watchdog: None,
            max_hold: None,
            at_least: None,
            retain: None,
            on_lost: OnLost::default(),
        }))
    }

    /// Takes a further key together with the others.
    pub fn and(mut self, key: String) -> Self {
        self.0.keys.push(key);
        self
    }

    /// Adds a key for each element of a list.
    pub fn and_list(mut self, template: &'static str, keys: impl Iterator<Item = String>) -> Self {
        self.0.keys.extend(keys);
        self.0.empty = Some(template);
        self
    }

    pub fn client<C: AsClient + ?Sized>(mut self, client: &C) -> Self {
        self.0.client = Some(client.as_client().clone());
        self
    }

    pub fn lease(mut self, lease: Duration) -> Self {
        self.0.lease = Some(lease);
        self
    }

    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.wait = Some(Wait::For(wait));
        self
    }

    pub fn wait_forever(mut self) -> Self {
        self.0.wait = Some(Wait::Forever);
        self
    }

    pub fn watchdog(mut self, renew: bool) -> Self {
        self.0.watchdog = Some(renew);
        self
    }

    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.0.max_hold = Some(max_hold);
        self
    }

    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.0.at_least = Some(at_least);
        self
    }

    pub fn retain(mut self, retain: Duration) -> Self {
        self.0.retain = Some(retain);
        self
    }

    pub fn continue_when_lost(mut self) -> Self {
        self.0.on_lost = OnLost::Continue;
        self
    }

    /// Acquires the locks and enters them on this thread.
    fn enter(self) -> Result<Inside, LockError> {
        let on_lost = self.0.on_lost;
        let lock = (*self.0).into_lock()?;
        let guards = lock.acquire_all_blocking()?;
        Ok(Inside::enter(guards, on_lost))
    }
}

impl From<Plan> for Session {
    fn from(Plan(asked): Plan) -> Self {
        let on_lost = asked.on_lost;
        Self::new(
            on_lost,
            async move { (*asked).into_lock()?.acquire_all().await },
        )
    }
}

impl Asked {
    fn find_client(&self) -> Result<LockClient, LockError> {
        let named = self.client.clone();
        let client = named.or_else(scope::client).or_else(LockClient::installed);
        client.ok_or_else(|| LockError::NoClient {
            key: self.keys.join("`, `"),
        })
    }

    fn into_lock(self) -> Result<Lock, LockError> {
        if self.keys.is_empty() {
            return Err(LockError::InvalidKey {
                key: self.empty.unwrap_or_default().to_owned(),
                reason: "the list is empty, so the body would run without a lock; add a key that is always there, as in \
                         `key = [\"accounts\", \"account:<ids[]>\"]`, or do not call with an empty list"
                    .to_owned(),
            });
        }
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
        if let Some(retain) = self.retain {
            lock = lock.retain(retain);
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

/// The return type of a function with `if_taken` and without `or_else`.
#[diagnostic::on_unimplemented(
    message = "`if_taken` answers for a taken lock alone, and no other failure has a place in `{Self}`",
    label = "this cannot hold a `LockError`",
    note = "return `Result<_, E>` where `E: From<rlock_core::LockError>`, or give `or_else = |error| …` as well"
)]
pub trait FromOtherErrors {
    fn from_other_error(error: LockError) -> Self;
}

impl<T, E: From<LockError>> FromOtherErrors for Result<T, E> {
    fn from_other_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// Returns `value` if the lock is taken, and the result of `or_else` for every other error.
pub fn if_taken<R, V, H>(value: V, or_else: H) -> impl FnOnce(LockError) -> R
where
    V: FnOnce() -> R,
    H: FnOnce(LockError) -> R,
{
    |error| {
        if error.is_contention() {
            value()
        } else {
            or_else(error)
        }
    }
}

/// Runs the body of an annotated function.
pub fn run<F, R>(plan: Plan, body: Pin<Box<F>>) -> Run<F, fn(LockError) -> R>
where
    F: Future<Output = R>,
    R: FromLockError,
{
    Run::new(plan.into(), body, R::from_lock_error)
}

/// Runs the body of an annotated function that makes its own of a lock's error.
pub fn run_or_else<F, R, H>(plan: Plan, or_else: H, body: Pin<Box<F>>) -> Run<F, H>
where
    F: Future<Output = R>,
    H: FnOnce(LockError) -> R,
{
    Run::new(plan.into(), body, or_else)
}

/// Runs the body of an annotated synchronous function. `returned` checks the type of its result.
pub fn run_blocking<F, R>(plan: Plan, body: F) -> Result<R, LockError>
where
    F: FnOnce() -> R,
{
    plan.enter()?.leave(body())
}

/// Infers the types of a synchronous `or_else` before the body is checked.
pub fn handler<R, H: FnOnce(LockError) -> R>(or_else: H) -> H {
    or_else
}
