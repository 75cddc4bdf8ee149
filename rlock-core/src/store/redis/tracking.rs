//! How the server comes to tell of changes: it remembers what a connection reads, until another changes it.

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection, cmd};

use super::{
    abilities::{absent_script, refused, refuses_scripts},
    connection::server_may_refuse,
};

/// Asks to be told when another connection changes a lock that was read on this one, unless by a command
/// that comes after [`unremembered`]; or to have that connection told. Where that is refused, renewals find losses.
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
    track.arg("NOLOOP").arg("OPTOUT");
    track
}

/// What of tracking is refused, and whether scripts are.
pub(super) struct Tried {
    pub(super) tracking: bool,
    pub(super) opting_out: bool,
    pub(super) scripts: bool,
}

/// Has changes tracked, and tries what depends on that by one write. What [`unremembered`] is said of here is
/// a script that is not there: it holds for the next command, whatever that is.
pub(super) async fn try_tracking(
    mut commands: MultiplexedConnection,
    told: Option<i64>,
) -> RedisResult<Tried> {
    let mut all = Pipeline::with_capacity(3);
    all.add_command(tracking(told))
        .add_command(unremembered())
        .add_command(absent_script());
    let answers = commands.send_packed_commands(&all, 0, all.len()).await?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    Ok(Tried {
        tracking: refused(next())?,
        opting_out: refused(next())?,
        scripts: refuses_scripts(next())?,
    })
}

/// The server does not remember what the next command reads.
pub(super) fn unremembered() -> Cmd {
    let mut caching = cmd("CLIENT");
    caching.arg("CACHING").arg("NO");
    caching
}
