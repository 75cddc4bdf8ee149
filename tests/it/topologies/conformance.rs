//! The behaviour that all stores share.
//!
//! [`conformance`] runs these tests over each topology, with its name as a module. Each
//! [`Topology`](rlock_testkit::Topology) declares its differences, and the suite checks them.
//! `docs/topologies.md` lists them.

mod holders;
mod locks;
mod many;
mod modes;
mod queue;
mod unpicked;

use std::time::Duration;

use rlock_core::LockClient;

pub(crate) use self::{holders::*, locks::*, many::*, modes::*, queue::*, unpicked::*};

const LONG: Duration = Duration::from_secs(20);

async fn owner(client: &LockClient, key: &str) -> Option<String> {
    let info = client.inspect(key).await.expect("a reply");
    info.map(|info| info.owner)
}

/// Runs the suite over a topology. The first test starts its servers, which the others share. Each
/// test has its own [`Place`](rlock_testkit::Place). The servers end with the test process.
macro_rules! conformance {
    ($name:ident: $topology:expr) => {
        mod $name {
            use rlock_testkit::{Place, Topology};
            use tokio::sync::OnceCell;

            async fn place() -> Place {
                static TOPOLOGY: OnceCell<Topology> = OnceCell::const_new();
                Place::at(TOPOLOGY.get_or_init(async || $topology).await)
            }

            conformance! {
                #[tokio::test]
                async fn a_lock_is_held_by_one_client_at_a_time();
                #[tokio::test]
                async fn a_waiter_gets_the_lock_when_it_is_released();
                #[tokio::test]
                async fn tokens_grow_with_every_hold_and_stay_the_same_within_one();
                #[tokio::test]
                async fn owners_are_never_used_again();
                #[tokio::test]
                async fn a_lease_that_is_not_renewed_ends();
                #[tokio::test]
                async fn the_watchdog_renews_for_as_long_as_the_lock_is_held();
                #[tokio::test]
                async fn a_deleted_lock_is_lost_as_its_topology_reports_it();
                #[tokio::test]
                async fn inspect_shows_the_holder_of_the_lock();
                #[tokio::test]
                async fn a_waiter_for_a_kept_lock_is_served_when_at_least_is_over();
                #[tokio::test]
                async fn options_out_of_bounds_are_errors_that_name_the_option_and_the_value();
                #[tokio::test]
                async fn keys_with_hash_tags_and_hostile_values_are_locks_of_their_own();
                #[tokio::test]
                async fn clients_are_served_in_the_order_of_their_requests();
                #[tokio::test]
                async fn queued_waiters_come_before_others_when_a_lease_has_ended();
                #[tokio::test]
                async fn a_waiter_that_gives_up_or_is_shut_down_leaves_its_place_to_the_next();
                #[tokio::test]
                async fn the_last_handle_of_a_waiting_client_takes_its_place_along();
                #[tokio::test]
                async fn the_holder_describes_itself();
                #[tokio::test]
                async fn all_locks_are_listed_with_their_holders();
                #[tokio::test]
                async fn a_holder_that_is_asked_stops_its_body_before_the_next_begins();
                #[tokio::test]
                async fn a_lock_is_taken_from_the_hold_that_was_meant_only();
                #[tokio::test]
                async fn the_token_of_a_later_hold_of_the_same_client_is_known();
                #[tokio::test]
                async fn a_lock_is_released_by_force_if_its_holder_does_not_reply();
                #[tokio::test]
                async fn a_retained_lock_is_released_when_it_is_wanted();
                #[tokio::test]
                async fn an_attempt_that_does_not_wait_ends_a_retention();
                #[tokio::test]
                async fn a_call_that_gives_up_leaves_nothing_behind();
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn many_tasks_of_two_clients_are_inside_one_at_a_time();
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn tasks_that_come_back_at_once_let_another_client_in();
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_call_of_several_keys_is_served_in_any_order_of_their_names();
                #[tokio::test]
                async fn a_lock_that_is_deleted_before_its_hold_begins_is_not_held();
                #[tokio::test]
                async fn a_lock_that_is_taken_before_its_hold_begins_is_not_held();
                #[tokio::test]
                async fn a_waiter_is_first_at_once_when_the_first_gives_up();
                #[tokio::test]
                async fn an_attempt_follows_the_releases_of_its_own_client();
                #[tokio::test]
                async fn readers_share_a_lock_and_a_writer_waits_for_all_of_them();
                #[tokio::test]
                async fn readers_and_writers_are_served_in_the_order_of_their_requests();
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn permits_let_in_as_many_calls_as_there_are();
                #[tokio::test]
                async fn attempts_at_once_get_all_the_room_there_is();
                #[tokio::test]
                async fn permits_are_given_in_the_order_of_requests();
                #[tokio::test]
                async fn a_permit_that_is_not_renewed_is_free_when_its_lease_ends();
                #[tokio::test]
                async fn a_writer_is_served_when_the_last_lease_of_the_readers_ends();
                #[tokio::test]
                async fn only_what_a_shared_hold_covers_enters_it();
                #[tokio::test]
                async fn all_who_share_a_lock_are_shown_and_can_be_asked_to_release_it();
                #[tokio::test]
                async fn all_who_share_a_lock_are_listed_with_those_who_wait();
                #[tokio::test]
                async fn a_scan_shows_holders_that_do_not_reply_beside_one_that_does();
                #[tokio::test]
                async fn a_shared_lock_is_taken_by_force_from_all_its_holders();
                #[tokio::test]
                async fn a_shared_lock_stays_taken_for_its_at_least();
                #[tokio::test]
                async fn several_keys_may_have_different_modes();
                #[tokio::test]
                async fn a_downgrade_lets_all_readers_in_and_no_writer();
                #[tokio::test]
                async fn a_hold_that_a_nested_call_is_about_to_enter_is_not_downgraded();
                #[tokio::test]
                async fn a_loss_stops_a_call_in_a_shared_hold_that_outlives_its_guard();
                #[tokio::test]
                async fn a_call_that_is_not_polled_blocks_its_client_for_its_lease_only();
            }
        }
    };
    ($(#[$test:meta] async fn $name:ident();)*) => {
        $(
            #[$test]
            async fn $name() {
                crate::topologies::conformance::$name(place().await).await;
            }
        )*
    };
}

conformance!(memory: Topology::memory());
conformance!(resp3: Topology::server());
conformance!(resp2: Topology::server_by_resp2());
conformance!(sentinel: Topology::sentinel().await);
conformance!(cluster: Topology::cluster().await);
// Five servers: all running, or with two of them paused.
conformance!(five: Topology::quorum_without(&[]));
conformance!(without_the_first: Topology::quorum_without(&[0, 3]));
conformance!(without_others: Topology::quorum_without(&[2, 4]));
