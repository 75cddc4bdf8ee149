//! All properties hold in the small worlds, and every known bug is found.

use rlock_model::{
    check,
    worlds::{mistakes, small},
};

#[test]
fn every_state_of_the_small_worlds_is_as_it_has_to_be() {
    let (mut unique, mut total) = (0, 0);
    for world in small() {
        let report = check::exhaust(world);
        println!("{}", report.line());
        assert!(report.is_good(), "{report}");
        unique += report.unique;
        total += report.total;
    }
    println!("{unique} states, {total} steps in all");
}

#[test]
fn every_mistake_is_found() {
    for mistake in mistakes() {
        let report = check::find(mistake.world, mistake.breaks);
        println!("{}", report.line());
        assert!(
            report.breaks(mistake.breaks),
            "{} does not show: {report}",
            mistake.breaks
        );
    }
}
