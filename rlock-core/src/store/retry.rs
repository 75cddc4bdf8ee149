//! Repeats reads, such as inspections and lists, until the store replies or their time is up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::StoreError;
use crate::backoff::Backoff;

/// Repeats a question, after growing pauses, until it succeeds or the time has passed, because the client may still be connecting,
/// or may see the members of a quorum at different moments of one change. Each attempt gets the time that is left.
///
/// # Errors
///
/// Returns the last error, or the first one that is not transient.
pub(crate) async fn retry_within<T, F>(
    within: Duration,
    ask: impl Fn(Duration) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let (until, mut backoff) = (Instant::now() + within, Backoff::default());
    loop {
        let reply = ask(until.saturating_duration_since(Instant::now())).await;
        let pause = backoff.next();
        match reply {
            Err(error) if error.transient && Instant::now() + pause < until => {
                sleep(pause).await;
                if Instant::now() >= until {
                    return Err(error);
                }
            }
            reply => return reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_repeated_until_its_time_limit_unless_it_is_refused() {
        let asked = std::cell::Cell::new(0);
        let ask = |error: StoreError, replies_at: u32| {
            asked.set(0);
            let asked = &asked;
            retry_within(Duration::from_secs(2), move |remaining| {
                asked.set(asked.get() + 1);
                assert!(remaining > Duration::ZERO && remaining <= Duration::from_secs(2));
                let reply = if asked.get() < replies_at {
                    Err(error.clone())
                } else {
                    Ok(())
                };
                ready(reply)
            })
        };
        let refusal = StoreError::new(false, false, "NOPERM");
        let silent = StoreError::ambiguous("0 of 3 servers replied");
        assert!(ask(silent.clone(), 4).await.is_ok());
        assert_eq!(asked.get(), 4);
        assert!(ask(refusal.clone(), 2).await.is_err());
        assert_eq!(asked.get(), 1);
        let started = Instant::now();
        assert!(ask(silent, u32::MAX).await.is_err());
        assert!((2..50).contains(&asked.get()), "{}", asked.get());
        assert!(started.elapsed() <= Duration::from_millis(2_001));
    }
}
