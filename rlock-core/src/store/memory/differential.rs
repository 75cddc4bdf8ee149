//! Compares the embedded store with the model of the protocol.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use rlock_model::{
    differential::{CLIENTS, Design, KEYS, KeyView, Observed, Operation, Reply, Subject, run},
    words,
};
use uuid::Uuid;

use super::{MemoryStore, SharedStore};
use crate::{
    clock::{ClientClock, Clock},
    key::Key,
    lease::Time,
    mode::Mode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Claim, Event, ReleaseRequest, Released, Renewal, RenewalOutcome,
        SendOptions, Store,
    },
};

type Notified = Arc<Mutex<Vec<words::Notification>>>;

/// A clock in milliseconds, which operations advance.
#[derive(Default)]
struct Advanced(AtomicU64);

impl Clock for Advanced {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[derive(Default)]
struct Embedded {
    clock: Arc<Advanced>,
    shared: Arc<SharedStore>,
    clients: Vec<Option<MemoryStore>>,
    notified: Notified,
}

impl Embedded {
    /// Returns the store as this client sees it. A client that is gone is replaced by another.
    fn client(&self, client: u8) -> &MemoryStore {
        let own = self
            .clients
            .get(usize::from(client))
            .and_then(Option::as_ref);
        own.or_else(|| self.clients.iter().flatten().next())
            .expect("a client is left")
    }
}

fn key(key: words::Key) -> Key {
    Key::parse(&format!("k{key}")).expect("valid")
}

fn key_back(key: &Key) -> words::Key {
    key.as_str()[1..].parse().expect("one of ours")
}

fn owner(owner: words::Owner) -> OwnerId {
    let mode = match owner.mode {
        words::Mode::Exclusive => Mode::Exclusive,
        words::Mode::Shared => Mode::Shared,
        words::Mode::Permits(most) => Mode::Permits(most.into()),
    };
    let client = Uuid::from_u128(owner.client.into());
    OwnerId::new(client, owner.sequence.into(), mode)
}

fn owner_back(owner: OwnerId) -> words::Owner {
    words::Owner {
        client: owner.client().as_u128().try_into().expect("small"),
        sequence: owner.sequence().try_into().expect("small"),
        mode: match owner.mode() {
            Mode::Exclusive => words::Mode::Exclusive,
            Mode::Shared => words::Mode::Shared,
            Mode::Permits(most) => words::Mode::Permits(most.try_into().expect("small")),
            other => unreachable!("no operation has {other}"),
        },
    }
}

fn holder(owner: OwnerId) -> words::Holder {
    if owner.is_kept() {
        words::Holder::Kept
    } else {
        words::Holder::Owner(owner_back(owner))
    }
}

fn millis(time: Duration) -> words::Millis {
    // Rounded up, like the remaining time of a lease on a server.
    time.as_micros().div_ceil(1_000).try_into().expect("short")
}

fn record(event: Event, notified: &mut Vec<words::Notification>) {
    notified.push(match event {
        Event::Granted {
            key,
            owner,
            fence,
            ttl,
            wanted,
        } => words::Notification::Granted {
            key: key_back(&key),
            owner: owner_back(owner),
            fence,
            ttl: millis(ttl),
            others_wait: wanted,
        },
        Event::Wanted { key, owner } => words::Notification::Wanted {
            key: key_back(&key),
            owner: owner_back(owner),
        },
        Event::Retry { key, owner, after } => words::Notification::Retry {
            key: key_back(&key),
            owner: owner_back(owner),
            after: millis(after),
        },
        Event::Message(_)
        | Event::Changed(_)
        | Event::AllChanged
        | Event::SomeChanged(_)
        | Event::Disconnected => return,
    });
}

fn claim(claim: words::Claim) -> Claim {
    Claim {
        key: key(claim.key),
        owner: owner(claim.owner),
    }
}

fn at_once<T>(reply: impl Future<Output = T>) -> T {
    reply
        .now_or_never()
        .expect("the embedded store answers at once")
}

fn send() -> SendOptions {
    SendOptions::new(Duration::ZERO)
}

impl Embedded {
    fn acquire(&self, ask: &words::Acquire) -> words::Acquired {
        let request = AcquireRequest {
            claims: ask.claims.iter().copied().map(claim).collect(),
            lease: Duration::from_millis(ask.lease),
            count: ask.count.into(),
            waits: ask.waits,
        };
        let requester = self.client(ask.claims[0].owner.client);
        let reply = requester.acquire(&request, send());
        match at_once(reply).expect("never fails") {
            Acquired::Granted { fences, wanted, .. } => words::Acquired::Granted {
                fences: fences.to_vec(),
                others_wait: wanted,
            },
            Acquired::Taken {
                claim,
                ttl,
                queued,
                fences,
                ..
            } => words::Acquired::Taken {
                claim,
                ttl: millis(ttl.expect("every lease ends")),
                queued: queued.is_some(),
                first: queued.is_some_and(|place| place.first),
                fences: fences.to_vec(),
            },
            Acquired::NotOwner => words::Acquired::NotOwner,
        }
    }

    fn release(&self, ask: &words::Release) -> words::Released {
        let release = ReleaseRequest {
            key: key(ask.key),
            owner: owner(ask.owner),
            fence: ask.fence,
            count: ask.count.into(),
            at_least: Duration::from_millis(ask.at_least),
        };
        let reply = self.client(ask.owner.client).release(&release, send());
        match at_once(reply).expect("never fails") {
            Released::Done => words::Released::Done,
            Released::NotHeld => words::Released::NotHeld,
        }
    }

    fn renew(&self, ask: &words::Renew) -> Vec<words::Renewed> {
        let renewal = |renewal: &words::Renewal| Renewal {
            claim: claim(renewal.claim),
            fence: renewal.fence,
        };
        let renewals: Vec<Renewal> = ask.renewals.iter().map(renewal).collect();
        let requester = self.client(ask.renewals[0].claim.owner.client);
        let reply = requester.renew(&renewals, Duration::from_millis(ask.lease), send());
        let renewed = |outcome: &RenewalOutcome| match *outcome {
            RenewalOutcome::Held { wanted, fence } => words::Renewed {
                held: true,
                wanted,
                fence,
            },
            _ => words::Renewed {
                held: false,
                wanted: false,
                fence: 0,
            },
        };
        let kept = at_once(reply).expect("never fails").kept;
        kept.iter().map(renewed).collect()
    }

    fn view(&self, name: words::Key) -> KeyView {
        let key = key(name);
        let mut state = self.shared.state();
        let entry = state
            .inspect(&key, Time::from(self.clock.elapsed()))
            .map(|entry| words::Entry {
                holders: {
                    let first = OwnerId::parse(&entry.owner).expect("an owner");
                    let mut holders = vec![holder(first)];
                    holders.extend(entry.others.iter().copied().map(holder));
                    holders.sort_unstable();
                    holders
                },
                count: entry.count.try_into().expect("small"),
                ttl: millis(entry.ttl.expect("every lease ends")),
                fence: entry.fence.expect("every lock has one"),
            });
        KeyView {
            entry,
            queue: state.queues.of(&key).map(owner_back).collect(),
        }
    }
}

impl Subject for Embedded {
    fn reset(&mut self) {
        *self = Self::default();
        for client in 0..CLIENTS {
            let notified = Arc::clone(&self.notified);
            let listener = Arc::new(move |event| {
                let mut notified = notified.lock().unwrap_or_else(PoisonError::into_inner);
                record(event, &mut notified);
            });
            let client = Uuid::from_u128(client.into());
            let clock = ClientClock::given(Arc::clone(&self.clock) as Arc<dyn Clock>);
            let store = MemoryStore::join(Arc::clone(&self.shared), client, clock, listener);
            self.clients.push(Some(store));
        }
    }

    fn apply(&mut self, operation: &Operation) -> Observed {
        let reply = match operation {
            Operation::Acquire(ask) => Reply::Acquired(self.acquire(ask)),
            Operation::Release(ask) => Reply::Released(self.release(ask)),
            Operation::Renew(ask) => Reply::Renewed(self.renew(ask)),
            Operation::Pass(time) => {
                self.clock.0.fetch_add(*time, Ordering::Relaxed);
                Reply::None
            }
            Operation::Leave(client) => {
                self.clients[usize::from(*client)] = None;
                Reply::None
            }
            Operation::Restart | Operation::LoseFence(_) | Operation::InvalidateFence(..) => {
                unreachable!(
                    "the embedded store loses nothing while it lives, and others write nothing"
                )
            }
        };
        let mut notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let notifications = std::mem::take(&mut *notified);
        drop(notified);
        Observed {
            reply,
            notifications,
            keys: (0..KEYS).map(|key| self.view(key)).collect(),
        }
    }
}

#[test]
fn the_embedded_store_answers_as_the_model_does() {
    let tally = run(Embedded::default(), Design::MEMORY);
    println!("{tally:?}");
    assert_eq!(tally.inconclusive, 0, "{tally:?}");
    assert!(
        tally.granted > 100 && tally.taken > 100 && tally.notifications > 20,
        "{tally:?}"
    );
}
