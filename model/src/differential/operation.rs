//! Draws random operations on locks.

use std::{collections::HashSet, time::Duration};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any},
    prop_oneof,
    sample::select,
};

use crate::{
    key::Key,
    mode::LockMode,
    owner::OwnerId,
    server,
    store::{AcquireRequest, Claim, DowngradeRequest, ReleaseRequest, Renewal, SetCountRequest},
};

/// The number of keys.
pub const KEYS: u8 = 2;
/// The number of clients.
pub const CLIENTS: u8 = 3;
/// The modes of a client's owners: one owner each.
const MODES: [LockMode; 6] = [
    LockMode::Exclusive,
    LockMode::Exclusive,
    LockMode::Shared,
    LockMode::Permits { take: 1, of: 2 },
    LockMode::Permits { take: 1, of: 4 },
    LockMode::Permits { take: 2, of: 3 },
];
const OWNERS: u8 = 6;

/// An operation.
///
/// Any owner may request anything at any time. So the sequences include requests that are late,
/// repeated or out of order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asks for locks. The floor of new fences counts from the largest one; zero is none.
    Acquire(AcquireRequest, u64),
    /// Sets a count.
    SetCount(SetCountRequest),
    /// Shares an exclusive lock. Its fence and its floor count as those of a release.
    Downgrade(DowngradeRequest, u64),
    /// Releases a lock. A fence counts from the last one that the owner knows, and the floor of new fences from the largest one.
    Release(ReleaseRequest, u64),
    /// Extends leases. Fences count from the last ones that the owners know.
    Renew(Vec<Renewal>, Duration),
    /// Restores locks, with fences that count from the last ones that the owners know.
    Restore(Vec<Renewal>, Duration),
    /// Advances the time.
    Pass(Duration),
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
        let is_by = |owner: OwnerId| owner.is_of(server::client(client));
        match self {
            Self::Acquire(ask, _) => ask.claims.iter().any(|claim| is_by(claim.owner)),
            Self::SetCount(ask) => is_by(ask.owner),
            Self::Downgrade(ask, _) => is_by(ask.owner),
            Self::Release(ask, _) => is_by(ask.owner),
            Self::Renew(renewals, _) | Self::Restore(renewals, _) => {
                renewals.iter().any(|one| is_by(one.claim.owner))
            }
            Self::Pass(_) | Self::Leave(_) | Self::Restart | Self::LoseFence(_) => false,
        }
    }
}

/// The distances are far larger than the duration of a run.
const LEASES: [u64; 3] = [2_000, 10_000, 60_000];
const PASSES: [u64; 7] = [100, 400, 700, 1_500, 3_000, 12_000, 21_000];

/// Returns a claim of a key, mostly of the same one, so that owners meet. Each owner belongs to one key.
fn claim(key: impl Strategy<Value = u8>) -> impl Strategy<Value = Claim> {
    let owner = (0..CLIENTS, 0..OWNERS, any::<bool>());
    (key, owner).prop_map(|(key, (client, sequence, is_later))| {
        // One of the exclusive owners may downgrade its lock later.
        let mode = if sequence == 1 && is_later {
            LockMode::Shared
        } else {
            MODES[usize::from(sequence)]
        };
        Claim {
            key: server::key(key),
            owner: server::owner(client, (key * OWNERS + sequence).into(), mode),
        }
    })
}

fn any_claim() -> impl Strategy<Value = Claim> {
    claim(prop_oneof![3 => Just(0), 1 => 0..KEYS])
}

fn lease() -> impl Strategy<Value = Duration> {
    select(LEASES.as_slice()).prop_map(Duration::from_millis)
}

fn acquire() -> impl Strategy<Value = Operation> {
    let single = any_claim().prop_map(|claim| vec![claim]);
    let both = (claim(Just(0)), claim(Just(1))).prop_map(|(first, second)| vec![first, second]);
    let claims = prop_oneof![4 => single, 1 => both];
    (claims, lease(), any::<bool>()).prop_map(|(claims, lease, waits)| {
        let request = AcquireRequest {
            claims: claims.into(),
            lease,
            waits,
        };
        Operation::Acquire(request, 0)
    })
}

/// Returns a claim in this mode by one of two owners of a client.
fn claim_in(mode: LockMode) -> impl Strategy<Value = Claim> {
    let owner = (0..CLIENTS, 0..2_u8);
    owner.prop_map(move |(client, sequence)| Claim {
        key: server::key(0),
        owner: server::owner(client, sequence.into(), mode),
    })
}

fn set_count() -> impl Strategy<Value = Operation> {
    let request = (claim_in(LockMode::Exclusive), 1..4_u32, lease());
    request.prop_map(|(Claim { key, owner }, count, lease)| {
        Operation::SetCount(SetCountRequest {
            key,
            owner,
            count,
            lease,
        })
    })
}

fn downgrade() -> impl Strategy<Value = Operation> {
    let request = (claim_in(LockMode::Shared), 0..2_u64);
    request.prop_map(|(Claim { key, owner }, fence)| {
        Operation::Downgrade(DowngradeRequest { key, owner, fence }, 0)
    })
}

fn release() -> impl Strategy<Value = Operation> {
    let min_hold = prop_oneof![4 => Just(0), 1 => Just(3_000)];
    let refuses_late = prop_oneof![19 => Just(false), 1 => Just(true)];
    let request = (any_claim(), 0..2_u64, min_hold, refuses_late);
    request.prop_map(|(Claim { key, owner }, fence, min_hold, refuses_late)| {
        let release = ReleaseRequest {
            key,
            owner,
            fence,
            min_hold: Duration::from_millis(min_hold),
            refuses_late,
        };
        Operation::Release(release, 0)
    })
}

fn renew() -> impl Strategy<Value = Operation> {
    let renewal = (any_claim(), 0..2_u64).prop_map(|(claim, fence)| Renewal {
        fence,
        keeps_fence: fence == 0,
        ..Renewal::of(claim)
    });
    // Without a lease, a renewal only asks.
    let lease = prop_oneof![4 => lease(), 1 => Just(Duration::ZERO)];
    (vec(renewal, 1..4), lease).prop_map(|(mut renewals, lease)| {
        // A client renews each lock once in a request: either before its downgrade or after it.
        let mut named = HashSet::new();
        renewals.retain(|Renewal { claim, .. }| {
            let former = claim.owner.before_downgrade();
            named.insert((claim.key.clone(), former.unwrap_or(claim.owner)))
        });
        Operation::Renew(renewals, lease)
    })
}

fn restore() -> impl Strategy<Value = Operation> {
    let renewal = (any_claim(), 1..3_u32).prop_map(|(claim, count)| Renewal {
        count: if claim.owner.mode() == LockMode::Exclusive {
            count
        } else {
            1
        },
        ..Renewal::of(claim)
    });
    (vec(renewal, 1..3), lease()).prop_map(|(renewals, lease)| Operation::Restore(renewals, lease))
}

pub(super) fn operations() -> impl Strategy<Value = Operation> {
    let pass = |time| Operation::Pass(Duration::from_millis(time));
    prop_oneof![
        8 => acquire(),
        2 => set_count(),
        1 => downgrade(),
        8 => release(),
        4 => renew(),
        2 => restore(),
        4 => select(PASSES.as_slice()).prop_map(pass),
        1 => (0..CLIENTS).prop_map(Operation::Leave),
        1 => Just(Operation::Restart),
    ]
}
