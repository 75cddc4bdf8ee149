//! The steady load of a soak.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rlock_core::{Hold, Lock, LockClient, LockError, current};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use rlock_testkit::{Inside, RedisServer, Witness};

/// The shared state of the tasks.
pub(super) struct Load {
    clients: Vec<LockClient>,
    keys: u64,
    grants: AtomicU64,
    /// Who is inside each lock.
    witnesses: Vec<Witness>,
    /// Errors that the load does not explain.
    unexpected: Mutex<BTreeMap<String, u64>>,
}

impl Load {
    pub(super) fn new(clients: Vec<LockClient>, keys: u64) -> Self {
        Self {
            clients,
            keys,
            grants: AtomicU64::new(0),
            witnesses: (0..keys).map(|_| Witness::new()).collect(),
            unexpected: Mutex::default(),
        }
    }

    pub(super) fn grants(&self) -> u64 {
        self.grants.load(Ordering::Relaxed)
    }

    /// Returns the entries that broke a rule, and the errors that the load does not explain.
    pub(super) fn unexpected(&self) -> Vec<String> {
        let errors = self
            .unexpected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let told = errors.iter();
        let told = told.map(|(error, count)| format!("{count} times: {error}"));
        told.chain(self.witnesses.iter().flat_map(Witness::broken))
            .collect()
    }

    /// Counts a hold, and records that it is inside.
    fn enters(&self, hold: &Hold) -> Inside {
        self.grants.fetch_add(1, Ordering::Relaxed);
        let number = hold.key().rsplit(':').next().unwrap_or_default();
        let number: usize = number.parse().expect("keys end with their numbers");
        self.witnesses[number].hold(hold)
    }

    /// Counts the outcome of a call. A killed connection may cause a loss or an error; nothing else
    /// may.
    fn note(&self, outcome: Result<(), LockError>) {
        match outcome {
            Ok(())
            | Err(
                LockError::Taken { .. } | LockError::Lost { .. } | LockError::Unavailable { .. },
            ) => {}
            Err(error) => {
                let mut errors = self
                    .unexpected
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                *errors.entry(format!("{error:#}")).or_default() += 1;
            }
        }
    }

    /// Returns a random lock. Every second one is from a few contended locks.
    fn lock(&self, rng: &mut fastrand::Rng) -> Lock {
        const HOT: u64 = 4;
        let keys = if rng.bool() { HOT } else { self.keys };
        self.one_of(keys, rng)
    }

    fn one_of(&self, keys: u64, rng: &mut fastrand::Rng) -> Lock {
        let number = rng.u64(..keys);
        let client = &self.clients[rng.usize(..self.clients.len())];
        client
            .lock(format!("soak:{number}"))
            .lease(Duration::from_millis(rng.u64(500..2_000)))
            .wait(Duration::from_secs(3))
    }
}

/// Acquires one lock after the other.
pub(super) async fn work(load: Arc<Load>, over: watch::Receiver<bool>) {
    let mut rng = fastrand::Rng::new();
    while !*over.borrow() {
        let lock = load.lock(&mut rng);
        let stay = Duration::from_micros(rng.u64(0..4_000));
        let body = async {
            let _inside = load.enters(&current().expect("inside"));
            sleep(stay).await;
        };
        match rng.u8(..100) {
            0..50 => load.note(lock.run(body).await),
            50..65 => load.note(release(&load, &lock).await),
            65..75 => load.note(lock.acquire().await.map(|guard| {
                drop(load.enters(&guard));
                drop(guard);
            })),
            75..90 => {
                let patience = Duration::from_micros(rng.u64(0..6_000));
                if let Ok(outcome) = timeout(patience, lock.run(body)).await {
                    load.note(outcome);
                }
            }
            90..98 => {
                let nested = async {
                    let _inside = load.enters(&current().expect("inside"));
                    lock.run(async { lock.run(async {}).await }).await
                };
                load.note(lock.run(nested).await.flatten().flatten());
            }
            // Long enough for several renewals.
            _ => {
                let lock = load.one_of(load.keys, &mut rng);
                load.note(lock.run(sleep(Duration::from_millis(1_500))).await);
            }
        }
        sleep(Duration::from_micros(rng.u64(0..4_000))).await;
    }
}

async fn release(load: &Load, lock: &Lock) -> Result<(), LockError> {
    let guard = lock.acquire().await?;
    drop(load.enters(&guard));
    guard.release().await
}

/// Kills all connections at intervals.
pub(super) async fn disturb(server: Arc<RedisServer>, over: watch::Receiver<bool>) {
    let mut turn = 0_u32;
    while !*over.borrow() {
        sleep(Duration::from_millis(500)).await;
        turn += 1;
        match turn % 10 {
            3 => drop(server.kill_clients("normal").await),
            6 => drop(server.kill_clients("pubsub").await),
            9 => server.script_flush().await,
            _ => {}
        }
    }
}

/// Connects clients that acquire a lock and end, with or without a shutdown.
pub(super) async fn come_and_go(url: String, over: watch::Receiver<bool>) {
    let mut turn = 0_u32;
    while !*over.borrow() {
        sleep(Duration::from_millis(300)).await;
        turn += 1;
        // The connection may be killed at once.
        let Ok(client) = LockClient::connect(&url).await else {
            continue;
        };
        let lock = client.lock("soak:visitors").lease(Duration::from_secs(1));
        let Ok(guard) = lock.acquire().await else {
            continue;
        };
        if turn.is_multiple_of(2) {
            drop(guard);
            drop(client.shutdown().await);
        }
    }
}
