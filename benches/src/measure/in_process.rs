//! Rounds on one lock by tasks of this process, with one client or several.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use rlock_testkit::RedisServer;

use super::{Executed, STAY};
use crate::{
    contention::{Tasks, soon},
    contestant::Kind,
    grants::{Grants, Span},
    metric::Metric,
    pace::Pace,
    results::Results,
};

/// Runs a warm-up that checks exclusion, and measures one round.
pub(super) async fn round(
    results: &mut Results,
    kind: Kind,
    pace: &Pace,
    team: &mut [Tasks],
    tasks: usize,
    server: &RedisServer,
) -> Result<()> {
    let warm = contend(team, soon(pace.warm_up), STAY).await;
    let executed = Executed::before(server).await?;
    let span = soon(pace.contended_of(kind));
    let grants = contend(team, span, Duration::ZERO).await;
    let mut figures = grants.of_one_lock(span, tasks);
    figures.push(executed.per_change(server, &grants).await?);
    figures.push((
        Metric::Violations,
        super::count(warm.violations() + grants.violations()),
    ));
    results.add(kind, figures);
    results.errors(kind, grants.errors);
    Ok(())
}

/// Counts the commands of clients in a separate run, because `MONITOR` costs time.
pub(super) async fn count(
    results: &mut Results,
    kind: Kind,
    pace: &Pace,
    team: &mut [Tasks],
    server: &RedisServer,
) {
    let mut commands = server.watch_commands().await;
    let grants = contend(team, soon(pace.counted_of(kind)), Duration::ZERO).await;
    results.add(
        kind,
        super::commands_per_change(commands.count().await, &grants),
    );
}

async fn contend(team: &mut [Tasks], span: Span, stay: Duration) -> Grants {
    let mut all = Grants::default();
    for grants in join_all(team.iter_mut().map(|tasks| tasks.run(span, stay))).await {
        all.extend(grants);
    }
    all
}
