//! The order in which a locked function drops its values. Arguments of the body drop as in a plain function, before
//! the release. The few that cannot move into the body drop after it.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use rlock_core::distributed_lock;

use super::held::{client, is_free_elsewhere, run};

/// The dropped values, and the state of the lock at each drop.
struct Log {
    key: &'static str,
    entries: Mutex<Vec<String>>,
}

impl Log {
    fn new(key: &'static str) -> Self {
        let entries = Mutex::default();
        Self { key, entries }
    }

    fn probe(&self, name: &'static str) -> Probe<'_> {
        Probe { name, log: self }
    }

    fn pair(&self) -> (Probe<'_>, Probe<'_>) {
        (self.probe("left"), self.probe("right"))
    }

    fn probes<const N: usize>(&self, names: [&'static str; N]) -> [Probe<'_>; N] {
        names.map(|name| self.probe(name))
    }

    fn parts(&self) -> Parts<'_> {
        let [used, unused] = self.probes(["used part", "unused part"]);
        Parts { used, unused }
    }

    fn entries(self) -> String {
        let entries = self.entries.into_inner();
        entries.unwrap_or_else(PoisonError::into_inner).join(", ")
    }
}

/// Logs its drop.
struct Probe<'a> {
    name: &'static str,
    log: &'a Log,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        let is_free = is_free_elsewhere(self.log.key);
        let state = if is_free { "free" } else { "held" };
        let entries = self.log.entries.lock();
        let mut entries = entries.unwrap_or_else(PoisonError::into_inner);
        entries.push(format!("{} {state}", self.name));
    }
}

struct Parts<'a> {
    used: Probe<'a>,
    unused: Probe<'a>,
}

/// Defines an asynchronous and a synchronous function with the same arguments and the same body.
macro_rules! both {
    ($name:ident, $here:ident, on_error = $on_error:expr, ($($arguments:tt)*) { $($body:tt)* }) => {
        #[distributed_lock(key = "<log.key>", on_error = $on_error)]
        #[allow(unused_variables, clippy::toplevel_ref_arg, reason = "these are the arguments to watch")]
        async fn $name($($arguments)*) { $($body)* }

        #[distributed_lock(key = "<log.key>", on_error = $on_error)]
        #[allow(unused_variables, clippy::toplevel_ref_arg, reason = "these are the arguments to watch")]
        fn $here($($arguments)*) { $($body)* }
    };
}

both!(taken, taken_here, on_error = |_| (), (
    log: &Log,
    used: Probe<'_>,
    never: Probe<'_>,
    (left, right): (Probe<'_>, Probe<'_>),
    _passed: Probe<'_>,
) {
    let _local = log.probe("local");
    drop(right);
    let _mentioned = &used;
});

both!(left, left_here, on_error = |_| panic!("{}", fallback.name), (
    log: &Log,
    fallback: Probe<'_>,
    _: Probe<'_>,
    ref by_reference: Probe<'_>,
    Parts { used, unused }: Parts<'_>,
) {
    let _mentioned = (&used, &by_reference);
});

#[async_trait]
trait Drops {
    async fn drops(&self, log: &Log, first: Probe<'_>, pair: (Probe<'_>, Probe<'_>));
}

#[async_trait]
impl Drops for u8 {
    #[distributed_lock(key = "<log.key>", on_error = |_| ())]
    async fn drops(&self, log: &Log, first: Probe<'_>, (left, _right): (Probe<'_>, Probe<'_>)) {
        let _local = log.probe("local");
        let _mentioned = (&first, &left);
    }
}

const TAKEN: &str = "right held, local held, passed held, left held, never held, used held";
const LEFT: &str =
    "used part held, unused part free, by reference free, nameless free, fallback free";

#[tokio::test]
async fn values_of_the_body_are_dropped_before_the_release_and_others_after_it() {
    let log = Log::new("drops-taken");
    let [used, never, passed] = log.probes(["used", "never", "passed"]);
    run(taken(&log, used, never, log.pair(), passed)).await;
    assert_eq!(log.entries(), TAKEN);

    let log = Log::new("drops-async-trait");
    run(1.drops(&log, log.probe("first"), log.pair())).await;
    let expected = "local held, right held, left held, first held";
    assert_eq!(log.entries(), expected);

    let log = Log::new("drops-left");
    let [fallback, nameless, reference] = log.probes(["fallback", "nameless", "by reference"]);
    run(left(&log, fallback, nameless, reference, log.parts())).await;
    assert_eq!(log.entries(), LEFT);
}

#[test]
fn a_synchronous_function_drops_its_values_in_the_same_order() {
    client();
    let log = Log::new("drops-taken-here");
    let [used, never, passed] = log.probes(["used", "never", "passed"]);
    taken_here(&log, used, never, log.pair(), passed);
    assert_eq!(log.entries(), TAKEN);

    let log = Log::new("drops-left-here");
    let [fallback, nameless, reference] = log.probes(["fallback", "nameless", "by reference"]);
    left_here(&log, fallback, nameless, reference, log.parts());
    assert_eq!(log.entries(), LEFT);
}
