//! What counts as the same answer, and the only place that knows where the stores differ by design.

use super::{Answer, KeyView, Observed, Operation};
use crate::words::{Acquired, Entry, Extended, Millis, News, Onward, Released, Token};

/// Where a store differs from a Redis server by design.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// How long a queue lasts that nobody joins; `None`: a store that knows who is gone keeps it.
    pub queue_lasts: Option<Millis>,
    /// Whoever is gone has left all lines at once, and nothing of it comes late.
    pub forgets_who_left: bool,
    /// Whether a release that finds nothing is answered from a list of the last releases. Else the
    /// token tells whether the lock was given back, went on to others, or ended.
    pub remembers_releases: bool,
    /// Whether it can lose what it knows, and live.
    pub loses_data: bool,
    /// Of how many requests that leave together it may serve some at once; one: it takes each by itself.
    pub together: usize,
}

impl Design {
    /// A Redis server.
    pub const REDIS: Self = Self {
        queue_lasts: Some(20_000),
        forgets_who_left: false,
        remembers_releases: false,
        loses_data: true,
        together: 5,
    };

    /// The embedded store.
    pub const MEMORY: Self = Self {
        queue_lasts: None,
        forgets_who_left: true,
        remembers_releases: true,
        loses_data: false,
        together: 1,
    };
}

impl Design {
    /// What a store answers where the model's server answers this. `earlier`: the owner gave the lock
    /// back before.
    fn released(self, model: Released, holds: bool, count: u8, earlier: bool) -> Released {
        match model {
            Released::MovedOn | Released::NotHeld | Released::Done(Onward::Unknown)
                if self.remembers_releases && !holds =>
            {
                if count == 0 && earlier {
                    Released::Done(Onward::Unknown)
                } else {
                    Released::NotHeld
                }
            }
            model => model,
        }
    }
}

/// What is known of the owner of a release before it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) holds: bool,
    pub(super) released: bool,
}

/// Compares what was seen of one step; times may differ by `late`.
pub(super) fn compare(
    design: Design,
    operation: &Operation,
    past: Past,
    (model, store): (&Observed, &Observed),
    late: Millis,
) -> Result<(), String> {
    answers(
        design,
        operation,
        past,
        (&model.answer, &store.answer),
        late,
    )?;
    views(model, store, late)
}

/// Compares the answers to one request.
pub(super) fn answers(
    design: Design,
    operation: &Operation,
    past: Past,
    (model, store): (&Answer, &Answer),
    late: Millis,
) -> Result<(), String> {
    let answers_agree = match (model, store) {
        (Answer::Acquired(model), Answer::Acquired(store)) => acquired(model, store, late),
        (Answer::Released(model), Answer::Released(store)) => {
            let Operation::Release(ask) = operation else {
                return Err("nobody asked".to_owned());
            };
            let model = design.released(*model, past.holds, ask.count, past.released);
            without_order(model) == without_order(*store)
        }
        (Answer::Extended(model), Answer::Extended(store)) => {
            let Operation::Extend(ask) = operation else {
                return Err("nobody asked".to_owned());
            };
            extended(*model, *store, ask.tokens)
        }
        (model, store) => model == store,
    };
    if answers_agree {
        Ok(())
    } else {
        Err("the answers differ".to_owned())
    }
}

/// Compares what waiters were told, and the locks.
pub(super) fn views(model: &Observed, store: &Observed, late: Millis) -> Result<(), String> {
    if told(model) != told(store) {
        return Err("clients are told different things".to_owned());
    }
    let same = |(model, store): (&KeyView, &KeyView)| {
        model.line == store.line && entries(model.entry, store.entry, late)
    };
    if model.keys.len() != store.keys.len() || !model.keys.iter().zip(&store.keys).all(same) {
        return Err("the locks differ".to_owned());
    }
    Ok(())
}

fn acquired(model: &Acquired, store: &Acquired, late: Millis) -> bool {
    match (model, store) {
        (
            Acquired::Granted { others_wait, .. },
            Acquired::Granted {
                others_wait: also, ..
            },
        ) => others_wait == also,
        (Acquired::NotHeld, Acquired::NotHeld) | (Acquired::Refused, Acquired::Refused) => true,
        (
            Acquired::Held {
                claim,
                ttl,
                in_line,
                first,
                ..
            },
            Acquired::Held {
                claim: other,
                ttl: left,
                in_line: also,
                first: also_first,
                ..
            },
        ) => {
            let same_place = in_line == also && first == also_first;
            claim == other && same_place && close(*ttl, *left, late)
        }
        _ => false,
    }
}

/// How many tokens are given depends on the time, which is not the same.
fn extended(model: Extended, store: Extended, most: Token) -> bool {
    match (model, store) {
        (Extended::More { .. }, Extended::More { fence, tokens }) => {
            tokens <= most && tokens <= fence
        }
        (model, store) => model == store,
    }
}

fn entries(model: Option<Entry>, store: Option<Entry>, late: Millis) -> bool {
    match (model, store) {
        (None, None) => true,
        (Some(model), Some(store)) => {
            model.holder == store.holder
                && model.count == store.count
                && close(model.ttl, store.ttl, late)
        }
        _ => false,
    }
}

/// The store's time goes on while the model's stands still, except that a loss of data takes the model
/// a millisecond.
fn close(model: Millis, store: Millis, late: Millis) -> bool {
    const LOSSES: Millis = super::LONGEST as Millis;
    store <= model + LOSSES && model <= store + late
}

/// Tokens are compared elsewhere.
fn without_order(answer: Released) -> Released {
    match answer {
        Released::Done(Onward::Granted(_)) => Released::Done(Onward::Granted(0)),
        answer => answer,
    }
}

/// What was told, in any order. That a lock is wanted from the beginning may be part of the grant or a
/// message of its own.
fn told(seen: &Observed) -> Vec<News> {
    let mut told: Vec<_> = seen.news.iter().map(without_token).collect();
    let wanted = |news: &News| News::Wanted {
        key: news.key(),
        owner: news.owner(),
    };
    for news in &mut told {
        let is_wanted = seen.news.contains(&wanted(news));
        if let News::Granted { others_wait, .. } = news {
            *others_wait |= is_wanted;
        }
    }
    let granted: Vec<_> = told
        .iter()
        .filter(|news| matches!(news, News::Granted { .. }))
        .map(wanted)
        .collect();
    told.retain(|news| !granted.contains(news));
    told.sort_unstable();
    told
}

fn without_token(news: &News) -> News {
    match *news {
        News::Granted {
            key,
            owner,
            ttl,
            others_wait,
            ..
        } => News::Granted {
            key,
            owner,
            token: 0,
            ttl,
            others_wait,
        },
        news @ (News::Wanted { .. } | News::AskAgain { .. }) => news,
    }
}
