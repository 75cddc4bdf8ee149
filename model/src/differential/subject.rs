//! What is compared.

use super::{Design, KEYS, Operation, operation::CLIENTS};
use crate::{
    server::{Constants, Server, ServerBug},
    words::{Acquired, Effects, Entry, Extended, News, Owner, Released, Renewed, Token},
};

/// A store under comparison.
pub trait Subject {
    /// Begins anew: no locks, and every client listens.
    fn reset(&mut self);

    /// Does one step. `token` is the last one that the owner of a release knows to be its own.
    fn apply(&mut self, operation: &Operation, token: Token) -> Observed;

    /// Serves those of several requests that it can serve at once; the others are left alone.
    fn together(&mut self, requests: &[Operation]) -> Served {
        unreachable!("{requests:?} are served one by one")
    }
}

/// What was seen of several requests that were served at once.
#[derive(Clone, Debug)]
pub struct Served {
    /// An answer each; `None`: it is to be asked for by itself.
    pub answers: Vec<Option<Answer>>,
    /// What was seen afterwards; it has no answer of its own.
    pub seen: Observed,
}

/// What was seen of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// What was answered.
    pub answer: Answer,
    /// What owners and waiters were told.
    pub news: Vec<News>,
    /// Each key afterwards.
    pub keys: Vec<KeyView>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an acquire.
    Acquired(Acquired),
    /// To a release.
    Released(Released),
    /// To a renewal.
    Renewed(Vec<Renewed>),
    /// To a request for more tokens.
    Extended(Extended),
    /// Nobody was asked.
    None,
}

impl Answer {
    pub(super) fn is_grant(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Granted { .. }))
    }

    pub(super) fn is_extension(&self) -> bool {
        matches!(self, Self::Extended(Extended::More { tokens: 1.., .. }))
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self, Self::Acquired(Acquired::Held { .. }))
    }
}

/// A key as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Who holds it.
    pub entry: Option<Entry>,
    /// Who stands in line.
    pub line: Vec<Owner>,
}

/// The model's server under comparison.
#[derive(Clone, Debug)]
pub struct ModelSubject {
    design: Design,
    bug: Option<ServerBug>,
    server: Server,
}

impl ModelSubject {
    /// A server that keeps to the design of a store.
    #[must_use]
    pub fn new(design: Design) -> Self {
        let constants = Constants {
            queue: design.queue_lasts.unwrap_or(u64::MAX / 2),
            ..Constants::REAL
        };
        let mut server = Server::new(1_000_000, constants);
        (0..CLIENTS).for_each(|client| server.join(client));
        Self {
            design,
            bug: None,
            server,
        }
    }

    /// The same with a mistake.
    #[must_use]
    pub fn with_bug(self, bug: ServerBug) -> Self {
        Self {
            bug: Some(bug),
            server: self.server.with_bug(Some(bug)),
            ..self
        }
    }

    /// Each key as it is now.
    pub(super) fn view(&self) -> Vec<KeyView> {
        let view = |key| KeyView {
            entry: self.server.inspect(key),
            line: self.server.line(key),
        };
        (0..KEYS).map(view).collect()
    }
}

impl Subject for ModelSubject {
    fn reset(&mut self) {
        let new = Self::new(self.design);
        *self = match self.bug {
            Some(bug) => new.with_bug(bug),
            None => new,
        };
    }

    fn apply(&mut self, operation: &Operation, token: Token) -> Observed {
        let server = &mut self.server;
        let mut effects = Effects::default();
        let mut answer = Answer::None;
        match operation {
            Operation::Acquire(ask) => {
                answer = Answer::Acquired(server.acquire(ask, &mut effects));
            }
            Operation::Release(ask) => {
                let ask = crate::words::Release {
                    token,
                    ..ask.clone()
                };
                answer = Answer::Released(server.release(&ask, &mut effects));
            }
            Operation::Renew(batch) => answer = Answer::Renewed(server.renew(batch)),
            Operation::Extend(ask) => {
                answer = Answer::Extended(server.extend(ask, &mut effects));
            }
            Operation::Pass(time) => server.pass(*time),
            Operation::Leave(client) if self.design.forgets_who_left => {
                server.leave_all_lines(*client);
            }
            Operation::Leave(client) => server.leave(*client),
            Operation::Restart => server.restart(),
            Operation::LoseToken(key) => server.lose_token(*key),
            Operation::SpoilToken(key, instead) => server.spoil_token(*key, *instead),
            Operation::Together(_) => unreachable!("a server takes one step at a time"),
        }
        Observed {
            answer,
            news: effects.news,
            keys: self.view(),
        }
    }
}
