//! Collects the results of all rounds of a scenario.

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
    /// The measured delay of a round trip in milliseconds, if there is one.
    pub(crate) added: Option<f64>,
    /// The contestant with which the others are compared.
    pub(crate) floor: Kind,
    /// The contestants in the order of the table.
    pub(crate) contestants: Vec<Kind>,
    pub(crate) metrics: Vec<Metric>,
    /// Whether rounds with the same number were far apart in time.
    pub(crate) apart: bool,
    values: BTreeMap<(Kind, Metric), Vec<f64>>,
    /// The first error of each contestant.
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

    /// Returns the value of each round.
    pub(crate) fn rounds(&self, kind: Kind, metric: Metric) -> &[f64] {
        self.values.get(&(kind, metric)).map_or(&[], Vec::as_slice)
    }

    /// Returns the summary of all rounds; NaN without rounds.
    pub(crate) fn value(&self, kind: Kind, metric: Metric) -> f64 {
        metric.summary(self.rounds(kind, metric))
    }

    /// Returns the ratio to the floor.
    pub(crate) fn ratio(&self, kind: Kind, metric: Metric) -> f64 {
        self.ratio_between(kind, self.floor, metric)
    }

    /// Returns the median of the ratios of two contestants. If rounds are close in time, their
    /// ratios count.
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
