//! A command with what goes right before and after it.

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};

/// Leaves with one write, so that nothing of this connection comes between.
pub(super) struct Framed {
    pub(super) before: Option<Cmd>,
    pub(super) call: Cmd,
    pub(super) after: Option<Cmd>,
}

impl From<Cmd> for Framed {
    fn from(call: Cmd) -> Self {
        Self {
            before: None,
            call,
            after: None,
        }
    }
}

impl Framed {
    /// Answers what the server says to the command itself.
    pub(super) async fn send(self, commands: &mut MultiplexedConnection) -> RedisResult<Value> {
        let Self {
            before,
            call,
            after,
        } = self;
        if before.is_none() && after.is_none() {
            return commands
                .send_packed_command(&call)
                .await
                .and_then(Value::extract_error);
        }
        let own = usize::from(before.is_some());
        let mut all = Pipeline::with_capacity(3);
        for command in before.into_iter().chain([call]).chain(after) {
            all.add_command(command);
        }
        let answers = commands.send_packed_commands(&all, own, all.len() - own);
        let own = answers.await?.into_iter().next();
        own.unwrap_or(Value::Nil).extract_error()
    }
}
