//! Operations, and their random generation.

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::select,
};

use super::Design;
use crate::{
    server::TOO_LARGE,
    words::{
        Acquire, BLOCK, Claim, Extend, History, Key, Known, Millis, Next, Owner, Release, Renewal,
        Token,
    },
};

/// The number of keys.
pub const KEYS: u8 = 2;
/// The number of clients.
pub const CLIENTS: u8 = 3;
/// The number of owners of each client.
const OWNERS: u8 = 2;

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
    /// Lowers a count. Its token is the last one that the owner knows.
    Release(Release),
    /// Extends leases.
    Renew(Renewal),
    /// Asks for more tokens.
    Extend(Extend),
    /// Advances the time.
    Pass(Millis),
    /// Disconnects a client.
    Leave(u8),
    /// Restarts the server without data.
    Restart,
    /// The last token of a key is lost.
    LoseToken(Key),
    /// A server takes over again, and has missed the last grant of a key.
    MissGrant(Key),
    /// Foreign code overwrites the last token of a key.
    InvalidateToken(Key, Token),
    /// A batch of requests of one kind: acquires of one lock each, or releases. A store may execute
    /// some of them at once. The others follow one by one.
    Batch(Vec<Operation>),
}

impl Operation {
    /// Returns whether it is a request of this client.
    pub(super) fn is_by(&self, client: u8) -> bool {
        match self {
            Self::Acquire(ask) => ask.claims.iter().any(|claim| claim.owner.client == client),
            Self::Release(ask) => ask.owner.client == client,
            Self::Renew(ask) => ask.claims.iter().any(|claim| claim.owner.client == client),
            Self::Extend(ask) => ask.owner.client == client,
            Self::Batch(requests) => requests.iter().any(|request| request.is_by(client)),
            Self::Pass(_)
            | Self::Leave(_)
            | Self::Restart
            | Self::LoseToken(_)
            | Self::MissGrant(_)
            | Self::InvalidateToken(..) => false,
        }
    }
}

/// The distances are far larger than the duration of a run.
const LEASES: [Millis; 3] = [2_000, 10_000, 60_000];
const PASSES: [Millis; 7] = [100, 400, 700, 1_500, 3_000, 12_000, 21_000];

/// Numbers that a server's doubles cannot represent exactly.
const INVALID: [Token; 3] = [TOO_LARGE, TOO_LARGE + 1, i64::MAX as Token];

fn key() -> impl Strategy<Value = Key> {
    // Mostly the same key, so that owners meet.
    prop_oneof![3 => Just(0), 1 => 0..KEYS]
}

fn owner() -> impl Strategy<Value = Owner> {
    (0..CLIENTS, 0..OWNERS).prop_map(|(client, sequence)| Owner { client, sequence })
}

fn lease() -> impl Strategy<Value = Millis> {
    select(LEASES.as_slice())
}

/// Generates what a client knows: no history, the server's, or seldom another one. A store that loses no data has none.
fn known(design: Design) -> impl Strategy<Value = Known> {
    let known = move |history: Option<History>| Known {
        least: 0,
        history: history.filter(|_| design.loses_data),
    };
    select([None, None, Some(0), Some(0), Some(1)].as_slice()).prop_map(known)
}

fn acquire(design: Design) -> impl Strategy<Value = Operation> {
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
    (claims, lease(), any::<bool>(), known(design)).prop_map(
        |((claims, count), lease, waits, known)| {
            Operation::Acquire(Acquire {
                claims,
                lease,
                count,
                waits,
                known,
            })
        },
    )
}

fn release(design: Design) -> impl Strategy<Value = Operation> {
    let next = (owner(), lease()).prop_map(|(owner, lease)| Next { owner, lease });
    let next = prop_oneof![2 => Just(None), 1 => next.prop_map(Some)];
    let count = prop_oneof![4 => Just(0), 1 => 1..3_u8];
    let at_least = prop_oneof![4 => Just(0), 1 => Just(3_000)];
    let request = (key(), owner(), count, at_least, next, known(design));
    request.prop_map(|(key, owner, count, at_least, next, known)| {
        let owner = of(key, owner);
        let next = next.map(|next: Next| Next {
            owner: of(key, next.owner),
            ..next
        });
        // Clients do the same.
        let next = next.filter(|next| {
            count == 0 && at_least == 0 && next.owner != owner && next.owner.client == owner.client
        });
        Operation::Release(Release {
            key,
            owner,
            token: 0,
            count,
            at_least,
            next,
            known,
        })
    })
}

fn renew() -> impl Strategy<Value = Operation> {
    let claim = (key(), owner()).prop_map(|(key, owner)| Claim {
        key,
        owner: of(key, owner),
    });
    (vec(claim, 1..4), lease())
        .prop_map(|(claims, lease)| Operation::Renew(Renewal { claims, lease }))
}

/// The usual number of tokens, and more than fit below the time.
const EXTENSIONS: [Token; 3] = [1, BLOCK, 1 << 40];

fn extend(design: Design) -> impl Strategy<Value = Operation> {
    let tokens = select(EXTENSIONS.as_slice());
    (key(), owner(), tokens, known(design)).prop_map(|(key, owner, tokens, known)| {
        Operation::Extend(Extend {
            key,
            owner: of(key, owner),
            tokens,
            known,
        })
    })
}

/// Generates a batch of several tasks that acquire locks, which are mostly free, or release them.
fn batch(most: usize) -> impl Strategy<Value = Operation> {
    // A small range, so that the holders of locks often release them.
    let few = || {
        (0..CLIENTS).prop_map(|client| Owner {
            client,
            sequence: 0,
        })
    };
    let acquire =
        (0..KEYS, few(), lease(), any::<bool>()).prop_map(|(key, owner, lease, waits)| {
            Operation::Acquire(Acquire {
                claims: vec![Claim {
                    key,
                    owner: of(key, owner),
                }],
                lease,
                count: 1,
                waits,
                known: Known::default(),
            })
        });
    let release = (0..KEYS, few()).prop_map(|(key, owner)| {
        Operation::Release(Release {
            key,
            owner: of(key, owner),
            token: 0,
            count: 0,
            at_least: 0,
            next: None,
            known: Known::default(),
        })
    });
    prop_oneof![vec(acquire, 2..=most), vec(release, 2..=most)].prop_map(Operation::Batch)
}

pub(super) fn operations(design: Design) -> impl Strategy<Value = Operation> {
    let loses_data = u32::from(design.loses_data);
    prop_oneof![
        8 => acquire(design),
        8 => release(design),
        2 => renew(),
        4 => extend(design),
        if design.batch > 1 { 6 } else { 0 } => batch(design.batch.max(2)),
        4 => select(PASSES.as_slice()).prop_map(Operation::Pass),
        1 => (0..CLIENTS).prop_map(Operation::Leave),
        loses_data => Just(Operation::Restart),
        loses_data => key().prop_map(Operation::LoseToken),
        loses_data => (key(), select(INVALID.as_slice()))
            .prop_map(|(key, instead)| Operation::InvalidateToken(key, instead)),
    ]
}
