//! Taking locks on a majority of the servers.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::{
    LONGEST_LINGER, QuorumStore,
    ballot::Ballot,
    line::{lead, shortly},
    linger_since,
    node::{Given, Wanted},
    tokens::Tokens,
    votes::Verdict,
};
use crate::{
    few::Few,
    key::Key,
    lease::Time,
    store::{Acquired, GRACE, News, StoreError},
};

/// How often whoever has the lead's vote asks the others again before it gives way: who stood in its
/// way by chance gives back meanwhile.
const TRIES: u32 = 6;
/// The same for whoever asks once.
const TRIES_AT_ONCE: u32 = 3;
/// How often others are looked at where the lead alone says that another has the lock. If they still have
/// nobody then, the other is not about to ask them: what the lead has was left behind.
const LOOKS: u32 = 5;
/// The first pause between these, then twice as long each.
const PAUSE: Duration = Duration::from_millis(1);
/// How long servers are waited for that were asked to take a vote back.
const TAKE_BACK: Duration = Duration::from_millis(250);

/// How long answers decide about a lease: later ones leave little of it.
fn until(patience: Duration, lease: Duration) -> Instant {
    const SHORTEST: Duration = Duration::from_millis(20);
    Instant::now() + patience.min((lease / 8).max(SHORTEST))
}

fn is_granted(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Granted { .. })
}

impl QuorumStore {
    fn asked(&self, wanted: &Wanted, waits: impl Fn(usize) -> bool) -> Ballot<Acquired> {
        let mut ballot = self.ballot();
        let over = (!self.is_up()).then(|| ballot.over());
        for node in &*self.nodes {
            let request = node.acquire(wanted, waits(node.number), over.clone());
            ballot.ask(node.number, request);
        }
        ballot
    }

    /// Asks all servers for a further entry.
    pub(super) async fn enter(
        &self,
        wanted: Wanted,
        patience: Duration,
    ) -> Result<Acquired, StoreError> {
        let sent_at = self.clock.now();
        let until = until(patience, wanted.lease);
        let mut ballot = self.asked(&wanted, |_| false);
        let verdict = loop {
            match ballot.tally(is_granted).verdict() {
                Verdict::Open if ballot.next(until).await => {}
                verdict => break verdict,
            }
        };
        let answer = match verdict {
            Verdict::Yes => Ok(Acquired::Granted {
                // That of the hold stands.
                tokens: wanted.claims.iter().map(|_| 0).collect(),
                sent_at,
            }),
            Verdict::No => Ok(Acquired::NotHeld),
            Verdict::Split | Verdict::TooFew | Verdict::Open => Err(ballot.error(&self.nodes)),
        };
        self.follow(ballot.into_rest());
        answer
    }

    /// Asks all servers for locks that are free.
    pub(super) async fn take(
        &self,
        wanted: Wanted,
        waits: bool,
        patience: Duration,
    ) -> Result<Acquired, StoreError> {
        let sent_at = self.clock.now();
        let until = until(patience, wanted.lease);
        let lead = lead(&self.nodes);
        let mut ballot = self.asked(&wanted, |server| waits && server == lead);
        let mut tries = if waits { TRIES } else { TRIES_AT_ONCE };
        let mut may_give_way = true;
        let mut pause = PAUSE;
        loop {
            let verdict = self.decided(&mut ballot, lead, until).await;
            let is_late = Instant::now() + pause >= until;
            match verdict {
                Verdict::Yes => match word_of(&ballot, lead) {
                    Lead::SaysNo(claim) if may_give_way => {
                        may_give_way = false;
                        if !self.taken_back(votes_of(&wanted, &ballot)).await
                            || !self.nobody_comes(&wanted.claims[claim].key, until).await
                        {
                            return self.refused(&wanted, waits, ballot, sent_at).await;
                        }
                        self.follow(ballot.into_rest());
                        ballot = self.asked(&wanted, |server| waits && server == lead);
                        continue;
                    }
                    Lead::SaysNo(_) | Lead::Agrees => {
                        return self.granted(wanted, ballot, sent_at, until).await;
                    }
                    Lead::HandsOver => return self.refused(&wanted, waits, ballot, sent_at).await,
                },
                Verdict::TooFew | Verdict::Open => {
                    let error = ballot.error(&self.nodes);
                    self.follow(ballot.into_rest());
                    return Err(error);
                }
                Verdict::No | Verdict::Split => {}
            }
            let has_lead = matches!(ballot.vote(lead), Some(Ok(answer)) if is_granted(answer));
            if !has_lead || tries == 0 || is_late {
                return self.refused(&wanted, waits, ballot, sent_at).await;
            }
            tries -= 1;
            pause_for(&mut pause).await;
            let refused = ballot.answers().filter(|(_, answer)| !is_granted(answer));
            let refused: Vec<usize> = refused.map(|(server, _)| server).collect();
            for server in refused {
                ballot.ask(server, self.nodes[server].acquire(&wanted, false, None));
            }
        }
    }

    /// Waits for the verdict. When it is there, servers that answer as a rule are waited for a little:
    /// for the lead, because it knows who comes first; after a refusal for all, because what they grant
    /// is to be given back.
    async fn decided(&self, ballot: &mut Ballot<Acquired>, lead: usize, until: Instant) -> Verdict {
        let started = Instant::now();
        let mut linger = None;
        loop {
            let verdict = ballot.tally(is_granted).verdict();
            let waited_for = |server: usize| match verdict {
                Verdict::Open => true,
                Verdict::Yes => server == lead && !self.nodes[server].health.is_failing(),
                Verdict::No | Verdict::Split => !self.nodes[server].health.is_failing(),
                Verdict::TooFew => false,
            };
            if !ballot.pending().any(waited_for) {
                return verdict;
            }
            let limit = match verdict {
                Verdict::Open => until,
                _ => *linger.get_or_insert_with(|| until.min(linger_since(started))),
            };
            if !ballot.next(limit).await {
                let silent: Vec<usize> = ballot
                    .pending()
                    .filter(|server| waited_for(*server))
                    .collect();
                for server in silent {
                    self.nodes[server].health.fails();
                    if verdict == Verdict::Open {
                        ballot.set(server, Err(StoreError::silent()));
                    }
                }
                return ballot.tally(is_granted).verdict();
            }
        }
    }

    /// Whether for a while nobody takes a lock that the lead says is another's.
    async fn nobody_comes(&self, key: &Key, until: Instant) -> bool {
        let mut pause = PAUSE;
        for _ in 0..LOOKS {
            pause_for(&mut pause).await;
            if Instant::now() >= until || self.has_holder(key, until).await {
                return false;
            }
        }
        true
    }

    async fn granted(
        &self,
        wanted: Wanted,
        ballot: Ballot<Acquired>,
        sent_at: Time,
        until: Instant,
    ) -> Result<Acquired, StoreError> {
        let tokens = Tokens::of(&ballot, wanted.claims.len());
        let agreed = self.agree(&wanted, &tokens, until).await;
        self.raise_late(wanted, &tokens, ballot.into_rest());
        agreed?;
        Ok(Acquired::Granted {
            tokens: tokens.highest,
            sent_at,
        })
    }

    /// Gives back what a minority granted, and stands in line if so wished.
    async fn refused(
        &self,
        wanted: &Wanted,
        waits: bool,
        mut ballot: Ballot<Acquired>,
        sent_at: Time,
    ) -> Result<Acquired, StoreError> {
        // Once more, if that was done before: what is not held is not given back.
        let spoilt = !self.taken_back(votes_of(wanted, &ballot)).await;
        let in_line = match in_line(&ballot) {
            Some(server) => Some(server),
            None if waits && !spoilt => self.stand_in_line(wanted, &mut ballot).await,
            None => None,
        };
        if in_line.is_some() {
            self.stood.notify_one();
        }
        let answer = refusal(wanted, &ballot, in_line, sent_at, spoilt);
        self.follow(ballot.into_rest());
        Ok(answer)
    }

    /// Has servers take back what they granted; answers whether all have. Who asks again as the same
    /// owner must not be overtaken by that.
    async fn taken_back(&self, granted: Vec<(usize, Given)>) -> bool {
        if granted.is_empty() {
            return true;
        }
        let taken_back = granted.into_iter().map(|(server, given)| {
            let node = Arc::clone(&self.nodes[server]);
            async move { node.release_within(&given, TAKE_BACK).await }
        });
        let votes = timeout(TAKE_BACK * 2, join_all(taken_back)).await;
        votes.is_ok_and(|votes| votes.iter().all(Result::is_ok))
    }

    /// Stands in line where the lock is taken, if the lead is not such a place. Answers where.
    async fn stand_in_line(&self, wanted: &Wanted, ballot: &mut Ballot<Acquired>) -> Option<usize> {
        let refused = ballot.answers().filter(|(_, answer)| !is_granted(answer));
        let well = refused.filter(|(server, _)| self.nodes[*server].is_well());
        let places: Vec<usize> = well.map(|(server, _)| server).take(2).collect();
        for server in places {
            let until = Instant::now() + LONGEST_LINGER;
            let asked = self.nodes[server].acquire(wanted, true, None);
            let Some((_, vote)) = shortly(until, asked).await else {
                self.nodes[server].health.fails();
                continue;
            };
            let free = matches!(&vote, Ok(answer) if is_granted(answer));
            ballot.set(server, vote);
            if free {
                for claim in &*wanted.claims {
                    (self.listener)(News::AskAgain {
                        key: claim.key.clone(),
                        owner: claim.owner,
                        after: PAUSE,
                    });
                }
                return Some(server);
            }
            if in_line(ballot).is_some() {
                return Some(server);
            }
        }
        None
    }
}

/// What the lead says where a majority grants the lock.
enum Lead {
    Agrees,
    /// It has handed the lock to whoever was first in line, who is about to ask the others for it: others
    /// do not overtake.
    HandsOver,
    /// Another has it, who may have been told so just now, and be asking the others.
    SaysNo(usize),
}

fn word_of(ballot: &Ballot<Acquired>, lead: usize) -> Lead {
    match ballot.vote(lead) {
        Some(Ok(Acquired::Held { ttl: Some(ttl), .. })) if *ttl <= GRACE => Lead::HandsOver,
        Some(Ok(Acquired::Held { claim, .. })) => Lead::SaysNo(*claim),
        _ => Lead::Agrees,
    }
}

/// Pauses, for about twice as long the next time.
async fn pause_for(pause: &mut Duration) {
    sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
    *pause *= 2;
}

/// What servers granted.
fn votes_of(wanted: &Wanted, ballot: &Ballot<Acquired>) -> Vec<(usize, Given)> {
    let mut votes = Vec::new();
    for (server, answer) in ballot.answers() {
        if let Acquired::Granted { tokens, .. } = answer {
            let claims = wanted.claims.iter().zip(tokens);
            votes.extend(claims.map(|(claim, token)| (server, Given::back(claim, *token))));
        }
    }
    votes
}

/// Where the owner stands in line.
fn in_line(ballot: &Ballot<Acquired>) -> Option<usize> {
    let mut answers = ballot.answers();
    answers.find_map(|(server, answer)| match answer {
        Acquired::Held { in_line: true, .. } => Some(server),
        _ => None,
    })
}

/// What whoever asked is told, from what the servers said that refused.
fn refusal(
    wanted: &Wanted,
    ballot: &Ballot<Acquired>,
    line: Option<usize>,
    at: Time,
    is_spoilt: bool,
) -> Acquired {
    let (mut claim, mut ttl) = (0, None);
    let mut fences: Few<u64> = wanted.claims.iter().map(|_| 0).collect();
    for (server, answer) in ballot.answers() {
        if let Acquired::Held {
            claim: taken,
            ttl: left,
            fences: known,
            ..
        } = answer
        {
            for (fence, known) in fences.iter_mut().zip(known) {
                *fence = (*fence).max(*known);
            }
            if ttl.is_none() || line == Some(server) {
                (claim, ttl) = (*taken, *left);
            }
        }
    }
    Acquired::Held {
        claim,
        ttl,
        in_line: line.is_some(),
        sent_at: at,
        fences,
        spoilt: is_spoilt,
    }
}
