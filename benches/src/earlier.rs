//! Which rows of this framework are worse than in an earlier run, by their ratio to the floor.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{contestant::Kind, metric::Metric, results::Results};

/// A row is worse if its ratio to the floor is worse by this factor.
const WORSE: f64 = 1.1;

/// Returns a line for each row that is worse than in an earlier run, whose figures are given as JSON. Rows that the earlier run
/// lacks are left out, and so are those without a floor.
pub(crate) fn worse(all: &[Results], earlier: &str) -> Result<Vec<String>> {
    let earlier: Value = serde_json::from_str(earlier).context("not the figures of a run")?;
    let figures =
        (earlier["figures"].as_array()).context("not the figures of a run of this program")?;
    let mut lines = Vec::new();
    for results in all {
        let ours = |kind: &&Kind| kind.is_ours() && **kind != results.floor;
        for &kind in results.contestants.iter().filter(ours) {
            for &metric in results.metrics.iter().filter(|metric| metric.compares()) {
                let now = results.ratio(kind, metric);
                let Some(then) = ratio(figures, results, kind, metric) else {
                    continue;
                };
                let factor = if metric.more_is_better() {
                    then / now
                } else {
                    now / then
                };
                if factor >= WORSE {
                    lines.push(format!(
                        "{}{}, {}: {} is {now:.2} × {}, and was {then:.2} ×",
                        results.scenario.title(),
                        results.network,
                        kind.name(),
                        metric.title(),
                        results.floor.name(),
                    ));
                }
            }
        }
    }
    Ok(lines)
}

/// Returns the ratio to the floor in the earlier run, if it has one.
fn ratio(figures: &[Value], results: &Results, kind: Kind, metric: Metric) -> Option<f64> {
    let row = json!({
        "scenario": results.scenario,
        "network": results.network,
        "contestant": kind.name(),
        "metric": metric,
    });
    let row = row.as_object()?;
    let figure =
        (figures.iter()).find(|figure| row.iter().all(|(name, value)| figure[name] == *value))?;
    figure["ratio_to_floor"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, network::Network, scenario::Scenario};

    fn run(pairs: f64, p50: f64) -> Vec<Results> {
        let mut results = Results::new(Scenario::OwnKeys, Network::Direct, Kind::Raw);
        let figures = |pairs, p50| vec![(Metric::PairsPerSecond, pairs), (Metric::PairP50, p50)];
        results.add(Kind::Raw, figures(1000.0, 100.0));
        results.add(Kind::Ours, figures(pairs, p50));
        vec![results]
    }

    #[test]
    fn a_row_that_is_worse_by_a_tenth_is_named_and_a_better_one_is_not() {
        let earlier = json::json(&run(500.0, 120.0), &[]).expect("JSON");
        let worse = |pairs, p50| worse(&run(pairs, p50), &earlier).expect("figures");
        assert_eq!(worse(470.0, 128.0), Vec::<String>::new());
        assert_eq!(worse(900.0, 60.0), Vec::<String>::new());
        let lines = worse(400.0, 140.0);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].contains("pairs/s is 0.40 × raw, and was 0.50 ×"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("p50 µs is 1.40 × raw, and was 1.20 ×"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_row_that_the_earlier_run_lacks_is_left_out() {
        let empty = json::json(&[], &[]).expect("JSON");
        let worse = |earlier| worse(&run(1.0, 1e6), earlier);
        assert_eq!(worse(&empty).expect("figures"), Vec::<String>::new());
        assert!(worse("{}").is_err() && worse("no JSON").is_err());
    }
}
