//! Records the metrics of locks through the facade `metrics`, and finds the recorder to which they go.
//! `docs/operations.md` explains each of them.
//!
//! The handles of a lock's metrics are made once for each name, so an acquire does not allocate for them. Handles
//! that were made without a recorder never record anything. They are therefore replaced when a recorder has been
//! installed.

mod list;
mod locks;
mod process;

use std::{
    mem::size_of_val,
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use metrics::{
    Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, SharedString, with_recorder,
};

use self::{locks::LocksByName, process::Process};
pub(crate) use self::{
    locks::{Acquire, Held, LockCounters, lock},
    process::{
        ConnectionMetrics, Leads, PendingRelease, RequestTimer, lease_margin, overslept, renewals,
    },
};

const METADATA: Metadata<'static> = Metadata::new("rlock", Level::INFO, Some("rlock_core"));

/// All handles that were made by one recorder.
struct Handles {
    locks: LocksByName,
    process: Process,
}

impl Handles {
    fn new(recorder: &dyn Recorder) -> &'static Self {
        list::describe(recorder);
        process::publish_connections(recorder);
        Box::leak(Box::new(Self {
            locks: LocksByName::default(),
            process: Process::new(recorder),
        }))
    }
}

/// Returns the handles of the installed recorder.
fn handles() -> &'static Handles {
    INSTALLED.get().copied().unwrap_or_else(find_recorder)
}

static INSTALLED: OnceLock<&'static Handles> = OnceLock::new();

/// Returns the handles of the recorder that the crate `metrics` prefers: that of the thread, else that of the process. It
/// does not distinguish them, so a recorder of one thread may stay for the whole process.
#[cold]
fn find_recorder() -> &'static Handles {
    /// The handles without a recorder, or of one without a size, and the address of what made them.
    static LATEST: Mutex<Option<(usize, &Handles)>> = Mutex::new(None);
    with_recorder(|recorder| {
        let address = ptr::from_ref(recorder).cast::<()>().addr();
        let mut latest = LATEST.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = match *latest {
            Some((made_by, handles)) if made_by == address => handles,
            _ => Handles::new(recorder),
        };
        *latest = Some((address, handles));
        // The recorder that stands in for a missing one has no size. One that has a size stays.
        if size_of_val(recorder) > 0 {
            return *INSTALLED.get_or_init(|| handles);
        }
        handles
    })
}

fn key(name: &'static str, labels: Vec<Label>) -> Key {
    Key::from_parts(name, labels)
}

fn label(name: &'static str, value: impl Into<SharedString>) -> Label {
    Label::new(name, value)
}

fn counter(recorder: &dyn Recorder, name: &'static str, labels: Vec<Label>) -> Counter {
    let counter = recorder.register_counter(&key(name, labels), &METADATA);
    // A counter that begins at its first event hides that event from `increase()`.
    counter.increment(0);
    counter
}

fn gauge(recorder: &dyn Recorder, name: &'static str, labels: Vec<Label>) -> Gauge {
    recorder.register_gauge(&key(name, labels), &METADATA)
}

fn histogram(name: &'static str, labels: Vec<Label>) -> Histogram {
    let key = key(name, labels);
    with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
}
