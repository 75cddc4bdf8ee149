//! Writes the results as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    bounds::Verdict, contestant::Kind, metric::Metric, network::Network, results::Results,
    scenario::Scenario,
};

#[derive(Serialize)]
struct Document<'a> {
    scenarios: Vec<Table<'a>>,
    bounds: &'a [Verdict],
}

#[derive(Serialize)]
struct Table<'a> {
    scenario: Scenario,
    title: &'static str,
    network: Network,
    /// The measured delay of a round trip.
    delay_ms: Option<f64>,
    floor: Kind,
    contestants: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: Kind,
    figures: BTreeMap<Metric, Figure<'a>>,
    error: Option<&'a String>,
}

/// A NaN (a ratio to nothing) becomes `null`.
#[derive(Serialize)]
struct Figure<'a> {
    value: f64,
    ratio_to_floor: f64,
    rounds: &'a [f64],
}

pub(crate) fn json(all: &[Results], bounds: &[Verdict]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Document {
        scenarios: all.iter().map(table).collect(),
        bounds,
    })
}

fn table(results: &Results) -> Table<'_> {
    let rows = results.contestants.iter().map(|&kind| Row {
        name: kind,
        figures: results
            .metrics
            .iter()
            .filter(|metric| !results.rounds(kind, **metric).is_empty())
            .map(|&metric| {
                let figure = Figure {
                    value: results.value(kind, metric),
                    ratio_to_floor: results.ratio(kind, metric),
                    rounds: results.rounds(kind, metric),
                };
                (metric, figure)
            })
            .collect(),
        error: results.errors.get(&kind),
    });
    Table {
        scenario: results.scenario,
        title: results.scenario.title(),
        network: results.network,
        delay_ms: results.added,
        floor: results.floor,
        contestants: rows.collect(),
    }
}
