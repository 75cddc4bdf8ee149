//! Taking locks on a majority of the servers.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    QuorumStore, ballot::Ballot, line::lead, linger::Linger, node::Wanted, refuse::votes_of,
    tokens::Tokens, votes::Verdict,
};
use crate::{
    key::Key,
    lease::Time,
    store::{Acquired, GRACE, StoreError},
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
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// How long answers decide about a lease: later ones leave little of it.
fn until(patience: Duration, lease: Duration) -> Instant {
    const SHORTEST: Duration = Duration::from_millis(20);
    Instant::now() + patience.min((lease / 8).max(SHORTEST))
}

pub(super) fn is_granted(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Granted { .. })
}

impl QuorumStore {
    fn asked(&self, wanted: &Wanted, waits: impl Fn(usize) -> bool) -> Ballot<Acquired> {
        let mut ballot = self.ballot();
        let until_up = !self.is_up();
        for node in &*self.nodes {
            let request = node.acquire(wanted, waits(node.number), ballot.over(), until_up);
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
                wanted: false,
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
        let line_by = waits.then(|| Instant::now() + patience);
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
                            return self.refused(&wanted, line_by, ballot, sent_at).await;
                        }
                        self.follow(ballot.into_rest());
                        ballot = self.asked(&wanted, |server| waits && server == lead);
                        continue;
                    }
                    Lead::SaysNo(_) | Lead::Agrees => {
                        return self.granted(wanted, ballot, sent_at, until).await;
                    }
                    Lead::HandsOver => {
                        return self.refused(&wanted, line_by, ballot, sent_at).await;
                    }
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
                return self.refused(&wanted, line_by, ballot, sent_at).await;
            }
            tries -= 1;
            pause_for(&mut pause).await;
            let refused = ballot.answers().filter(|(_, answer)| !is_granted(answer));
            let refused: Vec<usize> = refused.map(|(server, _)| server).collect();
            for server in refused {
                let request = self.nodes[server].acquire(&wanted, false, ballot.over(), false);
                ballot.ask(server, request);
            }
        }
    }

    /// Waits for the verdict. When it is there, servers that answer as a rule are waited for a little:
    /// for the lead, because it knows who comes first; after a refusal for all, because what they grant
    /// is to be given back.
    async fn decided(&self, ballot: &mut Ballot<Acquired>, lead: usize, until: Instant) -> Verdict {
        let mut linger = Linger::new(until);
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
            // A majority that answered, and does not agree yet, may just be hearing of a release: asking
            // again is sooner than a server that stands still.
            let limit = match verdict {
                Verdict::Open if !ballot.has_majority() => until,
                _ => linger.over(),
            };
            if !ballot.next(limit).await {
                let silent: Vec<usize> = ballot
                    .pending()
                    .filter(|server| waited_for(*server))
                    .collect();
                for server in silent {
                    self.nodes[server].health.fails();
                    if verdict == Verdict::Open {
                        ballot.set(server, Err(self.nodes[server].why_silent()));
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
        let is_wanted = |(_, answer): (usize, &Acquired)| {
            matches!(answer, Acquired::Granted { wanted: true, .. })
        };
        let others_wait = ballot.answers().any(is_wanted);
        let agreed = self.agree(&wanted, &tokens, until).await;
        self.raise_late(wanted, &tokens, ballot.into_rest());
        agreed?;
        Ok(Acquired::Granted {
            tokens: tokens.highest,
            wanted: others_wait,
            sent_at,
        })
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
