//! Translates between the words of the machine and those of the server.

use std::time::Duration;

use crate::{
    lease,
    machine::{Ask, Event, Renew, Reply, Request},
    mode::Mode,
    store::{self, QueuePlace, RenewalOutcome, TakenBy},
    words::{
        Acquire, Acquired, Claim, Millis, Notification, Owner, Release, Released, Renewal, Renewed,
    },
};

use super::network;
use crate::server::mode_of;
pub(super) use crate::server::{key, key_of, mode};

pub(super) fn owner(client: u8, sequence: u64, mode: Mode) -> Owner {
    Owner {
        client,
        sequence: u8::try_from(sequence).expect("worlds are small"),
        mode: mode_of(mode),
    }
}

fn millis(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).expect("worlds are short")
}

fn small(count: u32) -> u8 {
    u8::try_from(count).expect("few entries")
}

/// Returns a client's request in the server's terms.
pub(super) fn request(client: u8, request: &Request) -> network::Request {
    let claims: Vec<Claim> = (request.claims.iter())
        .map(|claimed| Claim {
            key: key_of(&claimed.key),
            owner: owner(client, claimed.owner, claimed.mode),
        })
        .collect();
    let acquire = |lease, count, waits| {
        network::Request::Acquire(Acquire {
            claims: claims.clone(),
            lease: millis(lease),
            count,
            waits,
            floor: 0,
        })
    };
    match &request.what {
        Ask::Acquire { lease, waits, .. } => acquire(*lease, 1, *waits),
        Ask::Enter { lease, count, .. } => acquire(*lease, small(*count), false),
        Ask::Lower {
            fence,
            count,
            min_hold,
            ..
        } => network::Request::Release(Release {
            key: claims[0].key,
            owner: claims[0].owner,
            fence: *fence,
            count: small(*count),
            min_hold: millis(*min_hold),
        }),
    }
}

/// Returns a renewal as the server knows it.
pub(super) fn renewal(client: u8, renew: &Renew) -> network::Request {
    let claim = Claim {
        key: key_of(&renew.key),
        owner: owner(client, renew.owner, renew.mode),
    };
    let fence = renew.fence;
    network::Request::Renew(crate::words::Renew {
        renewals: vec![Renewal { claim, fence }],
        lease: millis(renew.lease),
    })
}

/// Returns the reply to a request that was sent at this time.
pub(super) fn reply(reply: network::Reply, sent_at: lease::Time) -> Reply {
    match reply {
        network::Reply::Acquired(acquired) => Reply::Acquired(match acquired {
            Acquired::Granted {
                fences,
                others_wait,
            } => store::Acquired::Granted {
                fences: fences.into(),
                wanted: others_wait,
                sent_at,
            },
            Acquired::Taken {
                claim,
                ttl,
                queued,
                first,
                fences,
            } => store::Acquired::Taken {
                claim,
                ttl: Some(Duration::from_millis(ttl)),
                queued: queued.then_some(QueuePlace {
                    first,
                    watched: false,
                }),
                sent_at,
                fences: fences.into(),
                retired: false,
                by: TakenBy::Unnamed,
            },
            Acquired::NotOwner => store::Acquired::NotOwner,
        }),
        network::Reply::Released(Released::Done) => Reply::Released(store::Released::Done),
        network::Reply::Released(Released::NotHeld) => Reply::Released(store::Released::NotHeld),
        network::Reply::Renewed(_) => unreachable!("a call does not send renewals"),
    }
}

pub(super) fn outcome(reply: Renewed) -> RenewalOutcome {
    if reply.held {
        let Renewed { wanted, fence, .. } = reply;
        RenewalOutcome::Held { wanted, fence }
    } else {
        RenewalOutcome::Lost
    }
}

pub(super) fn event(notification: Notification) -> Event {
    match notification {
        Notification::Granted {
            owner,
            fence,
            ttl,
            others_wait,
            ..
        } => Event::Granted {
            mode: mode(owner.mode),
            fence,
            ttl: Duration::from_millis(ttl),
            wanted: others_wait,
        },
        Notification::Wanted { .. } => Event::Wanted,
        Notification::Retry { owner, after, .. } => Event::Retry {
            mode: mode(owner.mode),
            after: Duration::from_millis(after),
        },
    }
}
