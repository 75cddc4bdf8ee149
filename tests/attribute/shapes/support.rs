//! Code that all shapes share. Nothing in here is locked.
#![allow(warnings, clippy::all, clippy::pedantic, clippy::nursery, unused_results)]

use std::cell::RefCell;
use std::fmt::{self, Debug};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

pub use rlock_core::{LockClient, LockError};

/// The error of a shape.
#[derive(Debug)]
pub enum Error {
    Lock(LockError),
    Other(&'static str),
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<&'static str> for Error {
    fn from(error: &'static str) -> Self {
        Self::Other(error)
    }
}

impl From<std::num::ParseIntError> for Error {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::Other("no number")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => write!(f, "{}", error),
            Self::Other(error) => f.write_str(error),
        }
    }
}

impl std::error::Error for Error {}

/// A result by another name.
pub type Outcome<T> = Result<T, Error>;

thread_local! {
    static LOG: RefCell<Vec<&'static str>> = RefCell::default();
}

/// Logs its drop.
#[derive(Debug)]
pub struct Noisy(pub &'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        LOG.with(|log| log.borrow_mut().push(self.0));
    }
}

/// Logs a word.
pub fn say(word: &'static str) {
    LOG.with(|log| log.borrow_mut().push(word));
}

/// Returns at its second poll.
pub fn pause() -> impl Future<Output = ()> {
    tokio::task::yield_now()
}

/// The recorded return values, by name.
#[derive(Default)]
pub struct Runs {
    file: &'static str,
    values: Vec<(String, String)>,
}

impl Runs {
    /// Starts the records of another file.
    pub fn file(&mut self, file: &'static str) {
        self.file = file;
    }

    pub fn value<T: Debug>(&mut self, name: &str, value: T) {
        let log: Vec<_> = LOG.with(|log| log.borrow_mut().drain(..).collect());
        let name = format!("{}: {}", self.file, name);
        self.values.push((name, format!("{:?} {:?}", value, log)));
    }

    /// Records whether a future has a trait.
    pub fn has(&mut self, name: &str, auto_trait: &str, is_there: bool) {
        let name = format!("{}: {} is {}", self.file, name, auto_trait);
        self.values.push((name, is_there.to_string()));
    }

    pub fn future<F>(&mut self, name: &str, future: F)
    where
        F: Future,
        F::Output: Debug,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let value = runtime.unwrap().block_on(future);
        self.value(name, value);
    }

    pub fn print(&self) {
        for (name, value) in &self.values {
            println!("{}\t{}", name, value.replace('\n', "\\n"));
        }
    }
}

/// Detects the auto traits of a type without requiring them.
pub struct Traits<T: ?Sized>(PhantomData<T>);

pub fn traits_of<T: ?Sized>(_: &T) -> Traits<T> {
    Traits(PhantomData)
}

impl<T: Send + ?Sized> Traits<T> {
    pub fn send(&self) -> bool {
        true
    }
}

impl<T: Sync + ?Sized> Traits<T> {
    pub fn sync(&self) -> bool {
        true
    }
}

impl<T: Unpin + ?Sized> Traits<T> {
    pub fn unpin(&self) -> bool {
        true
    }
}

pub trait Without {
    fn send(&self) -> bool {
        false
    }
    fn sync(&self) -> bool {
        false
    }
    fn unpin(&self) -> bool {
        false
    }
}

impl<T: ?Sized> Without for Traits<T> {}

/// Runs a future, and records its output and its auto traits.
macro_rules! run {
    ($runs:expr, $name:expr, $future:expr) => {{
        #[allow(unused_imports)]
        use $crate::support::Without;
        // A `match` extends the temporaries of its expression.
        match $future {
            future => {
                let traits = $crate::support::traits_of(&future);
                $runs.has($name, "Send", traits.send());
                $runs.has($name, "Sync", traits.sync());
                $runs.has($name, "Unpin", traits.unpin());
                $runs.future($name, future);
            }
        }
    }};
}

pub fn assert_send<T: Send>(value: T) -> T {
    value
}

pub fn assert_static<T: 'static>(value: T) -> T {
    value
}

/// Installs the client of all shapes.
pub fn install() {
    LockClient::in_memory().install();
}
