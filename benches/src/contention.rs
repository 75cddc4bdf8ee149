//! Tasks that acquire locks repeatedly for a while.

use std::time::Duration;

use anyhow::Result;

use crate::{
    clock,
    contestant::{Contestant, Seat},
    grants::{Grant, Grants, Span},
};

/// The time between the announcement and the start of a run, so that all tasks are ready.
const LEAD: Duration = Duration::from_millis(20);

/// The number of a task's grants that fit without a reallocation.
const ROOM: usize = 1 << 14;

/// The tasks of one client, each with its lock.
pub(crate) struct Tasks {
    /// The number of the first task, unique among all clients of a run.
    first: u32,
    seats: Vec<Box<dyn Seat>>,
}

impl Tasks {
    /// Returns one task for each key.
    pub(crate) async fn new(
        client: &dyn Contestant,
        first: u32,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let mut seats = Vec::new();
        for key in keys {
            seats.push(client.seat(&key).await?);
        }
        Ok(Self { first, seats })
    }

    /// Runs all tasks during `span`, with `stay` inside each hold. A task that waits at the end
    /// continues, so that its wait is known.
    pub(crate) async fn run(&mut self, span: Span, stay: Duration) -> Grants {
        let mut running = Vec::with_capacity(self.seats.len());
        for (task, seat) in (self.first..).zip(self.seats.drain(..)) {
            running.push(tokio::spawn(take_turns(task, seat, span, stay)));
        }
        let mut all = Grants::default();
        for task in running {
            let (seat, grants) = task.await.expect("no contestant panics");
            self.seats.push(seat);
            all.extend(grants);
        }
        all
    }
}

async fn take_turns(
    task: u32,
    mut seat: Box<dyn Seat>,
    span: Span,
    stay: Duration,
) -> (Box<dyn Seat>, Grants) {
    let mut grants = Vec::with_capacity(ROOM);
    let lead = span.start.saturating_sub(clock::now());
    tokio::time::sleep(Duration::from_nanos(lead)).await;
    let mut errors = Vec::new();
    loop {
        let asked = clock::now();
        if asked >= span.stop {
            break;
        }
        match seat.pair(stay).await {
            Ok(inside) => grants.push(Grant {
                task,
                asked,
                entered: inside.entered,
                left: inside.left,
                is_shared: inside.is_shared,
            }),
            Err(error) => {
                // A task that fails repeatedly must not flood the output.
                tokio::time::sleep(Duration::from_millis(5)).await;
                errors.push(format!("{error:#}"));
                errors.truncate(1);
            }
        }
    }
    (seat, Grants { grants, errors })
}

/// Returns a span that starts soon.
pub(crate) fn soon(length: Duration) -> Span {
    let start = clock::now() + nanos(LEAD);
    Span {
        start,
        stop: start + nanos(length),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
