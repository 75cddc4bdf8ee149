//! A Lua script on the server, called by its digest.

use redis::{
    Cmd, Pipeline, RedisResult, Script, ServerErrorKind, Value, aio::MultiplexedConnection, cmd,
};

use super::{calls::Usual, connection::Connection};
use crate::store::BoxFuture;

pub(super) struct LoadedScript {
    script: Script,
}

impl LoadedScript {
    pub(super) fn new(code: &str) -> Self {
        Self {
            script: Script::new(code),
        }
    }

    /// Begins a call with that many keys; keys and arguments follow.
    pub(super) fn call(&self, keys: usize) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(self.script.get_hash()).arg(keys);
        call
    }

    pub(super) async fn load(&self, commands: &mut MultiplexedConnection) -> RedisResult<()> {
        self.script.load_async(commands).await.map(|_| ())
    }

    /// Adds the command that loads the script.
    pub(super) fn load_with(&self, commands: &mut Pipeline) {
        commands.load_script(&self.script);
    }
}

/// A call of a script, made again for each time that it is sent.
pub(super) struct Request<'a, F> {
    pub(super) script: &'a LoadedScript,
    pub(super) call: F,
    /// The same request, if it is of the usual kind.
    pub(super) usual: Option<Usual>,
}

/// A request to a server. Its future is boxed, so that the code around it is compiled once.
pub(super) trait Exchange: Sync + Send {
    /// Sends it. With `asking`, to a node of a cluster that does not have the slot yet.
    fn send<'a>(
        &'a self,
        connection: &'a Connection,
        asking: bool,
    ) -> BoxFuture<'a, RedisResult<Value>>;
}

impl<F: Fn() -> Cmd + Sync + Send> Exchange for Request<'_, F> {
    /// Loads the script first where the server has lost it.
    fn send<'a>(
        &'a self,
        connection: &'a Connection,
        asking: bool,
    ) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async move {
            let answer = match &self.usual {
                Some(usual) => connection.pipe.send_usual(usual).await,
                None => Ok(None),
            };
            let answer = match answer {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => send_alone(connection, (self.call)(), asking).await,
                // One that left by itself is answered as if it had been sent so.
                Err(error) => Err(error),
            };
            match answer {
                Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                    self.script.load(&mut connection.commands.clone()).await?;
                    send_alone(connection, (self.call)(), asking).await
                }
                outcome => outcome,
            }
        })
    }
}

async fn send_alone(connection: &Connection, call: Cmd, asking: bool) -> RedisResult<Value> {
    if asking {
        return send_asking(connection, call).await;
    }
    connection.pipe.send(call).await
}

/// A call of a script that is sent once: what it asks for may be asked for otherwise meanwhile. The reply is
/// nil if it was sent with others and left alone.
pub(super) struct Once<'a, F> {
    pub(super) script: &'a LoadedScript,
    pub(super) call: F,
    /// The same request, to be sent with others.
    pub(super) usual: Option<Usual>,
}

impl<F: Fn() -> Cmd + Sync + Send> Exchange for Once<'_, F> {
    /// Loads the script where the server has lost it, for the next call.
    fn send<'a>(
        &'a self,
        connection: &'a Connection,
        _asking: bool,
    ) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async move {
            if let Some(usual) = &self.usual
                && connection.pipe.shares()
            {
                let answer = connection.pipe.send_usual(usual).await?;
                return Ok(answer.unwrap_or(Value::Nil));
            }
            let answer = connection.pipe.send((self.call)()).await;
            if let Err(error) = &answer
                && error.kind() == ServerErrorKind::NoScript.into()
            {
                self.script.load(&mut connection.commands.clone()).await?;
            }
            answer
        })
    }
}

/// Commands that are no script: answers a list, in which an error is one of the answers.
pub(super) struct Plain(pub(super) Pipeline);

impl Plain {
    async fn answers(&self, connection: &Connection, asking: bool) -> RedisResult<Vec<Value>> {
        let mut commands = connection.commands.clone();
        if !asking {
            return commands
                .send_packed_commands(&self.0, 0, self.0.len())
                .await;
        }
        let mut all = Pipeline::new();
        for command in self.0.cmd_iter() {
            all.cmd("ASKING").add_command(command.clone());
        }
        let answers = commands.send_packed_commands(&all, 0, all.len()).await?;
        Ok(answers.into_iter().skip(1).step_by(2).collect())
    }
}

impl Exchange for Plain {
    fn send<'a>(
        &'a self,
        connection: &'a Connection,
        asking: bool,
    ) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async move { self.answers(connection, asking).await.map(Value::Array) })
    }
}

/// One write, so that nothing comes between.
async fn send_asking(connection: &Connection, call: Cmd) -> RedisResult<Value> {
    let mut both = Pipeline::new();
    both.add_command(cmd("ASKING")).add_command(call);
    let mut commands = connection.commands.clone();
    let answers = commands.send_packed_commands(&both, 1, 1).await?;
    let answer = answers.into_iter().next();
    answer.map_or_else(
        || Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()),
        Value::extract_error,
    )
}
