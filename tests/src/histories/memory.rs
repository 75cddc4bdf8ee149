//! A run of the embedded store: one process, which is paused from outside, and whose clients end
//! inside.

use std::time::Duration;

use tokio::{sync::watch, time::sleep};

use super::{
    options::Options,
    schedule::Schedule,
    slot::{Order, Slot, Way},
};

pub(super) async fn run(options: &Options, order: Order, schedule: Schedule) {
    let mut slot = Slot::open(order, Way::Embedded);
    let (over, is_over) = watch::channel(false);
    let lane = schedule.processes.into_iter().next().unwrap_or_default();
    let end = async {
        sleep(Duration::from_secs(options.seconds)).await;
        over.send_replace(true);
    };
    tokio::join!(slot.strike(lane, is_over), end);
    slot.stop().await;
    slot.end().await;
}
