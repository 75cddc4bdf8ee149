//! What the embedded store knows, and how each operation changes it.

mod lines;
#[cfg(test)]
mod look;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use uuid::Uuid;

use self::lines::Lines;
use super::Told;
use crate::{
    key::Key,
    lease::{Time, wall_clock_micros},
    owner::OwnerId,
    store::{
        Acquired, Claim, Entry, GRACE, Grant, KEPT, Kept, Listener, News, Next, Onward, Place,
        Release, Released, Renewal, Renewed, TokenBlock,
    },
};

/// How many ended holds are remembered, to answer a repeated release as the first one was.
const REMEMBERED_RELEASES: usize = 64;
/// Whoever was not heard of for this long may stand still.
const UNHEARD: Duration = Duration::from_millis(50);
/// Below this many locks, nobody looks for expired ones.
const SWEEP_FROM: usize = 64;

#[derive(Default)]
pub(super) struct State {
    locks: HashMap<Key, Lock>,
    /// The locks that the last sweep left; the next one is due at twice as many.
    swept: usize,
    last_token: u64,
    released: VecDeque<OwnerId>,
    lines: Lines,
    clients: HashMap<Uuid, Listener>,
    news: Vec<Told>,
}

struct Lock {
    owner: OwnerId,
    count: u32,
    token: u64,
    expires: Time,
    /// Given back, but to stay taken until it expires.
    kept: bool,
}

impl Lock {
    fn is_held_by(&self, owner: OwnerId) -> bool {
        self.owner == owner && !self.kept
    }
}

impl State {
    pub(super) fn join(&mut self, client: Uuid, listener: Listener) {
        self.clients.insert(client, listener);
    }

    /// Answers the listener, to be dropped where no lock is held.
    pub(super) fn leave(&mut self, client: Uuid) -> Option<Listener> {
        self.lines.leave_all(client);
        self.clients.remove(&client)
    }

    pub(super) fn take_news(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.news)
    }

    pub(super) fn acquire(
        &mut self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        now: Time,
    ) -> Acquired {
        let mut taken = None;
        for (at, claim) in claims.iter().enumerate() {
            match self.live(&claim.key, now) {
                None if count > 1 => return Acquired::NotHeld,
                None => {}
                Some(lock) if lock.is_held_by(claim.owner) => {}
                Some(_) => {
                    taken = Some(at);
                    break;
                }
            }
        }
        let was_taken = taken.is_some();
        if !was_taken {
            // Where a lock ended by its lease, those in line come first.
            taken = claims.iter().position(|Claim { key, owner }| {
                self.live(key, now).is_none() && self.hand_off(key, Some(*owner), waits, now)
            });
        }
        if let Some(taken) = taken {
            if let [_, _, ..] = claims
                && count == 1
            {
                self.give_up(claims, taken, now);
            }
            let refusal = self.refuse(claims, taken, waits, now);
            if was_taken && waits {
                self.tell_wanted(&claims[taken], now);
            }
            return refusal;
        }
        let tokens = claims
            .iter()
            .map(|claim| self.grant(&claim.key, claim.owner, lease, count, now))
            .collect();
        Acquired::Granted {
            tokens,
            wanted: claims
                .iter()
                .any(|claim| self.lines.first(&claim.key).is_some()),
            sent_at: now,
        }
    }

    /// Of several locks one is taken: what is kept of the others since it stood in line for them, and
    /// what is free as far as was looked, goes to whoever is next.
    fn give_up(&mut self, claims: &[Claim], taken: usize, now: Time) {
        for (at, Claim { key, owner }) in claims.iter().enumerate() {
            if self.held_by(key, *owner, now).is_some() {
                self.locks.remove(key);
                self.hand_off(key, None, false, now);
            } else if at < taken && self.live(key, now).is_none() {
                self.hand_off(key, None, false, now);
            }
        }
    }

    fn refuse(&mut self, claims: &[Claim], taken: usize, waits: bool, now: Time) -> Acquired {
        let Claim { key, owner } = &claims[taken];
        let ttl = self.live(key, now).map(|lock| lock.expires.since(now));
        if waits {
            self.lines.stand(key, *owner, now);
        }
        let last = TokenBlock {
            first: self.last_token,
            size: 1,
        };
        let fence = last.fence();
        Acquired::Held {
            claim: taken,
            ttl: ttl.or(Some(Duration::ZERO)),
            in_line: waits.then(|| Place {
                first: self.lines.first(key) == Some(*owner),
                watched: true,
            }),
            sent_at: now,
            fences: claims.iter().map(|_| fence).collect(),
            spoilt: false,
        }
    }

    pub(super) fn release(&mut self, release: &Release<'_>, now: Time) -> Released {
        let Release {
            key,
            owner,
            count,
            keep,
            next,
            token: _,
        } = *release;
        let Some(lock) = self.held_by(key, owner, now) else {
            if count > 0 {
                return Released::NotHeld;
            }
            self.lines.leave(key, owner);
            return match self.what_became_of(key, next, now) {
                Onward::Unknown if !self.released.contains(&owner) => Released::NotHeld,
                // A waiter that it named is known: so an earlier copy was done.
                onward => Released::Done(onward),
            };
        };
        if count > 0 {
            lock.count = count;
            return Released::Done(Onward::Unknown);
        }
        if keep.is_zero() {
            self.locks.remove(key);
        } else {
            lock.kept = true;
            lock.count = 1;
            lock.expires = now + keep;
        }
        if self.released.len() == REMEMBERED_RELEASES {
            self.released.pop_front();
        }
        self.released.push_back(owner);
        if !keep.is_zero() {
            self.tell_first(key, keep);
            return Released::Done(Onward::Unknown);
        }
        Released::Done(self.pass_on(key, next, now))
    }

    /// Gives a lock that has just become free to whoever is next.
    fn pass_on(&mut self, key: &Key, next: Option<Next>, now: Time) -> Onward {
        let handed_off = self.hand_off(key, None, next.is_some(), now);
        match next {
            None => Onward::Unknown,
            Some(next) if handed_off => {
                self.lines.stand(key, next.owner, now);
                Onward::InLine {
                    since: now,
                    place: Place::first(true),
                }
            }
            Some(next) => {
                let token = self.grant(key, next.owner, next.lease, 1, now);
                Onward::Granted(Grant {
                    block: TokenBlock::granted(token),
                    since: now,
                    ttl: next.lease,
                    wanted: false,
                })
            }
        }
    }

    /// The same answer again.
    fn what_became_of(&mut self, key: &Key, next: Option<Next>, now: Time) -> Onward {
        let Some(next) = next else {
            return Onward::Unknown;
        };
        if let Some(lock) = self.held_by(key, next.owner, now) {
            lock.expires = lock.expires.max(now + next.lease);
            return Onward::Granted(Grant {
                block: TokenBlock::granted(lock.token),
                since: now,
                ttl: next.lease,
                wanted: false,
            });
        }
        if self.lines.has(key, next.owner) {
            Onward::InLine {
                since: now,
                place: Place::first(true),
            }
        } else {
            Onward::Unknown
        }
    }

    pub(super) fn renew(&mut self, batch: &[Renewal], now: Time) -> Renewed {
        let extend = |renewal: &Renewal| {
            let lock = self.held_by(&renewal.key, renewal.owner, now);
            let held = lock.map(|lock| lock.expires = lock.expires.max(now + renewal.lease));
            let wanted = self.lines.first(&renewal.key).is_some();
            Kept::by_one(held.is_some(), wanted)
        };
        Renewed {
            kept: batch.iter().map(extend).collect(),
            sent_at: now,
        }
    }

    pub(super) fn inspect(&mut self, key: &Key, now: Time) -> Option<Entry> {
        self.live(key, now).map(|lock| Entry {
            owner: if lock.kept {
                KEPT.to_owned()
            } else {
                lock.owner.to_string()
            },
            count: lock.count,
            ttl: Some(lock.expires.since(now)),
            token: Some(lock.token),
        })
    }

    /// Takes a lock from its holder, notifies the holder, and hands the lock to the first waiter.
    /// Returns whether the lock was held.
    pub(super) fn revoke(&mut self, key: &Key, now: Time) -> bool {
        let Some(&mut Lock { owner, .. }) = self.live(key, now) else {
            return false;
        };
        let holder = self.clients.get(&owner.client()).cloned();
        self.locks.remove(key);
        if let Some(listener) = holder {
            self.news.push((listener, News::Changed(key.clone())));
        }
        self.hand_off(key, None, false, now);
        true
    }

    /// The lock on `key`, unless it has expired.
    fn live(&mut self, key: &Key, now: Time) -> Option<&mut Lock> {
        if self.locks.get(key).is_some_and(|lock| lock.expires <= now) {
            self.locks.remove(key);
        }
        self.locks.get_mut(key)
    }

    fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut Lock> {
        self.live(key, now).filter(|lock| lock.is_held_by(owner))
    }

    /// Gives a lock that is free, or the owner's own.
    fn grant(&mut self, key: &Key, owner: OwnerId, ttl: Duration, count: u32, now: Time) -> u64 {
        if let Some(lock) = self.live(key, now) {
            lock.count = count;
            lock.expires = lock.expires.max(now + ttl);
            return lock.token;
        }
        self.sweep(now);
        self.last_token = self.last_token.max(wall_clock_micros());
        let token = self.reserve(TokenBlock::granted(0).size);
        let lock = Lock {
            owner,
            count,
            token,
            expires: now + ttl,
            kept: false,
        };
        self.locks.insert(key.clone(), lock);
        token
    }

    /// Gives a free lock to the first in line whose client is still there; `asks` is told by the
    /// answer to its call, and `joins` says whether another owner joins the line after this. Says whether there was
    /// one.
    fn hand_off(&mut self, key: &Key, asks: Option<OwnerId>, joins: bool, now: Time) -> bool {
        while let Some((owner, since)) = self.lines.take_first(key) {
            let Some(listener) = self.clients.get(&owner.client()).cloned() else {
                continue;
            };
            if asks == Some(owner) {
                return false;
            }
            let token = self.grant(key, owner, GRACE, 1, now);
            let news = News::Granted {
                key: key.clone(),
                owner,
                block: TokenBlock::granted(token),
                ttl: GRACE,
                wanted: joins || self.lines.first(key).is_some(),
            };
            self.news.push((listener, news));
            // Its executor may stand still since: the one behind it looks after that, and the last in
            // line, which was heard of last.
            if now.since(since) > UNHEARD {
                self.tell_first(key, GRACE);
                self.tell_last(key, GRACE);
            }
            return true;
        }
        false
    }

    /// Reserves so many tokens and returns the first.
    fn reserve(&mut self, tokens: u64) -> u64 {
        let first = self.last_token + 1;
        self.last_token += tokens;
        first
    }

    /// Reserves further tokens for an owner that holds the lock.
    pub(super) fn extend(&mut self, claim: &Claim, tokens: u64, now: Time) -> Option<TokenBlock> {
        self.held_by(&claim.key, claim.owner, now)?;
        if tokens < 2 {
            // As on a server, where one alone would pass for the mark of a release.
            return Some(TokenBlock::EMPTY);
        }
        let block = TokenBlock {
            first: self.reserve(tokens),
            size: tokens,
        };
        if let Some(lock) = self.held_by(&claim.key, claim.owner, now) {
            lock.token = block.fence();
        }
        Some(block)
    }

    /// Tells the present owner that its lock is wanted, if this claimant is the first in line.
    fn tell_wanted(&mut self, Claim { key, owner }: &Claim, now: Time) {
        if self.lines.first(key) != Some(*owner) {
            return;
        }
        let holder = self.live(key, now).filter(|lock| !lock.kept);
        let Some(owner) = holder.map(|lock| lock.owner) else {
            return;
        };
        if let Some(listener) = self.clients.get(&owner.client()) {
            let key = key.clone();
            self.news
                .push((listener.clone(), News::Wanted { key, owner }));
        }
    }

    /// Tells the first in line when to ask again.
    fn tell_first(&mut self, key: &Key, after: Duration) {
        self.tell(key, self.lines.first(key), after);
    }

    /// Tells the last in line as well, if it is not the first.
    fn tell_last(&mut self, key: &Key, after: Duration) {
        self.tell(key, self.lines.last_behind(key), after);
    }

    fn tell(&mut self, key: &Key, owner: Option<OwnerId>, after: Duration) {
        let Some(owner) = owner else {
            return;
        };
        if let Some(listener) = self.clients.get(&owner.client()) {
            let news = News::AskAgain {
                key: key.clone(),
                owner,
                after,
            };
            self.news.push((listener.clone(), news));
        }
    }

    /// Forgets expired locks, seldom enough to cost little for each new one.
    fn sweep(&mut self, now: Time) {
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires > now);
            self.swept = self.locks.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn owner(sequence: u64) -> OwnerId {
        OwnerId::new(Uuid::nil(), sequence)
    }

    fn claim(key: &str, sequence: u64) -> [Claim; 1] {
        [Claim {
            key: Key::parse(key).expect("valid"),
            owner: owner(sequence),
        }]
    }

    #[test]
    fn a_repeated_release_answers_what_the_first_one_answered() {
        let key = Key::parse("k").expect("valid");
        let mut state = State::default();
        let release = |sequence| Release {
            key: &key,
            owner: owner(sequence),
            token: 0,
            count: 0,
            keep: Duration::ZERO,
            next: None,
        };
        let released = Released::Done(Onward::Unknown);
        let now = Time::from(LEASE);
        state.acquire(&claim("k", 1), LEASE, 1, false, now);
        assert_eq!(state.release(&release(1), now), released);
        state.acquire(&claim("k", 2), LEASE, 1, false, now);
        assert_eq!(state.release(&release(1), now), released);
        assert_eq!(state.release(&release(3), now), Released::NotHeld);
        assert!(state.held_by(&key, owner(2), now).is_some());
    }

    #[test]
    fn the_next_and_the_last_in_line_look_after_one_that_was_unheard_of() {
        for (waited, looks) in [(UNHEARD, vec![]), (UNHEARD * 2, vec![2, 4])] {
            let mut state = State::default();
            let clients: Vec<_> = (0..5).map(Uuid::from_u128).collect();
            let asks = |n: usize| {
                [Claim {
                    key: Key::parse("k").expect("valid"),
                    owner: OwnerId::new(clients[n], 1),
                }]
            };
            let now = Time::from(LEASE);
            for (n, client) in clients.iter().enumerate() {
                state.join(*client, Arc::new(|_| {}));
                state.acquire(&asks(n), LEASE, 1, true, now);
            }
            let [held] = asks(0);
            let release = Release {
                key: &held.key,
                owner: held.owner,
                token: 0,
                count: 0,
                keep: Duration::ZERO,
                next: None,
            };
            state.release(&release, now + waited);
            let told = state.take_news().into_iter();
            let told = told.filter_map(|(_, news)| {
                let News::AskAgain { owner, after, .. } = news else {
                    return None;
                };
                Some((owner.client(), after))
            });
            let looks: Vec<_> = looks.into_iter().map(|n| (clients[n], GRACE)).collect();
            assert_eq!(told.collect::<Vec<_>>(), looks, "after {waited:?}");
        }
    }

    #[test]
    fn expired_locks_do_not_pile_up() {
        let mut state = State::default();
        for n in 0..10_000 {
            state.acquire(
                &claim(&format!("k:{n}"), n),
                Duration::ZERO,
                1,
                false,
                Time::from(LEASE),
            );
        }
        assert!(state.locks.len() <= 2 * SWEEP_FROM, "{}", state.locks.len());
    }
}
