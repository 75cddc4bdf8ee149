//! Reads the replies of the functions.

use std::time::Duration;

use rlock_proto::{
    lease::Time,
    owner::OwnerId,
    store::{Acquired, Asks, QueuePlace, RenewalOutcome, StoredLock, TakenBy},
};
use tokio_postgres::Row;

use crate::store::StoreError;

/// Returns the only row of a reply.
pub(super) fn only(rows: &[Row]) -> Result<&Row, StoreError> {
    let none = || StoreError::ambiguous("the server replied without a row");
    rows.first().ok_or_else(none)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Reads the reply of `acquire.sql`. `polls`: the waiters of this client have to poll.
pub(super) fn read_acquired(row: &Row, sent_at: Time, polls: bool) -> Acquired {
    let fences: Vec<i64> = row.get("fences");
    let fences = fences.into_iter().map(unsigned);
    let taken: Option<i32> = row.get("taken");
    let Some(taken) = taken else {
        return Acquired::Granted {
            fences: fences.collect(),
            // A client that does not hear of waiters acts as if there were some.
            wanted: polls || row.get("wanted"),
            sent_at,
        };
    };
    let (ttl, queued): (Option<i64>, i32) = (row.get("ttl"), row.get("queued"));
    Acquired::Taken {
        claim: usize::try_from(taken).unwrap_or_default(),
        ttl: Some(Duration::from_millis(unsigned(ttl.unwrap_or_default()))),
        queued: (queued > 0).then_some(QueuePlace {
            first: queued == 2,
            watched: false,
            asks: if polls {
                Asks::Polling
            } else {
                Asks::probing(queued == 3)
            },
        }),
        sent_at,
        past_fences: fences.map(|fence| (fence > 0).then_some(fence)).collect(),
        retired: false,
        by: TakenBy::Unnamed,
    }
}

/// Returns which claim meets another number of permits, and that number.
pub(super) fn read_difference(row: &Row) -> Option<(usize, u32)> {
    let (claim, theirs) = row.get::<_, Option<&str>>("differs")?.split_once('/')?;
    Some((claim.parse().ok()?, theirs.parse().ok()?))
}

/// Reads the reply of `renew.sql` for one lock.
pub(super) fn read_renewed(reply: i64) -> RenewalOutcome {
    match reply.unsigned_abs() {
        0 => RenewalOutcome::Lost,
        fence => RenewalOutcome::Held {
            wanted: reply < 0,
            fence: if fence == 1 { 0 } else { fence },
        },
    }
}

/// Reads the reply of `inspect.sql`.
pub(super) fn read_entry(row: &Row) -> Option<StoredLock> {
    let owners: Option<Vec<String>> = row.get("owners");
    let mut owners = owners?.into_iter();
    let owner = owners.next()?;
    let parse = |text: String| OwnerId::parse(&text);
    let (count, holders): (i32, i32) = (row.get("entries"), row.get("holders"));
    let (fence, queue): (Option<i64>, Vec<String>) = (row.get("last_fence"), row.get("queue"));
    Some(StoredLock {
        owner,
        count: u32::try_from(count).unwrap_or_default(),
        ttl: Some(Duration::from_millis(unsigned(row.get("ttl")))),
        fence: fence.map(unsigned),
        other_fences: Vec::new(),
        queue: queue.into_iter().filter_map(parse).collect(),
        holders: usize::try_from(holders).unwrap_or_default(),
        permits_taken: unsigned(row.get("permits_taken")),
        others: owners.filter_map(parse).collect(),
    })
}
