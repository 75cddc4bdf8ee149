//! Refuses functions that return a future or a stream, which would run after the release.
//!
//! `returned(&outcome).__rlock_judged()` calls the method of the first step whose bounds hold, by
//! `Deref` from step to step. Therefore no trait has to be in scope, and an unbounded generic value
//! counts as a plain value. The method of a user's trait for all types would be called before that of
//! the later step. The prefix `__rlock_` prevents that such a method has the same name.

#![expect(
    clippy::unused_self,
    reason = "methods are found by the type of `self`"
)]

use std::{
    convert::Infallible,
    future::{Future, IntoFuture},
    marker::PhantomData,
    ops::Deref,
    pin::Pin,
};

use futures_util::Stream;

use super::{FromLockError, Plan};
use crate::{
    error::LockError,
    run::{Run, has_failed},
};

/// The type of a function's output, at one step of the check. The compiler infers `P`, the place of a future in it.
#[derive(Debug)]
pub struct Returned<T, P, const STEP: u8>(PhantomData<fn() -> (T, P)>);

#[must_use]
pub fn returned<T, P>(_: &Result<T, LockError>) -> Returned<T, P, 0> {
    Returned(PhantomData)
}

#[must_use]
pub fn returned_by<F: Future, P>(_: &F) -> Returned<F::Output, P, 0> {
    Returned(PhantomData)
}

impl<T: RunsLater<P>, P> Returned<T, P, 0> {
    pub fn __rlock_judged(&self) -> Refused
    where
        Self: RunsUnderLock<T>,
    {
        Self::verdict()
    }
}

impl<T, P> Deref for Returned<T, P, 0> {
    type Target = Returned<T, P, 1>;

    fn deref(&self) -> &Self::Target {
        &Returned(PhantomData)
    }
}

// Nothing else determines `P` of a plain value.
impl<T> Returned<T, (), 1> {
    pub fn __rlock_judged(&self) -> Value {
        Value
    }
}

/// A future or a stream, or a `Result`, `Option` or `Vec` of one. `P` tells these from each other.
pub trait RunsLater<P> {}

pub enum ByAwait {}

pub enum ByPolling {}

impl<T: IntoFuture> RunsLater<ByAwait> for T {}

impl<T: Stream> RunsLater<ByPolling> for T {}

impl<T: RunsLater<P>, E, P> RunsLater<[P; 0]> for Result<T, E> {}

impl<T: RunsLater<P>, P> RunsLater<[P; 0]> for Option<T> {}

impl<T: RunsLater<P>, P> RunsLater<[P; 0]> for Vec<T> {}

/// The requirement on a function whose output is the future or stream `T`, or contains one. No type implements it.
#[diagnostic::on_unimplemented(
    message = "a function with `#[distributed_lock]` returns a future or a stream, which would run after the lock is released",
    label = "`{T}` would run outside the lock, or a part of it would",
    note = "await it in an `async fn`, or collect the stream, and return the result",
    note = "a plain `fn` may return a future if its whole body is `async move {{ … }}` or `Box::pin(async move {{ … }})`",
    note = "add `allow_future_output = true` to the attribute if the lock need not cover it"
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

    /// Runs the body of an annotated function.
    pub fn run<F, R>(self, plan: Plan, body: Pin<Box<F>>) -> Run<F, fn(LockError) -> R>
    where
        F: Future<Output = R>,
        R: FromLockError,
    {
        Run::new(plan.into(), body, has_failed, R::from_lock_error)
    }
}

/// The result for a future or a stream. No such value exists, so the bound's error is the only one.
#[derive(Debug)]
pub struct Refused(Infallible);

impl Refused {
    pub fn or_error<T>(self, _: Result<T, LockError>) -> T {
        match self.0 {}
    }

    pub fn run<F: Future>(self, _: Plan, _: Pin<Box<F>>) -> Pin<Box<F>> {
        match self.0 {}
    }
}
