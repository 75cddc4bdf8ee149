//! Operations, and their random generation.

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::select,
};

use crate::words::{Acquire, Claim, Key, Millis, Mode, Owner, Release, Renew, Renewal};

/// The number of keys.
pub const KEYS: u8 = 2;
/// The number of clients.
pub const CLIENTS: u8 = 3;
/// The modes of a client's owners: one owner each.
const MODES: [Mode; 5] = [
    Mode::Exclusive,
    Mode::Exclusive,
    Mode::Shared,
    Mode::Permits(2),
    Mode::Permits(3),
];
const OWNERS: u8 = 5;

/// Each owner belongs to one key.
fn of(key: Key, owner: Owner) -> Owner {
    Owner {
        sequence: key * OWNERS + owner.sequence,
        ..owner
    }
}

/// An operation.
///
/// Any owner may request anything at any time. So the sequences include requests that are late,
/// repeated or out of order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asks for locks.
    Acquire(Acquire),
    /// Lowers a count. A fence counts from the last one that the owner knows.
    Release(Release),
    /// Extends leases. Fences count from the last ones that the owners know.
    Renew(Renew),
    /// Advances the time.
    Pass(Millis),
    /// A client leaves all wait queues, and disconnects. None of its requests follows.
    Leave(u8),
    /// Restarts the server without data.
    Restart,
    /// The last fence of a key is lost.
    LoseFence(Key),
}

impl Operation {
    /// Returns whether it is a request of this client.
    pub(super) fn is_by(&self, client: u8) -> bool {
        match self {
            Self::Acquire(ask) => ask.claims.iter().any(|claim| claim.owner.client == client),
            Self::Release(ask) => ask.owner.client == client,
            Self::Renew(ask) => {
                let mut owners = ask.renewals.iter().map(|renewal| renewal.claim.owner);
                owners.any(|owner| owner.client == client)
            }
            Self::Pass(_) | Self::Leave(_) | Self::Restart | Self::LoseFence(_) => false,
        }
    }
}

/// The distances are far larger than the duration of a run.
const LEASES: [Millis; 3] = [2_000, 10_000, 60_000];
const PASSES: [Millis; 7] = [100, 400, 700, 1_500, 3_000, 12_000, 21_000];

fn key() -> impl Strategy<Value = Key> {
    // Mostly the same key, so that owners meet.
    prop_oneof![3 => Just(0), 1 => 0..KEYS]
}

fn owner() -> impl Strategy<Value = Owner> {
    (0..CLIENTS, 0..OWNERS, any::<bool>()).prop_map(|(client, sequence, is_later)| Owner {
        client,
        sequence,
        // One of the exclusive owners may downgrade its lock later.
        mode: if sequence == 1 && is_later {
            Mode::Shared
        } else {
            MODES[usize::from(sequence)]
        },
    })
}

/// Returns whether the store counts the entries of an owner.
fn is_counted(owner: Owner) -> bool {
    owner.mode == Mode::Exclusive
}

fn lease() -> impl Strategy<Value = Millis> {
    select(LEASES.as_slice())
}

fn acquire() -> impl Strategy<Value = Operation> {
    let single = (key(), owner()).prop_map(|(key, owner)| {
        vec![Claim {
            key,
            owner: of(key, owner),
        }]
    });
    let both = (owner(), owner()).prop_map(|(first, second)| {
        let claim = |(key, owner)| Claim {
            key,
            owner: of(key, owner),
        };
        (0..KEYS).zip([first, second]).map(claim).collect()
    });
    let count = prop_oneof![6 => Just(1), 1 => Just(2), 1 => Just(3)];
    let claims = prop_oneof![
        4 => (single, count),
        1 => (both, Just(1)),
    ];
    (claims, lease(), any::<bool>()).prop_map(|((claims, count), lease, waits)| {
        let are_counted = claims.iter().all(|claim| is_counted(claim.owner));
        Operation::Acquire(Acquire {
            claims,
            lease,
            count: if are_counted { count } else { 1 },
            waits,
            floor: 0,
        })
    })
}

fn release() -> impl Strategy<Value = Operation> {
    let fence = 0..2_u64;
    let count = prop_oneof![4 => Just(0), 1 => 1..3_u8];
    let min_hold = prop_oneof![4 => Just(0), 1 => Just(3_000)];
    let request = (key(), owner(), fence, count, min_hold);
    request.prop_map(|(key, owner, fence, count, min_hold)| {
        Operation::Release(Release {
            key,
            owner: of(key, owner),
            fence,
            count: match owner.mode {
                Mode::Exclusive => count,
                Mode::Shared => count.min(1),
                Mode::Permits(_) => 0,
            },
            min_hold,
        })
    })
}

fn renew() -> impl Strategy<Value = Operation> {
    let renewal = (key(), owner(), 0..2_u64).prop_map(|(key, owner, fence)| {
        let owner = of(key, owner);
        let claim = Claim { key, owner };
        Renewal { claim, fence }
    });
    // Without a lease, a renewal only asks.
    let lease = prop_oneof![4 => lease(), 1 => Just(0)];
    (vec(renewal, 1..4), lease)
        .prop_map(|(renewals, lease)| Operation::Renew(Renew { renewals, lease }))
}

pub(super) fn operations() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => acquire(),
        8 => release(),
        4 => renew(),
        4 => select(PASSES.as_slice()).prop_map(Operation::Pass),
        1 => (0..CLIENTS).prop_map(Operation::Leave),
        1 => Just(Operation::Restart),
    ]
}
