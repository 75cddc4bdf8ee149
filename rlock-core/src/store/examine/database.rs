//! Checks one Postgres server: its version, whether it keeps what it has granted, its clock, and its free connections.

use std::time::{Duration, Instant, SystemTime};

use tokio::time::timeout;

use super::findings::{Finding, ServerReport};
use crate::store::{StoreError, options::StoreOptions, postgres::PostgresEndpoint};

/// The oldest version that can run the functions.
const OLDEST: i32 = 130_000;
/// A clock that differs by more than this is advised against.
const FAR: Duration = Duration::from_secs(1);
/// Fewer free connections than this are advised against.
const FEW: i32 = 10;

const FACTS: &str = "SELECT current_setting('server_version_num')::int, current_setting('server_version'),
  current_setting('fsync') = 'on', current_setting('synchronous_standby_names'),
  current_setting('max_connections')::int, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::int,
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Examines a database. The permissions and the schema need no check of their own, because a lock there shows them.
pub(crate) async fn database(endpoint: &PostgresEndpoint, options: &StoreOptions) -> ServerReport {
    let mut report = ServerReport::new(&endpoint.to_string(), true);
    let asked = timeout(options.connect_timeout, facts(endpoint, options)).await;
    match asked {
        Ok(Ok(findings)) => {
            report.is_reachable = true;
            report.findings = findings;
        }
        Ok(Err(error)) => report.add(Finding::harm("connection", error.to_string())),
        Err(_) => report.add(Finding::harm("connection", "no reply")),
    }
    report
}

async fn facts(
    endpoint: &PostgresEndpoint,
    options: &StoreOptions,
) -> Result<Vec<Finding>, StoreError> {
    let session = endpoint.look(options).await?;
    let (began, local) = (Instant::now(), SystemTime::now());
    let row = session.ask(FACTS).await?;
    let between = local + began.elapsed() / 2;
    let (number, version): (i32, &str) = (row.get(0), row.get(1));
    let (most, used): (i32, i32) = (row.get(4), row.get(5));
    let remote = u64::try_from(row.get::<_, i64>(6)).unwrap_or_default();
    Ok(vec![
        if number < OLDEST {
            let text = format!("Postgres {version} is too old");
            Finding::harm("version", text).with_remedy("use Postgres 13 or later")
        } else {
            Finding::good("version", format!("Postgres {version}"))
        },
        persistence(row.get(2), row.get(3)),
        clock(
            between,
            SystemTime::UNIX_EPOCH + Duration::from_millis(remote),
        ),
        connections(most, used),
    ])
}

fn persistence(syncs: bool, standbys: &str) -> Finding {
    const CHECK: &str = "persistence";
    if !syncs {
        let text = "fsync off: a failure of the machine loses locks, or the database";
        return Finding::advice(CHECK, text).with_remedy("set `fsync = on`");
    }
    let standbys = match standbys {
        "" => "no standby is waited for, so a failover may lose locks",
        _ => "a standby confirms each grant",
    };
    Finding::good(CHECK, format!("fsync on; {standbys}"))
}

fn clock(local: SystemTime, remote: SystemTime) -> Finding {
    const CHECK: &str = "clock";
    let (side, offset) = match remote.duration_since(local) {
        Ok(ahead) => ("ahead of", ahead),
        Err(error) => ("behind", error.duration()),
    };
    let text = format!("{} ms {side} this machine's", offset.as_millis());
    if offset > FAR {
        let advice = "let chrony or ntpd slew both clocks, because a jump ends leases early";
        return Finding::advice(CHECK, text).with_remedy(advice);
    }
    Finding::good(CHECK, text)
}

fn connections(most: i32, used: i32) -> Finding {
    const CHECK: &str = "connections";
    let text = format!("{used} of {most} are in use, and each client takes two");
    if most - used < FEW {
        return Finding::advice(CHECK, text).with_remedy("raise `max_connections`");
    }
    Finding::good(CHECK, text)
}
