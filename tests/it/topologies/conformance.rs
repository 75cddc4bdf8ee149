//! The suite of semantics: what every store does.
//!
//! The macro `conformance` runs these tests over each topology, with its name as a module. Each
//! [`Topology`](rlock_testkit::Topology) declares its differences, and the suite checks them.
//! `docs/stores.md` lists them.

mod elections;
mod extended;
mod holders;
mod locks;
mod many;
mod modes;
mod queue;
mod requests;
mod ticks;
mod unpicked;

use std::time::Duration;

use rlock_core::LockClient;

pub(crate) use self::{
    elections::*, extended::*, holders::*, locks::*, many::*, modes::*, queue::*, requests::*,
    ticks::*, unpicked::*,
};
use crate::common::{LONG, assert_soon_waits};

async fn owner(client: &LockClient, key: &str) -> Option<String> {
    let info = client.inspect(key).await.expect("a reply");
    info.map(|info| info.owner)
}

/// Waits until this many requests are queued for the lock. A quorum has no queue, so its waiters get time to ask.
pub(crate) async fn assert_soon_queued(
    has_queue: bool,
    client: &LockClient,
    key: &str,
    waiting: usize,
) {
    if !has_queue {
        return tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_soon_waits(client, key, waiting).await;
}

/// Runs the suite over a topology: all of it, or only the tests that depend on the connections rather than on the rules of locks. The
/// first test starts the servers, which the others share. Each test has its own [`Place`](rlock_testkit::Place). The servers end with
/// the test process.
macro_rules! conformance {
    ($name:ident: all of $topology:expr) => {
        conformance! {
            $name: core of $topology;
            a_waiter_for_a_kept_lock_is_served_when_min_hold_is_over,
            keys_with_hash_tags_and_hostile_values_are_locks_of_their_own,
            a_waiter_that_gives_up_or_is_shut_down_leaves_its_place_to_the_next,
            the_last_handle_of_a_waiting_client_takes_its_place_along,
            the_holder_replies_with_its_service_trace_and_waiters,
            a_lock_is_taken_from_the_hold_that_was_meant_only,
            a_call_that_gives_up_leaves_nothing_behind,
            a_lock_that_is_released_by_its_token_before_its_grant_is_read_is_not_held,
            a_call_that_does_not_read_its_reply_leaves_the_lock_to_the_next_one,
            readers_and_writers_are_served_in_the_order_of_their_requests,
            a_writer_is_served_when_the_last_lease_of_the_readers_ends,
            all_who_share_a_lock_are_shown_and_can_be_asked_to_release_it,
            all_who_share_a_lock_are_listed_with_those_who_wait,
            a_scan_shows_holders_that_do_not_reply_next_to_one_that_does,
            a_shared_lock_is_taken_by_force_from_all_its_holders,
            a_silent_reader_keeps_its_lock_by_whichever_token_it_is_named,
            an_observer_that_comes_late_learns_of_the_present_term_first,
            a_leader_resigns_when_it_is_asked_to,
            a_leader_that_loses_its_lock_campaigns_again,
            clients_with_other_keys_leave_no_election_without_a_leader,
        }
    };
    ($name:ident: core of $topology:expr $(; $($more:ident,)*)?) => {
        conformance! {
            $name: $topology;
            a_lock_is_held_by_one_client_at_a_time,
            a_probe_proves_a_grant_and_leaves_no_lock_behind,
            observers_learn_of_each_term_and_value,
            the_elections_of_a_group_are_led_in_equal_shares,
            a_lease_that_is_not_renewed_ends,
            the_watchdog_renews_for_as_long_as_the_lock_is_held,
            inspect_shows_the_holder_of_the_lock,
            clients_are_served_in_the_order_of_their_requests,
            all_locks_are_listed_with_their_holders,
            a_holder_that_is_asked_stops_its_body_before_the_next_begins,
            a_lock_is_released_by_force_if_its_holder_does_not_reply,
            a_retained_lock_is_released_when_it_is_wanted,
            a_holder_that_is_asked_to_release_its_lock_ends_when_it_is_ready,
            all_holders_of_a_shared_lock_are_asked_to_release_it,
            many_tasks_of_two_clients_are_inside_one_at_a_time,
            a_call_of_several_keys_is_served_in_any_order_of_their_names,
            readers_share_a_lock_and_a_writer_waits_for_all_of_them,
            permits_let_in_as_many_calls_as_there_are,
            several_permits_are_taken_all_or_none_and_in_order,
            a_downgrade_lets_all_readers_in_and_no_writer,
            a_tick_runs_once_on_one_of_two_clients,
            a_tick_whose_run_fails_with_retry_runs_on_the_client_that_waits,
            an_extension_sets_the_lease_from_now_on_and_revives_nothing,
            a_lock_is_extended_by_the_token_of_its_hold_only,
            a_detached_lock_belongs_to_those_who_have_its_token,
            $($($more,)*)?
        }
    };
    ($name:ident: $topology:expr; $($test:ident,)*) => {
        mod $name {
            use rlock_testkit::{Place, Topology};
            use tokio::sync::OnceCell;

            async fn place() -> Place {
                static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
                Place::at(TOPOLOGY.get_or_init(async || $topology).await)
            }

            $(
                #[tokio::test]
                async fn $test() {
                    crate::topologies::conformance::$test(place().await).await;
                }
            )*
        }
    };
}

conformance!(memory: all of Topology::memory());
conformance!(resp3: all of Topology::server());
conformance!(
    resp2: core of Topology::server_by_resp2();
    a_lock_that_is_released_by_its_token_before_its_grant_is_read_is_not_held,
    a_call_that_does_not_read_its_reply_leaves_the_lock_to_the_next_one,
);
conformance!(sentinel: core of Topology::sentinel().await);
conformance!(
    cluster: core of Topology::cluster().await;
    a_call_that_does_not_read_its_reply_leaves_the_lock_to_the_next_one,
);
conformance!(postgres: all of Topology::postgres());
// Messages between clients, such as questions to a holder, need the address of the server.
conformance!(
    pooled: Topology::pooled(false);
    a_lock_is_held_by_one_client_at_a_time,
    clients_are_served_in_the_order_of_their_requests,
    the_watchdog_renews_for_as_long_as_the_lock_is_held,
    a_waiter_that_gives_up_or_is_shut_down_leaves_its_place_to_the_next,
    many_tasks_of_two_clients_are_inside_one_at_a_time,
    a_call_of_several_keys_is_served_in_any_order_of_their_names,
    readers_and_writers_are_served_in_the_order_of_their_requests,
    several_permits_are_taken_all_or_none_and_in_order,
    a_downgrade_lets_all_readers_in_and_no_writer,
    a_tick_runs_once_on_one_of_two_clients,
    a_call_that_does_not_read_its_reply_leaves_the_lock_to_the_next_one,
);
conformance!(
    pooled_with_direct: Topology::pooled(true);
    clients_are_served_in_the_order_of_their_requests,
    many_tasks_of_two_clients_are_inside_one_at_a_time,
    a_retained_lock_is_released_when_it_is_wanted,
    a_holder_that_is_asked_stops_its_body_before_the_next_begins,
    observers_learn_of_each_term_and_value,
    all_locks_are_listed_with_their_holders,
);
// Five servers: all running, or with two of them paused.
conformance!(five: all of Topology::quorum_without(&[]));
conformance!(without_the_first: core of Topology::quorum_without(&[0, 3]));
