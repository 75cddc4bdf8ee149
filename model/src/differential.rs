//! Compares the replies of the model's server, which has the rules of the embedded store, and of a real store to random
//! operations.
//!
//! Fences are compared by their order. A grant of the model is a grant of the store, and the grants
//! of a key have the same order. On each side, fences grow.
//!
//! Times to live may differ by the duration of the run.

mod agree;
mod fences;
mod operation;
mod subject;

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    strategy::Strategy,
    test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner},
};

use self::{agree::compare, fences::Side, operation::operations, subject::ModelSubject};
pub use self::{
    operation::{CLIENTS, KEYS, Operation},
    subject::{KeyView, Observed, Reply, Subject},
};

/// The largest number of operations in a sequence.
const LONGEST: usize = 30;
/// In a longer run, a time to live may reach the next range.
const FAST: Duration = Duration::from_millis(40);
/// The number of attempts to run a sequence fast enough.
const TRIES: usize = 50;

/// The totals of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Sequences that were run.
    pub sequences: usize,
    /// Operations in them.
    pub operations: usize,
    /// Replies that granted a lock.
    pub granted: usize,
    /// Replies that another owner has it.
    pub taken: usize,
    /// Notifications to owners and waiters.
    pub notifications: usize,
    /// Renewals that set a new fence.
    pub refenced: usize,
    /// Sequences that differed, but were too slow on each try to be conclusive.
    pub inconclusive: usize,
}

/// Runs random sequences, 256 unless `PROPTEST_CASES` is set, and shrinks one that differs.
/// `PROPTEST_RNG_SEED` repeats a run.
///
/// # Panics
///
/// Panics if the replies of the store and the model differ.
pub fn run<S: Subject>(store: S) -> Tally {
    let mut config = Config {
        failure_persistence: None,
        max_shrink_iters: 4_096,
        ..Config::default()
    };
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(0),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    println!("PROPTEST_RNG_SEED={seed}");
    let mut runner = TestRunner::new(config);
    let (store, tally) = (
        std::cell::RefCell::new(store),
        std::cell::RefCell::default(),
    );
    let is_member = store.borrow().is_member();
    // A member keeps a lock with waiters for 5 ms, which may end within a step, and takes over fences that the holder does not know.
    let of_member = move |mut operations: Vec<Operation>| {
        for operation in operations.iter_mut().filter(|_| is_member) {
            match operation {
                Operation::Acquire(ask, _) => ask.waits = false,
                Operation::Downgrade(ask, _) => ask.fence = 0,
                Operation::Release(ask, _) => ask.fence = 0,
                _ => {}
            }
        }
        operations
    };
    let sequences = vec(operations(), 1..LONGEST).prop_map(of_member);
    let outcome = runner.run(&sequences, |operations| {
        let (mut store, mut tally) = (store.borrow_mut(), tally.borrow_mut());
        check(&mut *store, &operations, &mut tally).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => tally.into_inner(),
        Err(TestError::Fail(reason, operations)) => {
            let steps: Vec<String> = operations
                .iter()
                .map(|step| format!("  {step:?}"))
                .collect();
            panic!("seed {seed}: {reason}\nafter\n{}", steps.join("\n"))
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Runs one sequence.
///
/// # Panics
///
/// Panics if the replies of the store and the model differ.
pub fn replay<S: Subject>(store: &mut S, operations: &[Operation]) {
    let mut tally = Tally::default();
    if let Err(reason) = check(store, operations, &mut tally) {
        panic!("{reason}");
    }
    assert_eq!(
        tally.inconclusive, 0,
        "the machine is too slow for a result"
    );
}

fn check<S: Subject>(
    store: &mut S,
    operations: &[Operation],
    tally: &mut Tally,
) -> Result<(), String> {
    for _ in 0..TRIES {
        let started = Instant::now();
        let mut counted = *tally;
        let outcome = once(store, operations, started, &mut counted);
        if outcome.is_ok() || started.elapsed() < FAST {
            counted.sequences += 1;
            *tally = counted;
            return outcome;
        }
    }
    tally.inconclusive += 1;
    Ok(())
}

fn once<S: Subject>(
    store: &mut S,
    operations: &[Operation],
    started: Instant,
    tally: &mut Tally,
) -> Result<(), String> {
    store.reset();
    let mut pair = Pair {
        model: ModelSubject::new(store.is_member()),
        store,
        by_model: Side::default(),
        by_store: Side::default(),
        started,
        tally,
    };
    let mut gone = Vec::new();
    for (n, operation) in operations.iter().enumerate() {
        let mut operation = operation.clone();
        if let Operation::Release(release, _) = &mut operation {
            release.refuses_late &= pair.store.refuses_late_acquires();
        }
        let is_restore = matches!(operation, Operation::Restore(..));
        if gone.iter().any(|client| operation.is_by(*client))
            || is_restore && !pair.store.restores()
        {
            continue;
        }
        if let Operation::Leave(client) = operation {
            gone.push(client);
        }
        pair.step(&operation)
            .map_err(|what| format!("step {n}, {operation:?}: {what}"))?;
    }
    Ok(())
}

/// The two stores under comparison, with their fences.
struct Pair<'a, S> {
    store: &'a mut S,
    model: ModelSubject,
    by_model: Side,
    by_store: Side,
    started: Instant,
    tally: &'a mut Tally,
}

impl<S: Subject> Pair<'_, S> {
    /// Returns how much the times may differ by now.
    fn late(&self) -> Duration {
        self.started.elapsed() + Duration::from_millis(2)
    }

    fn step(&mut self, operation: &Operation) -> Result<(), String> {
        let expected = self.model.apply(&self.by_model.resolve(operation));
        let found = self.store.apply(&self.by_store.resolve(operation));
        compare((&expected, &found), self.late())
            .and_then(|()| self.by_model.note(operation, &expected))
            .and_then(|()| self.by_store.note(operation, &found))
            .and_then(|()| self.by_model.same_order(&self.by_store))
            .map_err(|what| format!("{what}\nmodel: {expected:?}\nstore: {found:?}"))?;
        self.tally.operations += 1;
        self.tally.granted += usize::from(expected.reply.is_grant());
        self.tally.taken += usize::from(expected.reply.is_taken());
        self.tally.notifications += expected.notifications.len();
        self.tally.refenced += usize::from(found.reply.has_new_fence());
        Ok(())
    }
}
