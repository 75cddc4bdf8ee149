//! Explores all states of a world, and reports violated properties with the steps that lead there.

use std::{
    fmt,
    time::{Duration, Instant},
};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use crate::protocol::{Config, Protocol};

/// The result of an exploration.
#[derive(Debug)]
pub struct Report {
    /// The name of the world.
    pub name: &'static str,
    /// Different states.
    pub unique: usize,
    /// Steps to states, including known ones.
    pub total: usize,
    /// The longest path from the initial state.
    pub depth: usize,
    /// The duration of the exploration.
    pub took: Duration,
    /// The violated properties, each with the steps that lead there.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// The states and situations that must occur, and did not.
    pub unseen: Vec<&'static str>,
}

impl Report {
    /// Returns the size of the exploration as text.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{:<60} {:>9} states, {:>9} steps, depth {:>2}, {:>6.1} s",
            self.name,
            self.unique,
            self.total,
            self.depth,
            self.took.as_secs_f64()
        )
    }

    /// Returns whether no property is violated and everything that is required occurred.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.unseen.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        for name in &self.unseen {
            write!(f, "\n  never seen: {name}")?;
        }
        for (name, steps) in &self.broken {
            write!(f, "\n  broken: {name}")?;
            for step in steps {
                write!(f, "\n    {step}")?;
            }
        }
        Ok(())
    }
}

/// Explores all states.
#[must_use]
pub fn exhaust(config: Config) -> Report {
    let name = config.name;
    let started = Instant::now();
    let checker = Protocol::new(config)
        .checker()
        .threads(threads())
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_dfs()
        .join();
    report(name, started, &checker)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn report(name: &'static str, started: Instant, checker: &impl Checker<Protocol>) -> Report {
    let took = started.elapsed();
    let found = checker.discoveries();
    let (mut broken, mut unseen) = (Vec::new(), checker.model().unseen());
    for Property {
        expectation, name, ..
    } in checker.model().properties()
    {
        match (expectation, found.get(name)) {
            (Expectation::Sometimes, None) => unseen.push(name),
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                let steps = path.clone().into_actions();
                broken.push((name, steps.iter().map(|step| format!("{step:?}")).collect()));
            }
            _ => {}
        }
    }
    Report {
        name,
        unique: checker.unique_state_count(),
        total: checker.state_count(),
        depth: checker.max_depth(),
        took,
        broken,
        unseen,
    }
}
