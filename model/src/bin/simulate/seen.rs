//! Which transitions of the machine a run has taken.

use std::collections::BTreeMap;

use crate::{
    engine::machine::{By, Event, Input, Machine, Owner, Ownership, Phase},
    error::LostCause,
    key::Key,
};

/// The changes of a phase that the machine allows.
const LEGAL: [(&str, &str); 10] = [
    ("requested", "held"),
    ("requested", "ended"),
    ("held", "requested"),
    ("held", "retained"),
    ("held", "lost"),
    ("held", "ended"),
    ("retained", "requested"),
    ("retained", "lost"),
    ("retained", "ended"),
    ("requested", "none"),
];

/// A phase of an ownership; `None` if it does not exist.
type Was = Option<Phase>;

#[derive(Default)]
pub(crate) struct Seen {
    /// How often an ownership of the key of an input changed its phase, or kept it: by the kind of input.
    transitions: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    began: BTreeMap<&'static str, u64>,
    lost: BTreeMap<String, u64>,
    /// The ownerships before the present input.
    before: Vec<(Key, Owner, Was)>,
    kind: &'static str,
}

fn name(phase: Was) -> &'static str {
    match phase {
        None => "none",
        Some(Phase::Requested) => "requested",
        Some(Phase::Held) => "held",
        Some(Phase::Retained) => "retained",
        Some(Phase::Lost) => "lost",
        Some(Phase::Ended) => "ended",
    }
}

fn kind(input: &Input) -> &'static str {
    match input {
        Input::Acquire { .. } => "acquire",
        Input::Leave { call: Some(_), .. } => "release",
        Input::Leave { call: None, .. } => "drop",
        Input::Poll(_) => "poll",
        Input::Cancel(_) => "cancel",
        Input::Reply(..) => "reply",
        Input::Event(_, _, event) => match event {
            Event::Renewed { .. } => "renewed",
            Event::Granted { .. } => "granted",
            Event::Wanted => "wanted",
            Event::Retry(_) => "retry",
            Event::Changed => "changed",
            Event::Missed { .. } => "missed",
            Event::Revoke { at_once: false, .. } => "ask",
            Event::Revoke { at_once: true, .. } => "force",
        },
        Input::Time => "time",
        Input::Drain => "drain",
        Input::Close => "close",
        Input::End => "end",
    }
}

impl Seen {
    pub(crate) fn before(&mut self, machine: &Machine, input: &Input) {
        self.kind = kind(input);
        self.before.clear();
        for slot in machine.slots() {
            let own = slot
                .current()
                .map(|own| (slot.key.clone(), own.owner, Some(own.phase())));
            self.before.extend(own);
        }
    }

    pub(crate) fn after(&mut self, machine: &Machine) {
        for (key, owner, was) in self.before.drain(..) {
            let is = machine.own(&key, owner).map(Ownership::phase);
            *self
                .transitions
                .entry((name(was), self.kind, name(is)))
                .or_default() += 1;
        }
    }

    pub(crate) fn began(&mut self, by: By) {
        let by = match by {
            By::Local => "local",
            By::Release => "release",
            By::Message => "message",
            By::Timer => "timer",
        };
        *self.began.entry(by).or_default() += 1;
    }

    pub(crate) fn lost(&mut self, cause: LostCause) {
        *self.lost.entry(format!("{cause:?}")).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (transition, times) in other.transitions {
            *self.transitions.entry(transition).or_default() += times;
        }
        for (by, times) in other.began {
            *self.began.entry(by).or_default() += times;
        }
        for (cause, times) in other.lost {
            *self.lost.entry(cause).or_default() += times;
        }
    }

    /// Prints what was seen, and which changes of a phase were not.
    pub(crate) fn print(&self) {
        for ((was, kind, is), times) in &self.transitions {
            println!("{was:>9} -- {kind:<8} -> {is:<9} {times:>12}");
        }
        println!("holds began by {:?}", self.began);
        println!("holds were lost by {:?}", self.lost);
        for (from, to) in LEGAL {
            if !self
                .transitions
                .keys()
                .any(|(was, _, is)| (*was, *is) == (from, to))
            {
                println!("not seen: {from} to {to}");
            }
        }
    }
}
