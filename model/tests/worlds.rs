//! All properties hold in the small worlds. `tests/mutants` has the bugs that they find.

use rlock_model::{
    check,
    protocol::Config,
    worlds::{at_any_time, in_time, with_losses, with_modes, with_terms},
};

fn explore(worlds: Vec<Config>) {
    let (mut unique, mut total) = (0, 0);
    for world in worlds {
        let report = check::exhaust(world);
        println!("{}", report.line());
        assert!(report.is_good(), "{report}");
        unique += report.unique;
        total += report.total;
    }
    println!("{unique} states, {total} steps in all");
}

#[test]
fn clients_that_act_in_time_serve_every_waiter() {
    explore(in_time());
}

#[test]
fn clients_that_pause_at_any_time_are_safe() {
    explore(at_any_time());
}

#[test]
fn callers_with_different_terms_are_safe() {
    explore(with_terms());
}

#[test]
fn holders_that_share_a_lock_are_safe_and_serve_every_waiter() {
    explore(with_modes());
}

#[test]
fn a_server_that_loses_data_is_survived() {
    explore(with_losses());
}
