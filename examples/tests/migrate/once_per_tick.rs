//! A nightly report on three machines whose clocks differ, as with Spring and `ShedLock`: one of them runs each tick, also if
//! another one comes late, and a night that all have missed is reported.

use std::time::{Duration, SystemTime};

use rlock_core::{
    LockClient, LockError,
    once::Once,
    testing::{self, Clock},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LATE: Duration = Duration::from_secs(5 * 60);

/// Runs the report of a night unless another machine does. Returns its text on the machine that ran it.
async fn nightly_report(
    client: &LockClient,
    tick: SystemTime,
) -> Result<Option<String>, LockError> {
    let job = client.once("report", tick).window(Duration::from_secs(600));
    match job.run(async { "all is well".to_owned() }).await? {
        Once::Ran(text) => Ok(Some(text)),
        Once::Done | Once::Taken(_) => Ok(None),
        Once::Missed => Ok(Some("an alert: no machine has run the report".to_owned())),
    }
}

#[tokio::test]
async fn one_machine_runs_each_tick() -> Result<(), LockError> {
    let clock = Clock::new();
    let machine = || testing::use_clock(LockClient::builder(), &clock);
    let [first, second, late] = [
        machine().connect("memory:report").await?,
        machine().connect("memory:report").await?,
        machine().connect("memory:report").await?,
    ];
    let mut tick = SystemTime::now();
    for _night in 0..3 {
        let (one, other) =
            tokio::join!(nightly_report(&first, tick), nightly_report(&second, tick),);
        let ran: Vec<_> = [one?, other?].into_iter().flatten().collect();
        assert_eq!(ran, ["all is well"]);
        clock.advance(LATE);
        assert_eq!(nightly_report(&late, tick).await?, None);
        tick += DAY;
        clock.advance(DAY.saturating_sub(LATE));
    }
    clock.advance(LATE * 3);
    let missed = nightly_report(&first, tick).await?;
    assert!(missed.is_some_and(|text| text.starts_with("an alert")));
    Ok(())
}
