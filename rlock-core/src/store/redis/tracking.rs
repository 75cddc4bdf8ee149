//! How the server comes to tell of changes: it remembers what a connection reads, until another changes it.

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection, cmd};

use super::{
    abilities::{absent_script, refused, refuses_scripts},
    connection::server_may_refuse,
};

/// Asks the server to report changes by other connections of the locks that this one read, here or to the
/// connection with this id. Where that is refused, renewals find losses.
pub(super) async fn track_changes(
    mut commands: MultiplexedConnection,
    told: Option<i64>,
) -> RedisResult<()> {
    server_may_refuse(tracking(told).query_async(&mut commands).await)
}

fn tracking(told: Option<i64>) -> Cmd {
    let mut track = cmd("CLIENT");
    track.arg("TRACKING").arg("ON");
    if let Some(id) = told {
        track.arg("REDIRECT").arg(id);
    }
    track.arg("NOLOOP");
    track
}

/// What of tracking is refused, and whether scripts are.
pub(super) struct Tried {
    pub(super) tracking: bool,
    pub(super) scripts: bool,
}

/// Has changes tracked, and tries by the same write whether scripts can be called.
pub(super) async fn try_tracking(
    mut commands: MultiplexedConnection,
    told: Option<i64>,
) -> RedisResult<Tried> {
    let mut all = Pipeline::new();
    all.add_command(tracking(told)).add_command(absent_script());
    let answers = commands.send_packed_commands(&all, 0, all.len()).await?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    Ok(Tried {
        tracking: refused(next())?,
        scripts: refuses_scripts(next())?,
    })
}
