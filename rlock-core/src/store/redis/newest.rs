//! What several servers say that need not agree. The newest counts, so that one which was cut off from
//! the others does not lead back to a former master.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout_at};

/// How long the others are waited for when one has answered.
const OTHERS: Duration = Duration::from_millis(50);

/// The answer with the highest epoch, or why there is none; `None`: nobody was asked. Each request
/// ends by itself within `patience`.
pub(super) async fn newest<T, E, F>(
    asked: impl IntoIterator<Item = F>,
    epoch: impl Fn(&T) -> u64,
    patience: Duration,
) -> Option<Result<T, E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut asked: FuturesUnordered<F> = asked.into_iter().collect();
    let mut newest = None;
    let mut until = Instant::now() + patience * 2;
    while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
        if answer.is_ok() {
            until = until.min(Instant::now() + OTHERS);
        }
        let is_newer = match (&newest, &answer) {
            (None | Some(Err(_)), _) => true,
            (Some(Ok(newest)), Ok(answer)) => epoch(newest) < epoch(answer),
            (Some(Ok(_)), Err(_)) => false,
        };
        if is_newer {
            newest = Some(answer);
        }
    }
    newest
}
