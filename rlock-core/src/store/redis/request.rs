//! Requests to one connection.

use redis::{Cmd, Pipeline, RedisResult, Script, ServerErrorKind, Value};

use super::{batch::gone, commands::Batchable, connection::Connection};

pub(in crate::store) enum Request<'a> {
    /// A call of a script.
    Script {
        script: &'a Script,
        /// Makes the call, each time that it is sent.
        call: &'a (dyn Fn() -> Cmd + Sync),
        /// The same request, if one script can serve it together with others.
        batchable: Option<Batchable>,
        /// It is sent only once, because it may be settled otherwise meanwhile. A script that the server has lost is
        /// loaded for the next request. The reply is nil if it was batched, and has to be sent by itself.
        once: bool,
    },
    /// Other commands. The reply is a list, in which an error is one of the replies.
    Commands(Pipeline),
}

impl Request<'_> {
    /// Sends the request. With `asking`, to a node of a cluster that does not have the slot yet.
    pub(super) async fn send(&self, connection: &Connection, asking: bool) -> RedisResult<Value> {
        let (script, call, batchable, once) = match self {
            Self::Script {
                script,
                call,
                batchable,
                once,
            } => (script, call, batchable, *once),
            Self::Commands(commands) => {
                let commands = commands.cmd_iter().cloned();
                let replies = send_all(connection, commands, asking).await;
                return replies.map(Value::Array);
            }
        };
        let batched = match batchable {
            Some(batchable) if connection.batcher.batches() => {
                connection.batcher.send_batched(batchable).await.transpose()
            }
            _ => Some(send_alone(connection, call(), asking).await),
        };
        let reply = match batched {
            Some(reply) => reply,
            None if once => return Ok(Value::Nil),
            None => send_alone(connection, call(), asking).await,
        };
        match reply {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                script.load_async(&mut connection.commands.clone()).await?;
                if once {
                    return Err(error);
                }
                send_alone(connection, call(), asking).await
            }
            reply => reply,
        }
    }
}

async fn send_alone(connection: &Connection, call: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.batcher.send(call).await;
    }
    let mut replies = send_all(connection, [call].into_iter(), true).await?;
    replies.pop().ok_or_else(gone)?.extract_error()
}

/// Sends commands with one write, so that nothing comes between `ASKING` and what follows it.
async fn send_all(
    connection: &Connection,
    commands: impl Iterator<Item = Cmd>,
    asking: bool,
) -> RedisResult<Vec<Value>> {
    let mut all = Pipeline::new();
    for command in commands {
        if asking {
            all.cmd("ASKING");
        }
        all.add_command(command);
    }
    let each = 1 + usize::from(asking);
    let mut connection = connection.commands.clone();
    let replies = connection.send_packed_commands(&all, 0, all.len()).await?;
    Ok(replies.into_iter().skip(each - 1).step_by(each).collect())
}
