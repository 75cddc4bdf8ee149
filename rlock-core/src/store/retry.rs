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
/// Returns the last error, or the first one that is not transient. An attempt with little time left says less than the one before it.
pub(crate) async fn retry_within<T, F>(
    within: Duration,
    ask: impl Fn(Duration) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    retry_while(|error| error.transient, within, ask).await
}

/// Like [`retry_within`], but only after errors that `may_pass`.
pub(crate) async fn retry_while<T, F>(
    may_pass: impl Fn(&StoreError) -> bool,
    within: Duration,
    ask: impl Fn(Duration) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let (until, mut backoff) = (Instant::now() + within, Backoff::default());
    let mut before = None::<StoreError>;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let reply = ask(left).await;
        let pause = backoff.next();
        match reply {
            Err(error) if may_pass(&error) && Instant::now() + pause < until => {
                sleep(pause).await;
                if Instant::now() >= until {
                    return Err(error);
                }
                before = Some(error);
            }
            Err(error) if error.transient && left < within / 10 => {
                let executed = error.maybe_executed;
                return Err(before.unwrap_or(error).or_executed(executed));
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

    #[tokio::test(start_paused = true)]
    async fn an_attempt_with_little_time_left_does_not_hide_why_the_one_before_failed() {
        const WITHIN: Duration = Duration::from_secs(2);
        for (is_silent, expected) in [(false, "a replica"), (true, "no reply")] {
            let outcome = retry_within(WITHIN, |left| async move {
                if left < WITHIN / 10 || is_silent {
                    sleep(left).await;
                    return Err::<(), _>(StoreError::ambiguous("no reply"));
                }
                Err(StoreError::ambiguous("a replica"))
            });
            let error = outcome.await.expect_err("it fails");
            assert_eq!(error.source.to_string(), expected);
        }
    }
}
