//! A call ends by its deadline, and one that does not wait asks only a few times.

use std::time::Duration;

use super::Rule;
use crate::{
    clients::Task,
    machine::{Ask, Request},
    world::World,
};

pub(crate) const IN_TIME: Rule = "a call ends by its deadline";

/// The most requests for locks of a call that does not wait: the first one, and three after reports of changes. A grant
/// without tokens is followed by another.
const MOST_ATTEMPTS: u32 = 6;
/// The same on a quorum, where an attempt asks again while no owner has a majority, with pauses that grow from 5 ms to 250 ms
/// and shrink near the end.
const MOST_SPLITS: u32 = 20;

impl World {
    pub(crate) fn is_in_time(&mut self, client: usize, task: usize) {
        let late = self
            .now
            .saturating_sub(self.clients[client].tasks[task].deadline);
        if late > 0 && self.clients[client].paused_until <= self.now {
            let doing = self.clients[client].tasks[task].doing;
            let late = Duration::from_nanos(late);
            let what = format!("client {client}: {doing:?} is {late:?} late");
            self.breaks(IN_TIME, what);
        }
    }

    /// Checks how often a call that does not wait asks for its locks.
    pub(super) fn asks_seldom(&mut self, client: usize, request: &Request) {
        let Some(task) = self.task_without_wait(client, request) else {
            return;
        };
        let asked = task.asked;
        if asked > MOST_ATTEMPTS && self.servers.len() == 1 || asked > MOST_SPLITS {
            let what = format!("client {client}: an attempt asks {asked} times: {request:?}");
            self.breaks(IN_TIME, what);
        }
    }

    /// Returns the task whose call sends this request for locks and does not wait.
    pub(super) fn task_without_wait(&self, client: usize, request: &Request) -> Option<&Task> {
        let state = &self.clients[client];
        let task = state.calls.get(&request.call?)?;
        let is_attempt = matches!(request.what, Ask::Acquire { waits: false, .. });
        is_attempt.then(|| &state.tasks[*task])
    }
}
