//! Tasks that take locks again and again for a while.

use std::time::Duration;

use anyhow::Result;

use crate::{
    clock,
    contestant::{Contestant, Seat},
    grants::{Grant, Grants, Span},
};

/// How long before a run its start is set, so that everybody is ready.
const LEAD: Duration = Duration::from_millis(20);

/// How many grants of a task fit without moving them.
const ROOM: usize = 1 << 14;

/// The tasks of one client, each with its way to its lock.
pub(crate) struct Tasks {
    /// The number of the first, unique among all clients of a run.
    first: u32,
    seats: Vec<Box<dyn Seat>>,
}

impl Tasks {
    /// One task for each key.
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

    /// Lets all tasks take their locks during `span`, and stay inside for `stay`. A task that waits
    /// at the end waits on, so that its wait is known.
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
            }),
            Err(error) => {
                // One that fails is not to fail a thousand times a second.
                tokio::time::sleep(Duration::from_millis(5)).await;
                errors.push(format!("{error:#}"));
                errors.truncate(1);
            }
        }
    }
    (seat, Grants { grants, errors })
}

/// A span that begins in a moment.
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
