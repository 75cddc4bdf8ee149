//! Asks several servers that need not agree. The reply with the highest epoch counts, so that a server which was cut off
//! from the others does not lead back to a former master.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

/// How long to wait for the others after the first reply.
const OTHERS: Duration = Duration::from_millis(50);

/// Returns the reply with the highest epoch, or an error; `None` if no server was asked. Each request ends by itself
/// within `patience`.
pub(in crate::store) async fn highest_epoch<T, E, F>(
    asked: impl IntoIterator<Item = F>,
    epoch: impl Fn(&T) -> u64,
    patience: Duration,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut asked: FuturesUnordered<F> = asked.into_iter().collect();
    let mut highest = None;
    let mut until = Instant::now() + patience * 2;
    while let Ok(Some(reply)) = timeout_at(until, asked.next()).await {
        if reply.is_ok() {
            until = until.min(Instant::now() + OTHERS);
        }
        let is_higher = match (&highest, &reply) {
            (None | Some(Err(_)), _) => true,
            (Some(Ok(highest)), Ok(reply)) => epoch(highest) < epoch(reply),
            (Some(Ok(_)), Err(_)) => false,
        };
        if is_higher {
            highest = Some(reply);
        }
    }
    highest
}
