//! The suite of faults, which every topology survives.
//!
//! [`faults`] runs these tests over each topology, with its name as a module.
//! [`Fronted`](rlock_testkit::Fronted) declares which servers a fault hits, and how topologies
//! differ.

mod losses;
mod outages;
mod replies;
mod requests;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, LockGuard};
use rlock_testkit::{Fronted, eventually};

pub(crate) use self::{losses::*, outages::*, replies::*, requests::*};
use crate::common::{LASTING, LONG, ms};

const KEY: &str = Fronted::KEY;

/// Returns the lock with a lease that does not end within a test.
fn lasting(client: &LockClient) -> Lock {
    client.lock(KEY).lease(LASTING).wait(LONG)
}

/// Waits until each server of the lock counts this many entries of the guard, and no others.
async fn assert_soon_counts(place: &Fronted, guard: &LockGuard, entries: u32) {
    assert_soon_counts_at(place, |all| all, guard, entries).await;
}

/// Waits until a deciding number of servers does so: after an exit, or if replies were lost.
async fn assert_most_soon_count(place: &Fronted, guard: &LockGuard, entries: u32) {
    assert_soon_counts_at(place, |all| place.deciding(all), guard, entries).await;
}

async fn assert_soon_counts_at(
    place: &Fronted,
    least: impl Fn(usize) -> usize,
    guard: &LockGuard,
    entries: u32,
) {
    let wanted = BTreeMap::from([(guard.owner(), entries.to_string())]);
    let end = Instant::now() + LONG;
    loop {
        let owners = place.owners().await;
        assert!(guard.is_valid(), "it is still held");
        let right = owners.iter().filter(|owners| **owners == wanted).count();
        let mut names = owners.iter().flat_map(BTreeMap::keys);
        if right >= least(owners.len()) && names.all(|owner| wanted.contains_key(owner)) {
            return;
        }
        assert!(
            Instant::now() < end,
            "{wanted:?} is not what the servers have: {owners:?}"
        );
        tokio::time::sleep(ms(10)).await;
    }
}

/// Asserts that this many replies of each struck server have been lost.
async fn assert_lost_answers(place: &Fronted, answers: u64) {
    let what = "the answers are lost";
    eventually(LONG, what, async || place.have_lost(answers).await).await;
}

/// Retries until the reply is that another owner has the lock, because the connection may just have
/// been cut.
async fn assert_kept_out(client: &LockClient, wait: Duration) {
    eventually(LONG, "another owner has the lock", async || {
        match client.lock(KEY).wait(wait).acquire().await {
            Err(LockError::Taken { .. }) => true,
            Err(LockError::Unavailable { .. }) => false,
            other => panic!("another owner has the lock: {other:?}"),
        }
    })
    .await;
}

/// Waits until no server has anything of the lock but its fence.
async fn assert_nothing_left(place: &Fronted) {
    let what = "only the fence is left";
    eventually(LONG, what, async || place.are_clear().await).await;
}

/// Runs the suite over a topology: all of it, or one test of each kind of fault. Each test has its own servers, because its faults hit
/// all of them.
macro_rules! faults {
    ($name:ident: all of $fronted:expr) => {
        faults! {
            $name: core of $fronted;
            an_acquire_without_waiting_and_without_a_reply_leaves_nothing,
            an_entry_whose_reply_is_lost_counts_once,
            a_renewal_whose_reply_is_lost_is_repeated_in_time,
            an_acquire_that_is_cancelled_while_it_is_under_way_leaves_nothing,
            a_request_that_runs_after_it_was_given_up_leaves_nothing,
            connections_that_are_cut_again_and_again_cost_no_hold,
            outages_shorter_than_the_lease_cost_no_hold,
            a_hold_ends_with_its_lease_when_the_servers_cannot_be_reached,
            a_hold_ends_with_its_lease_when_the_servers_are_paused,
            a_call_without_a_reply_is_repeated_over_another_connection,
            a_waiter_that_cannot_be_notified_asks_by_its_timer,
            a_connection_cut_within_a_reply_is_replaced,
        }
    };
    ($name:ident: core of $fronted:expr $(; $($more:ident,)*)?) => {
        faults! {
            $name: $fronted;
            an_acquire_whose_reply_is_lost_is_granted_once,
            an_acquire_without_waiting_is_sent_again_over_the_next_connection,
            a_release_whose_reply_is_lost_succeeds_and_does_not_touch_the_next_hold,
            a_waiter_whose_connection_is_cut_has_its_turn,
            a_hold_ends_with_its_lease_when_the_servers_are_silent,
            a_lock_that_is_deleted_is_lost_and_does_not_come_back,
            a_lock_that_is_deleted_during_an_outage_is_lost_when_that_ends,
            $($($more,)*)?
        }
    };
    ($name:ident: $fronted:expr; $($test:ident,)*) => {
        mod $name {
            use rlock_testkit::Fronted;

            $(
                #[tokio::test]
                async fn $test() {
                    crate::topologies::faults::$test($fronted).await;
                }
            )*
        }
    };
}

faults!(resp3: all of Fronted::server());
faults!(
    resp2: core of Fronted::server_by_resp2();
    a_call_without_a_reply_is_repeated_over_another_connection,
    a_waiter_that_cannot_be_notified_asks_by_its_timer,
    a_connection_cut_within_a_reply_is_replaced,
);
faults!(sentinel: core of Fronted::sentinel().await);
faults!(cluster: core of Fronted::cluster().await);
// Five servers: all of them struck, or all but the first two.
faults!(all_of_five: all of Fronted::quorum());
faults!(three_of_five: core of Fronted::quorum_but_for_two());
faults!(postgres: all of Fronted::postgres());
