//! Reads the steps of a fault schedule's lane during a run.

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

    /// Returns the next fault after its pause; `None` at the end of the lane or of the run.
    pub(super) async fn next(&mut self) -> Option<Step> {
        let step = self.lane.next()?;
        sleep(step.pause).await;
        (!*self.over.borrow()).then_some(step)
    }
}
