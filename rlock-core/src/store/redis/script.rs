//! A Lua script on the server, called by its digest.

use redis::{Cmd, RedisResult, Script, ServerErrorKind, Value, aio::MultiplexedConnection};

use super::{calls::Usual, connection::Connection};

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
        // A key has two arguments at the most, and there are a few for all.
        let mut call = Cmd::with_capacity(13 + 3 * keys, 160 + 112 * keys);
        call.arg("EVALSHA").arg(self.script.get_hash()).arg(keys);
        call
    }

    pub(super) async fn load(&self, commands: &mut MultiplexedConnection) -> RedisResult<()> {
        self.script.load_async(commands).await.map(|_| ())
    }
}

/// A call of a script, made again for each time that it is sent.
pub(super) struct Request<'a, F> {
    pub(super) script: &'a LoadedScript,
    pub(super) call: F,
    /// The same request, if it is of the usual kind.
    pub(super) usual: Option<Usual>,
}

impl<F: Fn() -> Cmd> Request<'_, F> {
    /// Sends it; loads the script first where the server has lost it.
    pub(super) async fn send(&self, connection: &Connection) -> RedisResult<Value> {
        match self.try_send(connection).await {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.script.load(&mut connection.commands.clone()).await?;
                connection.pipe.send((self.call)()).await
            }
            outcome => outcome,
        }
    }

    async fn try_send(&self, connection: &Connection) -> RedisResult<Value> {
        if let Some(usual) = &self.usual
            && let Some(answer) = connection.pipe.send_usual(usual).await?
        {
            return Ok(answer);
        }
        connection.pipe.send((self.call)()).await
    }
}
