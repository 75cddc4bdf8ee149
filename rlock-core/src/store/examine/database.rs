//! Checks the Postgres servers of a URL: which one grants locks, whether it keeps them, its version, clock, free connections and schema.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use tokio::time::timeout;
use tokio_postgres::Row;

use super::{
    findings::{Finding, ServerReport},
    pooler::pooler,
    schema,
};
use crate::store::{StoreError, options::StoreOptions, postgres::PostgresEndpoint};

/// The oldest version that can run the functions.
const OLDEST: i32 = 130_000;
/// A clock that differs by more than this is advised against.
const FAR: Duration = Duration::from_secs(1);
/// Fewer free connections than this are advised against.
const FEW: i32 = 10;

const FACTS: &str = "SELECT current_setting('server_version_num')::int AS number, current_setting('server_version') AS version,
  pg_is_in_recovery() AS is_standby, current_setting('transaction_read_only') = 'on' AS is_read_only,
  current_setting('fsync') = 'on' AS syncs, current_setting('synchronous_commit') AS commits,
  current_setting('synchronous_standby_names') <> '' AS has_standby,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    - coalesce(current_setting('reserved_connections', true)::int, 0) AS most,
  (SELECT sum(numbackends) FROM pg_stat_database)::int AS used,
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock";

/// Examines each server that the URL names.
pub(crate) async fn database(
    endpoint: &PostgresEndpoint,
    options: &StoreOptions,
) -> Vec<ServerReport> {
    let each = endpoint.each();
    let mut reports = join_all(each.iter().map(|host| server(host, options))).await;
    let has_primary = reports.iter().any(|report| report.grants_locks);
    for report in &mut reports {
        if report.is_reachable && !report.grants_locks {
            let text = "is a standby or read-only, and grants no locks";
            report.add(if has_primary {
                Finding::good("primary", format!("{text} before it is promoted"))
            } else {
                let remedy =
                    "name the primary in the URL, and check `default_transaction_read_only`";
                Finding::harm("primary", text).with_remedy(remedy)
            });
        } else if !report.is_reachable && has_primary {
            report.weaken();
        }
    }
    reports
}

async fn server(endpoint: &PostgresEndpoint, options: &StoreOptions) -> ServerReport {
    let address = endpoint.to_string();
    match timeout(options.connect_timeout, facts(endpoint, options)).await {
        Ok(Ok((grants_locks, findings))) => {
            let heading = if grants_locks {
                ""
            } else {
                " (grants no locks)"
            };
            let mut report = ServerReport::new(&format!("{address}{heading}"), grants_locks);
            report.is_reachable = true;
            report.findings = findings;
            report
        }
        Ok(Err(error)) => unreachable(&address, &error.to_string()),
        Err(_) => unreachable(&address, "no reply"),
    }
}

fn unreachable(address: &str, reason: &str) -> ServerReport {
    let mut report = ServerReport::new(address, false);
    report.add(Finding::harm("connection", reason));
    report
}

/// Returns whether a server grants locks, and the findings about it.
async fn facts(
    endpoint: &PostgresEndpoint,
    options: &StoreOptions,
) -> Result<(bool, Vec<Finding>), StoreError> {
    let session = endpoint.look(options).await?;
    let (began, local) = (Instant::now(), SystemTime::now());
    let row = session.ask(FACTS).await?;
    let between = local + began.elapsed() / 2;
    let remote = u64::try_from(row.get::<_, i64>("clock")).unwrap_or_default();
    let remote = SystemTime::UNIX_EPOCH + Duration::from_millis(remote);
    let grants_locks = !row.get::<_, bool>("is_standby") && !row.get::<_, bool>("is_read_only");
    let mut findings = vec![version(&row), clock(between, remote), connections(&row)];
    if grants_locks {
        findings.push(persistence(&row, endpoint.is_durable()));
        findings.push(pooler(endpoint, &session, options).await?);
        findings.extend(schema::compare(endpoint, &session).await?);
    }
    Ok((grants_locks, findings))
}

fn version(row: &Row) -> Finding {
    let version = format!("Postgres {}", row.get::<_, &str>("version"));
    if row.get::<_, i32>("number") < OLDEST {
        let text = format!("{version} is too old");
        return Finding::harm("version", text).with_remedy("use Postgres 13 or later");
    }
    Finding::good("version", version)
}

fn persistence(row: &Row, is_durable: bool) -> Finding {
    const CHECK: &str = "persistence";
    if !is_durable {
        let text = "`durability=memory`: a crash or a failover forgets all locks, and their holders are stopped";
        return Finding::advice(CHECK, text)
            .with_remedy("use `durability=disk` if locks have to survive that");
    }
    if !row.get::<_, bool>("syncs") {
        let text = "fsync off: a failure of the machine loses locks, or the database";
        return Finding::advice(CHECK, text).with_remedy("set `fsync = on`");
    }
    let commits = match row.get("commits") {
        // A client overrides these two in its own sessions.
        "off" | "local" => "on",
        other => other,
    };
    let standby = if row.get("has_standby") {
        "a standby confirms each grant"
    } else {
        "no standby is waited for, so a failover may lose locks"
    };
    Finding::good(
        CHECK,
        format!("fsync on, synchronous_commit {commits} for grants; {standby}"),
    )
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

fn connections(row: &Row) -> Finding {
    const CHECK: &str = "connections";
    let (most, used): (i32, i32) = (row.get("most"), row.get("used"));
    let text = format!("{used} of {most} are in use, and each client takes two");
    if most - used < FEW {
        return Finding::advice(CHECK, text).with_remedy("raise `max_connections`");
    }
    Finding::good(CHECK, text)
}
