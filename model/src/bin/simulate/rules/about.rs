//! Remembers the state of a machine before an input, for the rules that compare it with the state afterwards.

use super::joins::wanted_holds;
use crate::{
    few::{Few, one},
    key::Key,
    lease::Time,
    machine::{Event, Input, Machine, Owner, Ownership, Phase, Reply},
    store::{Acquired, RenewalOutcome},
};

#[derive(Default)]
pub(crate) struct About {
    pub(super) owner: Option<(Key, Owner)>,
    /// The owners to which the store has granted their locks.
    pub(super) granted: Few<(Key, Owner)>,
    /// Whether the store has granted a lock to an owner that has gone.
    pub(super) is_gone: bool,
    /// The current ownerships before the input.
    pub(super) phases: Vec<(Key, Owner, Phase)>,
    /// The holds whose lease or `max_hold` had ended before the input, with their tokens.
    pub(super) over: Vec<(Key, Owner, u64)>,
    /// The holds for which others wait, with their numbers of entries, before a call that may join them.
    pub(super) wanted_holds: Vec<(Key, Owner, u32)>,
    /// Whether a retained lock ends with its lease.
    pub(super) expires: bool,
    /// Whether the input says that others wait.
    pub(super) wanted: bool,
}

impl About {
    pub(super) fn of(machine: &Machine, input: &Input, now: Time) -> Self {
        let currents = machine
            .slots()
            .filter_map(|slot| Some((slot, slot.current()?)));
        let has_ended = |own: &Ownership| own.valid_until(now).is_err();
        let over = machine.slots().flat_map(|slot| {
            let owns = slot.ownerships().iter().filter(|own| has_ended(own));
            owns.filter_map(|own| Some((slot.key().clone(), own.owner, own.token()?)))
        });
        let mut about = Self {
            over: over.collect(),
            wanted_holds: wanted_holds(machine, input),
            ..Self::default()
        };
        for (slot, own) in currents {
            let is_past = own.phase() == Phase::Retained && own.rest(now).is_zero();
            about.expires |= is_past && *input == Input::Time;
            about
                .phases
                .push((slot.key().clone(), own.owner, own.phase()));
        }
        match input {
            Input::Event(key, Some(owner), event) => {
                about.owner = Some((key.clone(), *owner));
                about.is_gone = matches!(event, Event::Granted { .. } | Event::Retry { .. })
                    && machine.own(key, *owner).is_none();
                match event {
                    Event::Granted { .. } => about.granted = one((key.clone(), *owner)),
                    event => about.wanted = *event == Event::Wanted,
                }
            }
            Input::Renewed { renew, outcome, .. } => {
                about.owner = Some((renew.key.clone(), renew.owner));
                about.wanted = matches!(outcome, Some(RenewalOutcome::Held { wanted: true, .. }));
            }
            Input::Reply(request, Reply::Acquired(Acquired::Granted { .. })) => {
                let claims = request.claims.iter();
                about.granted = claims
                    .map(|claim| (claim.key.clone(), claim.owner))
                    .collect();
            }
            _ => {}
        }
        about
    }
}
