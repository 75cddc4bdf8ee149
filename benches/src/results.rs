//! What all rounds of a scenario yielded.

use std::collections::BTreeMap;

use crate::{
    contestant::Kind,
    metric::{Figures, Metric},
    network::Network,
    scenario::Scenario,
    statistics::median,
};

/// The figures of one scenario: a value for each round of each contestant.
pub(crate) struct Results {
    pub(crate) scenario: Scenario,
    pub(crate) network: Network,
    /// The measured delay of a round trip in milliseconds, where there is one.
    pub(crate) added: Option<f64>,
    /// The contestant that the others are compared with.
    pub(crate) floor: Kind,
    /// The contestants in the order of the table.
    pub(crate) contestants: Vec<Kind>,
    pub(crate) metrics: Vec<Metric>,
    /// Whether rounds of the same number were not neighbours in time.
    pub(crate) apart: bool,
    values: BTreeMap<(Kind, Metric), Vec<f64>>,
    /// Errors of contestants, the first of each.
    pub(crate) errors: BTreeMap<Kind, String>,
}

impl Results {
    pub(crate) fn new(scenario: Scenario, network: Network, floor: Kind) -> Self {
        Self {
            scenario,
            network,
            added: None,
            floor,
            contestants: Vec::new(),
            metrics: Vec::new(),
            apart: false,
            values: BTreeMap::new(),
            errors: BTreeMap::new(),
        }
    }

    /// Adds a round of a contestant, or figures that are measured once.
    pub(crate) fn add(&mut self, kind: Kind, figures: Figures) {
        if !self.contestants.contains(&kind) {
            self.contestants.push(kind);
        }
        for (metric, value) in figures {
            if !self.metrics.contains(&metric) {
                self.metrics.push(metric);
            }
            self.values.entry((kind, metric)).or_default().push(value);
        }
    }

    pub(crate) fn errors(&mut self, kind: Kind, errors: Vec<String>) {
        if let Some(first) = errors.into_iter().next() {
            self.errors.entry(kind).or_insert(first);
        }
    }

    /// The value of each round.
    pub(crate) fn rounds(&self, kind: Kind, metric: Metric) -> &[f64] {
        self.values.get(&(kind, metric)).map_or(&[], Vec::as_slice)
    }

    /// All rounds as one figure; not a number if there is none.
    pub(crate) fn value(&self, kind: Kind, metric: Metric) -> f64 {
        metric.summary(self.rounds(kind, metric))
    }

    /// The ratio to the floor.
    pub(crate) fn ratio(&self, kind: Kind, metric: Metric) -> f64 {
        self.ratio_between(kind, self.floor, metric)
    }

    /// The median of the ratios of two contestants, round by round where the rounds were neighbours.
    pub(crate) fn ratio_between(&self, kind: Kind, other: Kind, metric: Metric) -> f64 {
        if self.apart {
            return self.value(kind, metric) / self.value(other, metric);
        }
        let own = self.rounds(kind, metric).iter();
        let others = self.rounds(other, metric);
        let ratios: Vec<f64> = own.zip(others).map(|(own, other)| own / other).collect();
        median(&ratios)
    }
}
