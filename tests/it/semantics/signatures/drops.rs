//! The order of drops. Arguments of the body drop as in a plain function, before the release. The
//! few that cannot move into the body drop after it.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rlock_core::distributed_lock;

use super::held::{client, is_free_elsewhere, run};

/// The dropped values, and the state of the lock at each drop.
struct Log {
    key: &'static str,
    entries: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Log {
    fn new(key: &'static str) -> Self {
        let entries = Mutex::default();
        Self { key, entries }
    }

    fn probe(&self, name: &'static str) -> Probe<'_> {
        Probe { name, log: self }
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            used: self.probe("used part"),
            unused: self.probe("unused part"),
        }
    }

    fn pair(&self) -> (Probe<'_>, Probe<'_>) {
        (self.probe("left"), self.probe("right"))
    }

    fn entries(self) -> Vec<(&'static str, &'static str)> {
        self.entries
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Logs its drop.
struct Probe<'a> {
    name: &'static str,
    log: &'a Log,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let state = if is_free_elsewhere(self.log.key) {
            "free"
        } else {
            "held"
        };
        let entries = self.log.entries.lock();
        let mut entries = entries.unwrap_or_else(PoisonError::into_inner);
        entries.push((self.name, state));
    }
}

struct Parts<'a> {
    used: Probe<'a>,
    unused: Probe<'a>,
}

impl Probe<'_> {
    #[distributed_lock(key = "<self.log.key>", or_else = |_| ())]
    async fn methods(self, other: Probe<'_>) {
        let _local = other.log.probe("local");
    }
}

#[distributed_lock(key = "<log.key>", or_else = |_| ())]
#[expect(unused_variables, reason = "these are the arguments to watch")]
async fn taken(
    log: &Log,
    used: Probe<'_>,
    never: Probe<'_>,
    (left, right): (Probe<'_>, Probe<'_>),
    _passed: Probe<'_>,
) {
    let _local = log.probe("local");
    drop(right);
    let _mentioned = &used;
}

#[distributed_lock(key = "<log.key>", or_else = |_| ())]
#[expect(unused_variables, reason = "these are the arguments to watch")]
fn taken_here(
    log: &Log,
    used: Probe<'_>,
    never: Probe<'_>,
    (left, right): (Probe<'_>, Probe<'_>),
    _passed: Probe<'_>,
) {
    let _local = log.probe("local");
    drop(right);
    let _mentioned = &used;
}

#[distributed_lock(key = "<log.key>", or_else = |_| panic!("{}", fallback.name))]
#[expect(
    unused_variables,
    clippy::toplevel_ref_arg,
    reason = "these are the arguments to watch"
)]
async fn left(
    log: &Log,
    fallback: Probe<'_>,
    _: Probe<'_>,
    ref by_reference: Probe<'_>,
    Parts { used, unused }: Parts<'_>,
) {
    let _mentioned = (&used, &by_reference);
}

#[distributed_lock(key = "<log.key>", or_else = |_| panic!("{}", fallback.name))]
#[expect(
    unused_variables,
    clippy::needless_pass_by_value,
    clippy::toplevel_ref_arg,
    reason = "these are the arguments to watch"
)]
fn left_here(
    log: &Log,
    fallback: Probe<'_>,
    _: Probe<'_>,
    ref by_reference: Probe<'_>,
    Parts { used, unused }: Parts<'_>,
) {
    let _mentioned = (&used, &by_reference);
}

#[async_trait]
trait Drops {
    async fn drops(&self, log: &Log, first: Probe<'_>, pair: (Probe<'_>, Probe<'_>));
}

#[async_trait]
impl Drops for u8 {
    #[distributed_lock(key = "<log.key>", or_else = |_| ())]
    async fn drops(&self, log: &Log, first: Probe<'_>, (left, _right): (Probe<'_>, Probe<'_>)) {
        let _local = log.probe("local");
        let _mentioned = (&first, &left);
    }
}

const TAKEN: [(&str, &str); 6] = [
    ("right", "held"),
    ("local", "held"),
    ("passed", "held"),
    ("left", "held"),
    ("never", "held"),
    ("used", "held"),
];

const LEFT: [(&str, &str); 5] = [
    ("used part", "held"),
    ("unused part", "free"),
    ("by reference", "free"),
    ("nameless", "free"),
    ("fallback", "free"),
];

#[tokio::test]
async fn values_of_the_body_are_dropped_as_by_a_plain_function_before_the_release() {
    let log = Log::new("drops-taken");
    let [used, never, passed] = ["used", "never", "passed"].map(|name| log.probe(name));
    run(taken(&log, used, never, log.pair(), passed)).await;
    assert_eq!(log.entries(), TAKEN);

    let log = Log::new("drops-method");
    let (receiver, other) = (log.probe("receiver"), log.probe("other"));
    run(receiver.methods(other)).await;
    let names = ["local", "other", "receiver"];
    assert_eq!(log.entries(), names.map(|name| (name, "held")));

    let log = Log::new("drops-async-trait");
    run(1.drops(&log, log.probe("first"), log.pair())).await;
    let names = ["local", "right", "left", "first"];
    assert_eq!(log.entries(), names.map(|name| (name, "held")));
}

#[test]
fn what_a_synchronous_body_takes_is_dropped_so_too() {
    client();
    let log = Log::new("drops-taken-here");
    let [used, never, passed] = ["used", "never", "passed"].map(|name| log.probe(name));
    taken_here(&log, used, never, log.pair(), passed);
    assert_eq!(log.entries(), TAKEN);
}

#[tokio::test]
async fn values_that_only_or_else_names_are_dropped_after_the_release() {
    let log = Log::new("drops-left");
    let [fallback, nameless, by_reference] =
        ["fallback", "nameless", "by reference"].map(|name| log.probe(name));
    run(left(&log, fallback, nameless, by_reference, log.parts())).await;
    assert_eq!(log.entries(), LEFT);
}

#[test]
fn what_a_synchronous_body_cannot_take_is_dropped_after_that_too() {
    client();
    let log = Log::new("drops-left-here");
    let [fallback, nameless, by_reference] =
        ["fallback", "nameless", "by reference"].map(|name| log.probe(name));
    left_here(&log, fallback, nameless, by_reference, log.parts());
    assert_eq!(log.entries(), LEFT);
}
