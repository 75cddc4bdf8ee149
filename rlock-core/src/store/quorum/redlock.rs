//! Redlock: what a majority of independent members grants is granted.
//!
//! A request goes to all members at once. A lease counts from before its request was sent, so the validity that is
//! left when a majority has granted it is the lease less the time that passed and the drift of clocks. What a
//! minority granted is rolled back.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use tokio::time::{Instant, sleep};

use super::{
    QuorumStore,
    call::{QuorumCall, Wait, is_granted, refusing},
    queueing::{PAUSE, has_handed_off, lead, queued_at, refusal},
    verdict::Verdict,
};
use crate::{
    lease::Time,
    store::{
        AcquireRequest, Acquired, ReleaseRequest, Renewal, RenewalOutcome, Renewed, StoreError,
    },
};

/// The last pause of an owner that has the lead's vote. The pauses double from [`PAUSE`] on.
const LAST_PAUSE: Duration = Duration::from_millis(16);
/// About how long a queued owner waits before it asks again, if the lead refused and other members granted. The other
/// owners may have rolled back, too, so that no release follows.
const AFTER_SPLIT: Duration = Duration::from_millis(100);
/// The time-out of a rollback.
const ROLLBACK: Duration = Duration::from_millis(250);

/// Returns whether the lead refused and others granted, although the lead has not handed the lock off.
fn is_split(call: &QuorumCall<Acquired>, lead: usize) -> bool {
    let any_granted = call.oks().any(|(_, reply)| is_granted(reply));
    any_granted && refusing(call).contains(&lead) && !has_handed_off(call, lead)
}

async fn collect_votes(call: &mut QuorumCall<Acquired>, lead: usize, until: Instant) -> Verdict {
    call.collect(until, |call| match call.verdict(is_granted) {
        Verdict::Open => call.wait_for_majority(),
        // The lead knows who comes first.
        Verdict::Yes if call.awaits(lead) => Wait::Late,
        // The rollback needs to know what the others grant.
        Verdict::No | Verdict::Split if call.awaits_any() => Wait::Late,
        _ => Wait::Over,
    })
    .await;
    call.mark_silent();
    call.verdict(is_granted)
}

/// Returns the time until which replies decide about a lease. Later replies leave little of the lease.
fn decisive_until(timeout: Duration, lease: Duration) -> Instant {
    const SHORTEST: Duration = Duration::from_millis(20);
    Instant::now() + timeout.min((lease / 8).max(SHORTEST))
}

impl QuorumStore {
    pub(super) async fn acquire_free(
        &self,
        request: AcquireRequest,
        timeout: Duration,
    ) -> Result<Acquired, StoreError> {
        let queue_by = request.waits.then(|| Instant::now() + timeout);
        let sent_at = self.clock.now();
        let until = decisive_until(timeout, request.lease);
        let lead = lead(&self.members);
        let ask = || {
            QuorumCall::to_all(&self.members, |member, terms| {
                let queues = request.waits && member.number == lead;
                member.acquire(request.clone(), queues, terms)
            })
        };
        let mut call = ask();
        let (mut pause, mut gives_way) = (PAUSE, true);
        let rolled_back = loop {
            match collect_votes(&mut call, lead, until).await {
                Verdict::Yes if has_handed_off(&call, lead) => {
                    break self.rollback(&request, &call).await;
                }
                // The owner that the lead knows may be asking the others, unless it has left.
                Verdict::Yes if gives_way && refusing(&call).contains(&lead) => {
                    gives_way = false;
                    let rolled_back = self.rollback(&request, &call).await;
                    if !rolled_back || Instant::now() + LAST_PAUSE >= until {
                        break rolled_back;
                    }
                    sleep(LAST_PAUSE).await;
                    self.detach(call);
                    call = ask();
                    continue;
                }
                Verdict::Yes => return self.granted(&request, call, sent_at, until).await,
                Verdict::No | Verdict::Split => {}
                Verdict::TooFew | Verdict::Open => {
                    let error = call.error();
                    self.detach(call);
                    return Err(error);
                }
            }
            let has_lead = matches!(call.reply(lead), Some(Ok(reply)) if is_granted(reply));
            if !has_lead || pause > LAST_PAUSE || Instant::now() + pause >= until {
                break self.rollback(&request, &call).await;
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause *= 2;
            for member in refusing(&call) {
                call.ask(member, |member, terms| {
                    member.acquire(request.clone(), false, terms)
                });
            }
        };
        let place = match (queued_at(&call), queue_by) {
            (None, Some(by)) if rolled_back => self.join_queue(&request, &mut call, by).await,
            (place, _) => place,
        };
        if place.is_some() {
            self.queued.notify_one();
            if is_split(&call, lead) {
                self.ask_again(&request, AFTER_SPLIT.mul_f64(0.5 + fastrand::f64()));
            }
        }
        // The engine releases a queued owner on all members if that does not ask again. It has to release any other owner
        // if a late reply may grant the lock.
        let retired = !rolled_back || place.is_none() && call.is_in_doubt();
        let refusal = refusal(&request, &call, place, sent_at, retired);
        self.detach(call);
        Ok(refusal)
    }

    async fn granted(
        &self,
        request: &AcquireRequest,
        call: QuorumCall<Acquired>,
        sent_at: Time,
        until: Instant,
    ) -> Result<Acquired, StoreError> {
        let is_wanted = |reply: &_| matches!(reply, Acquired::Granted { wanted: true, .. });
        let wanted = call.oks().any(|(_, reply)| is_wanted(reply));
        Ok(Acquired::Granted {
            fences: self.agree_on_tokens(request, call, until).await?,
            wanted,
            sent_at,
        })
    }

    /// Releases the grants of the members. Returns whether all members replied: no rollback may be in flight when the
    /// same owner asks again.
    fn rollback(
        &self,
        request: &AcquireRequest,
        call: &QuorumCall<Acquired>,
    ) -> impl Future<Output = bool> + use<> {
        let mut releases = Vec::new();
        for (member, reply) in call.oks() {
            if !is_granted(reply) {
                continue;
            }
            for claim in &*request.claims {
                let member = Arc::clone(&self.members[member]);
                let release = ReleaseRequest::whole(claim);
                releases.push(async move { member.release(&release, ROLLBACK).await });
            }
        }
        join_all(releases).map(|replies| replies.iter().all(Result::is_ok))
    }

    /// Counts a further entry of an owner.
    pub(super) async fn enter(
        &self,
        request: AcquireRequest,
        timeout: Duration,
    ) -> Result<Acquired, StoreError> {
        let sent_at = self.clock.now();
        let until = decisive_until(timeout, request.lease);
        let mut call = QuorumCall::to_all(&self.members, |member, terms| {
            member.acquire(request.clone(), false, terms)
        });
        let outcome = match call.decide_by(until, is_granted).await {
            Verdict::Yes => Ok(Acquired::Granted {
                // The tokens of the hold stand.
                fences: request.claims.iter().map(|_| 0).collect(),
                wanted: false,
                sent_at,
            }),
            Verdict::No => Ok(Acquired::NotOwner),
            Verdict::Split | Verdict::TooFew | Verdict::Open => Err(call.error()),
        };
        self.detach(call);
        outcome
    }

    pub(super) async fn renew_all(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        timeout: Duration,
        silence: Duration,
    ) -> Result<Renewed, StoreError> {
        let sent_at = self.clock.now();
        let renewals: Arc<[Renewal]> = renewals.into();
        let mut call = QuorumCall::to_all(&self.members, |member, terms| {
            member.renew(Arc::clone(&renewals), lease, (timeout, silence), terms)
        });
        let holds = 0..renewals.len();
        let is_open = |call: &_| {
            holds
                .clone()
                .any(|hold| verdict_on(call, hold) == Verdict::Open)
        };
        // Holds that are decided do not wait for long for those that are not.
        call.collect(Instant::now() + timeout, |call| match is_open(call) {
            false if !call.awaits_any() => Wait::Over,
            _ if !call.has_majority() => Wait::Full,
            false => Wait::Late,
            true => Wait::Decisive,
        })
        .await;
        let renewed = if call.has_majority() {
            let kept = holds.map(|hold| outcome_of(&call, hold)).collect();
            Ok(Renewed { kept, sent_at })
        } else {
            Err(call.error())
        };
        self.detach(call);
        renewed
    }
}

/// Returns the verdict on whether the members renewed the whole lease of a hold.
fn verdict_on(call: &QuorumCall<Renewed>, hold: usize) -> Verdict {
    call.verdict(|renewed| matches!(renewed.kept.get(hold), Some(RenewalOutcome::Held { .. })))
}

fn outcome_of(call: &QuorumCall<Renewed>, hold: usize) -> RenewalOutcome {
    match verdict_on(call, hold) {
        Verdict::Yes => RenewalOutcome::Held {
            wanted: call.oks().any(|(_, renewed)| {
                let kept = renewed.kept.get(hold);
                matches!(kept, Some(RenewalOutcome::Held { wanted: true, .. }))
            }),
            fence: 0,
        },
        Verdict::No => RenewalOutcome::Lost,
        Verdict::Split | Verdict::TooFew | Verdict::Open => RenewalOutcome::Unknown,
    }
}
