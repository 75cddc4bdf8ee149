//! The complete protocol: clients, which are the machine that ships, a server, a resource with a fence, and a network that
//! loses, repeats and reorders messages.

mod client;
mod config;
mod fairness;
mod network;
mod properties;
mod resource;
mod seen;
mod state;
mod steps;
mod tokens;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use stateright::{Model, Property};

use self::state::Rule;
pub use self::{
    config::{Caller, Config, Faults, Time},
    state::State,
    steps::Action,
};

/// The protocol, in one configuration.
#[derive(Clone, Debug)]
pub struct Protocol {
    config: Config,
    occurred: Arc<seen::Occurred>,
}

impl Protocol {
    /// Creates a model with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            occurred: Arc::default(),
        }
    }

    /// Returns the situations that must occur, and have not occurred in any step so far.
    #[must_use]
    pub fn unseen(&self) -> Vec<&'static str> {
        let situations = properties::situations(&self.config).into_iter();
        let unseen = situations.filter(|situation| !self.occurred.has(*situation));
        unseen.map(seen::Situation::text).collect()
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_none() {
            steps::possible(&self.config, state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.seen = seen::Seen::default();
        // The machine checks itself after each input.
        let take = AssertUnwindSafe(|| steps::take(&self.config, &mut next, action));
        if catch_unwind(take).is_err() {
            next.breaks(Rule::Consistent);
        }
        self.occurred.add(next.seen);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.config)
    }
}
