//! What ends the work of a simulated task from outside: a loss stops its body, and its future is dropped or not polled any more.

use std::collections::BTreeMap;

use crate::{
    clients::{Awaited, Doing, Held, Sent},
    machine::{CallId, Input, Loss, Reply},
    world::{MS, World},
};

impl World {
    /// A hold is lost: its bodies stop.
    pub(crate) fn stops_bodies(&mut self, client: usize, loss: &Loss) {
        for task in 0..self.clients[client].tasks.len() {
            let state = &self.clients[client].tasks[task];
            let is_lost =
                |held: &Held| held.entry.owner == loss.owner && held.entry.key == loss.key;
            let held = state.entries.iter().find(|held| is_lost(held));
            if held.is_some_and(|held| held.in_body) && state.doing == Doing::Ready {
                self.goes_on(client, task, 0);
            }
        }
    }

    /// The future of a call is neither polled nor dropped for a long time.
    pub(crate) fn forgets(&mut self, client: usize, task: usize, call: CallId) {
        self.ended(client, task, call);
        self.clients[client].unpolled.insert(call);
        let after = self.rng.u64(500 * MS..60_000 * MS);
        self.at_client(client, after, move |world| world.drops(client, call));
        self.goes_on(client, task, MS);
    }

    /// Drops the future of a call: first its request, then the call.
    pub(crate) fn drops(&mut self, client: usize, call: CallId) {
        let was_unpolled = self.clients[client].unpolled.remove(&call);
        let task = self.clients[client].calls.get(&call).copied();
        if let Some(task) = task {
            self.ended(client, task, call);
        } else if !was_unpolled {
            return;
        }
        self.drops_requests(client, |of| of == Some(call));
        self.on(client, Input::Cancel(call), None);
        if let Some(task) = task {
            self.goes_on(client, task, MS);
        }
        self.moves_all();
    }

    /// Drops the futures of requests.
    pub(crate) fn drops_requests(
        &mut self,
        client: usize,
        are_dropped: impl Fn(Option<CallId>) -> bool,
    ) {
        let awaited = std::mem::take(&mut self.clients[client].awaited);
        let (dropped, kept) = awaited
            .into_iter()
            .partition(|(_, awaited)| are_dropped(awaited.call()));
        self.clients[client].awaited = kept;
        let dropped: BTreeMap<u64, Awaited> = dropped;
        for (_, awaited) in dropped {
            if let Sent::Request(request) = awaited.sent {
                self.on(client, Input::Reply(request, Reply::None), None);
            }
        }
    }
}
