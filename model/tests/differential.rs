//! The comparison accepts the model itself, and finds stores with bugs.

use std::panic::catch_unwind;

use rlock_model::{
    differential::{Design, ModelSubject, Operation, replay, run},
    server::ServerBug,
    words::{Acquire, Claim, Mode, Owner, Release, Renew, Renewal},
};

const OWNER: Owner = Owner {
    client: 0,
    sequence: 0,
    mode: Mode::Exclusive,
};
const OTHER: Owner = Owner {
    client: 1,
    sequence: 0,
    mode: Mode::Exclusive,
};

fn acquire(owner: Owner) -> Operation {
    Operation::Acquire(Acquire {
        claims: vec![Claim { key: 0, owner }],
        lease: 2_000,
        count: 1,
        waits: true,
        floor: 0,
    })
}

fn release() -> Operation {
    Operation::Release(Release {
        key: 0,
        owner: OWNER,
        fence: 0,
        count: 0,
        at_least: 0,
    })
}

/// Renews the lease, and asks for the fence after the known one if `fence` is 1.
fn renew(owner: Owner, fence: u64) -> Operation {
    let claim = Claim { key: 0, owner };
    Operation::Renew(Renew {
        renewals: vec![Renewal { claim, fence }],
        lease: 10_000,
    })
}

#[test]
fn the_model_agrees_with_itself() {
    let tally = run(ModelSubject::new(Design::REDIS), Design::REDIS);
    assert_eq!(tally.inconclusive, 0, "{tally:?}");
    assert!(tally.granted > 100 && tally.taken > 100, "{tally:?}");
    assert!(tally.notifications > 20 && tally.refenced > 0, "{tally:?}");
}

#[test]
fn a_store_with_a_mistake_differs() {
    for (bug, operations) in [
        (
            ServerBug::RenewalOfOthers,
            vec![acquire(OWNER), renew(OTHER, 0)],
        ),
        (
            ServerBug::FenceReused,
            vec![acquire(OWNER), acquire(OTHER), release()],
        ),
        (
            ServerBug::FenceForgotten,
            vec![acquire(OWNER), renew(OWNER, 1)],
        ),
        (
            ServerBug::FloorIgnored,
            vec![Operation::Acquire(Acquire {
                claims: vec![Claim {
                    key: 0,
                    owner: OWNER,
                }],
                lease: 2_000,
                count: 1,
                waits: false,
                floor: 1 << 30,
            })],
        ),
        (
            ServerBug::FenceReset,
            vec![acquire(OWNER), release(), acquire(OTHER)],
        ),
        (
            ServerBug::HandOffWithoutNotification,
            vec![acquire(OWNER), acquire(OTHER), release()],
        ),
        (
            ServerBug::WantedOnce,
            vec![acquire(OWNER), acquire(OTHER), acquire(OTHER)],
        ),
    ] {
        let differs = |mut store: ModelSubject| {
            let operations = operations.clone();
            catch_unwind(move || replay(&mut store, Design::REDIS, &operations)).is_err()
        };
        let store = ModelSubject::new(Design::REDIS);
        assert!(!differs(store.clone()), "{operations:?}");
        assert!(differs(store.with_bug(bug)), "{bug:?} is not found");
    }
}
