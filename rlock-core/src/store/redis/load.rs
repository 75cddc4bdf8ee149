//! What leaves with one write: requests one by one, and those of the usual kind several to a script.

use redis::{Cmd, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::oneshot;

use super::{
    calls::{Calls, Usual},
    errors::classify,
};

/// How many requests one script serves. It holds the server up for about 50 µs then; more save little.
const TOGETHER: usize = 16;

/// What is asked for by somebody who waits for the answer; `None`: it is to be asked for by itself.
pub(super) struct Request {
    pub(super) what: What,
    pub(super) answer: Waiting,
}

pub(super) enum What {
    Call(Cmd),
    Usual(Usual),
}

pub(super) type Waiting = oneshot::Sender<RedisResult<Option<Value>>>;

/// Requests in the order of their answers.
#[derive(Default)]
pub(super) struct Load {
    pub(super) commands: Pipeline,
    parts: Vec<Part>,
}

/// Who waits for an answer.
enum Part {
    One(Waiting),
    Acquires(Vec<Waiting>),
    Releases(Vec<Waiting>),
}

/// What the answers say about serving several requests by one script.
#[derive(Default)]
pub(super) struct Lesson {
    /// The server does not know the scripts any more.
    pub(super) forgotten: bool,
    /// It refuses them.
    pub(super) refused: bool,
}

impl Load {
    /// Acquires first and releases last: no request of an owner overtakes its acquire, and none is
    /// overtaken by its release.
    pub(super) fn new(requests: Vec<Request>, calls: &Calls) -> Self {
        let mut load = Self {
            commands: Pipeline::with_capacity(requests.len()),
            parts: Vec::with_capacity(requests.len()),
        };
        let (mut acquires, mut others, mut releases) = (Vec::new(), Vec::new(), Vec::new());
        for Request { what, answer } in requests {
            match what {
                What::Call(call) => others.push((call, answer)),
                What::Usual(usual @ Usual::Acquire { .. }) => acquires.push((usual, answer)),
                What::Usual(usual @ Usual::Release { .. }) => releases.push((usual, answer)),
            }
        }
        load.add_together(acquires, calls);
        for (call, answer) in others {
            load.add(call, Part::One(answer));
        }
        load.add_together(releases, calls);
        load
    }

    fn add(&mut self, call: Cmd, part: Part) {
        self.commands.add_command(call);
        self.parts.push(part);
    }

    /// Requests of one kind.
    fn add_together(&mut self, requests: Vec<(Usual, Waiting)>, calls: &Calls) {
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let mut some: Vec<_> = requests.by_ref().take(TOGETHER).collect();
            if let [_] = some.as_slice()
                && let Some((usual, waiting)) = some.pop()
            {
                self.add(calls.alone(&usual), Part::One(waiting));
                continue;
            }
            let (mut claims, mut holds) = (Vec::new(), Vec::new());
            let mut waiting = Vec::with_capacity(some.len());
            for (usual, answer) in some {
                match usual {
                    Usual::Acquire { claim, lease, .. } => claims.push((claim, lease)),
                    Usual::Release { key, owner, .. } => holds.push((key, owner)),
                }
                waiting.push(answer);
            }
            if holds.is_empty() {
                let call = calls.acquire_together(&claims);
                self.add(call, Part::Acquires(waiting));
            } else {
                let call = calls.release_together(&holds);
                self.add(call, Part::Releases(waiting));
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Gives everybody its answer. Whoever does not wait any more needs none.
    pub(super) fn answered(self, answers: RedisResult<Vec<Value>>) -> Lesson {
        let mut lesson = Lesson::default();
        match answers {
            Ok(answers) => {
                for (part, answer) in self.parts.into_iter().zip(answers) {
                    part.answered(answer.extract_error(), &mut lesson);
                }
            }
            Err(error) => self.parts.into_iter().for_each(|part| part.failed(&error)),
        }
        lesson
    }
}

impl Part {
    fn answered(self, answer: RedisResult<Value>, lesson: &mut Lesson) {
        match self {
            Self::One(waiting) => {
                let _ = waiting.send(answer.map(Some));
            }
            Self::Acquires(waiting) => {
                let acquired = |token| Value::Array(vec![Value::Int(1), Value::Int(token)]);
                share(waiting, answer, acquired, lesson);
            }
            Self::Releases(waiting) => share(waiting, answer, Value::Int, lesson),
        }
    }

    fn failed(self, error: &RedisError) {
        match self {
            Self::One(waiting) => {
                let _ = waiting.send(Err(error.clone()));
            }
            Self::Acquires(waiting) | Self::Releases(waiting) => {
                for waiting in waiting {
                    let _ = waiting.send(Err(error.clone()));
                }
            }
        }
    }
}

/// Gives each its part of the answer, as the script for it alone would have answered. After a refusal
/// nothing was done, and each asks by itself.
fn share(
    waiting: Vec<Waiting>,
    answer: RedisResult<Value>,
    as_alone: impl Fn(i64) -> Value,
    lesson: &mut Lesson,
) {
    let mut parts = match answer {
        Ok(Value::Array(parts)) => parts,
        Ok(_) => {
            lesson.refused = true;
            Vec::new()
        }
        Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
            lesson.forgotten = true;
            Vec::new()
        }
        Err(error) => {
            lesson.refused = !classify(error).transient;
            Vec::new()
        }
    }
    .into_iter();
    for waiting in waiting {
        let done = match parts.next() {
            Some(Value::Int(done)) if done > 0 => Some(as_alone(done)),
            _ => None,
        };
        let _ = waiting.send(Ok(done));
    }
}
