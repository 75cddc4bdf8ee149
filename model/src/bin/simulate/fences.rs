//! The fences of the server that executes a request.

use std::cell::Cell;

/// The fences of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    pub(crate) last: u64,
    /// Its clock, in units of 64 µs.
    pub(crate) clock: u64,
}

thread_local! {
    static PRESENT: Cell<Fences> = const { Cell::new(Fences { last: 0, clock: 0 }) };
}

/// Executes a request with these fences.
pub(crate) fn with<T>(fences: &mut Fences, execute: impl FnOnce() -> T) -> T {
    PRESENT.set(*fences);
    let reply = execute();
    *fences = PRESENT.get();
    reply
}

pub(crate) fn next() -> u64 {
    let mut fences = PRESENT.get();
    fences.last = fences.clock.max(fences.last + 1);
    PRESENT.set(fences);
    fences.last
}

pub(crate) fn last() -> u64 {
    PRESENT.get().last
}
