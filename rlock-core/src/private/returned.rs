//! Refuses synchronous functions that return a future or a stream, which would run after the
//! release.
//!
//! `returned(&outcome).__rlock_judged()` calls the method of the first step whose bounds hold, by
//! `Deref` from step to step. Therefore no trait has to be in scope, and an unbounded generic value
//! counts as a plain value. The method of a user's trait for all types would be called before those of
//! the later steps. The prefix `__rlock_` prevents that such a method has the same name.

#![expect(
    clippy::unused_self,
    reason = "methods are found by the type of `self`"
)]

use std::{convert::Infallible, future::IntoFuture, marker::PhantomData, ops::Deref};

use futures_util::Stream;

use super::FromLockError;
use crate::error::LockError;

/// The type of a body's result, at one step of the check.
#[derive(Debug)]
pub struct Returned<T, const STEP: u8>(PhantomData<fn() -> T>);

#[must_use]
pub fn returned<T>(_: &Result<T, LockError>) -> Returned<T, 0> {
    Returned(PhantomData)
}

macro_rules! next {
    ($($step:literal)*) => {$(
        impl<T> Deref for Returned<T, $step> {
            type Target = Returned<T, { $step + 1 }>;

            fn deref(&self) -> &Self::Target {
                &Returned(PhantomData)
            }
        }
    )*};
}

next!(0 1 2 3);

impl<T: IntoFuture> Returned<T, 0> {
    pub fn __rlock_judged(&self) -> Refused
    where
        Self: RunsUnderLock<T>,
    {
        Self::verdict()
    }
}

impl<T: Stream> Returned<T, 1> {
    pub fn __rlock_judged(&self) -> Refused
    where
        Self: RunsUnderLock<T>,
    {
        Self::verdict()
    }
}

impl<T: IntoFuture, E> Returned<Result<T, E>, 2> {
    pub fn __rlock_judged(&self) -> Refused
    where
        Self: RunsUnderLock<T>,
    {
        Self::verdict()
    }
}

impl<T: Stream, E> Returned<Result<T, E>, 3> {
    pub fn __rlock_judged(&self) -> Refused
    where
        Self: RunsUnderLock<T>,
    {
        Self::verdict()
    }
}

impl<T> Returned<T, 4> {
    pub fn __rlock_judged(&self) -> Value {
        Value
    }
}

/// The requirement on a function that returns the future or stream `T`. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a synchronous function with `#[distributed_lock]` returns a future or a stream, which would run after the \
               lock is released",
    label = "`{T}` would run outside of the lock",
    note = "write `async fn`, or let the whole body be `async move {{ … }}` or `Box::pin(async move {{ … }})`; collect a \
            stream inside of it",
    note = "if the lock is to cover no more than its making, return it in a struct of your own"
)]
pub trait RunsUnderLock<T> {
    fn verdict() -> Refused;
}

/// The result for a plain value.
#[derive(Debug)]
pub struct Value;

impl Value {
    pub fn or_error<T: FromLockError>(self, outcome: Result<T, LockError>) -> T {
        outcome.unwrap_or_else(T::from_lock_error)
    }
}

/// The result for a future or a stream. No such value exists, so the bound's error is the only one.
#[derive(Debug)]
pub struct Refused(Infallible);

impl Refused {
    pub fn or_error<T>(self, _: Result<T, LockError>) -> T {
        match self.0 {}
    }
}
