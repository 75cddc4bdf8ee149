//! Writes the results as JSON: a row for each figure of each contestant.

use serde::Serialize;

use crate::{
    bounds::Verdict, metric::Metric, network::Network, results::Results, scenario::Scenario,
};

#[derive(Serialize)]
struct Document<'a> {
    figures: Vec<Figure<'a>>,
    bounds: &'a [Verdict],
}

/// A NaN (a ratio to nothing) becomes `null`.
#[derive(Serialize)]
struct Figure<'a> {
    scenario: Scenario,
    network: Network,
    contestant: &'static str,
    metric: Metric,
    value: f64,
    ratio_to_floor: f64,
    rounds: &'a [f64],
}

pub(crate) fn json(all: &[Results], bounds: &[Verdict]) -> serde_json::Result<String> {
    let mut figures = Vec::new();
    for results in all {
        for &kind in &results.contestants {
            let measured = |metric: &&Metric| !results.rounds(kind, **metric).is_empty();
            figures.extend(
                results
                    .metrics
                    .iter()
                    .filter(measured)
                    .map(|&metric| Figure {
                        scenario: results.scenario,
                        network: results.network,
                        contestant: kind.name(),
                        metric,
                        value: results.value(kind, metric),
                        ratio_to_floor: results.ratio(kind, metric),
                        rounds: results.rounds(kind, metric),
                    }),
            );
        }
    }
    serde_json::to_string_pretty(&Document { figures, bounds })
}
