//! A lane while a run lasts.

use std::vec;

use tokio::{sync::watch, time::sleep};

use super::schedule::{Lane, Step};

pub(super) struct Steps {
    lane: vec::IntoIter<Step>,
    over: watch::Receiver<bool>,
}

impl Steps {
    pub(super) fn new(lane: Lane, over: watch::Receiver<bool>) -> Self {
        let lane = lane.into_iter();
        Self { lane, over }
    }

    /// The next fault, when its pause is over; `None`: the lane is at its end, or the run is over.
    pub(super) async fn next(&mut self) -> Option<Step> {
        let step = self.lane.next()?;
        sleep(step.pause).await;
        (!*self.over.borrow()).then_some(step)
    }
}
