//! The complete protocol as a model: clients, a server, a resource with a fence, and a network that
//! loses, repeats and reorders messages.

mod acquisition;
mod bug;
mod client;
mod config;
mod network;
mod ownership;
mod properties;
mod resource;
mod state;
mod steps;

pub use self::{
    bug::{Bug, ClientBug},
    config::{Config, Faults, Time},
    state::State,
    steps::Action,
};

use stateright::{Model, Property};

/// The key that all clients lock.
const KEY: crate::words::Key = 0;

/// The protocol, in one configuration.
#[derive(Clone, Debug)]
pub struct Protocol {
    config: Config,
}

impl Protocol {
    /// Creates a model with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.config)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if !state.is_broken() {
            steps::possible(&self.config, state, actions);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        steps::take(&self.config, &mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.config)
    }
}
