//! Draws a chart of the results: bars of the most important figure of each scenario.

use std::fmt::Write as _;

use crate::{contestant::Kind, metric::Metric, results::Results};

const WIDTH: f64 = 760.0;
/// The left end of the bars. Names are on the left.
const LEFT: f64 = 170.0;
/// The length of the longest bar. Its figure is on the right.
const LONGEST: f64 = 440.0;
const BAR: f64 = 20.0;
const HEAD: f64 = 46.0;

/// The most important figures, in order of preference.
const TELLING: [Metric; 6] = [
    Metric::ChangesPerSecond,
    Metric::ReadsPerSecond,
    Metric::PairsPerSecond,
    Metric::PairP50,
    Metric::AcquireP50,
    Metric::ProcessorTime,
];

/// Returns a chart as SVG.
pub(crate) fn chart(all: &[Results]) -> String {
    let mut body = String::new();
    let mut top = 10.0;
    for results in all {
        top = bars(&mut body, results, top);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

/// Draws one scenario from `top`, and returns the position of the next one.
fn bars(body: &mut String, results: &Results, top: f64) -> f64 {
    let Some(metric) = TELLING
        .into_iter()
        .find(|metric| results.metrics.contains(metric))
    else {
        return top;
    };
    let better = if metric.more_is_better() {
        "more"
    } else {
        "less"
    };
    let (title, unit) = (results.scenario.title(), metric.title());
    let network = results.network;
    text(
        body,
        10.0,
        top + 18.0,
        &format!("{title}{network}: {unit}, {better} is better"),
        "bold",
    );
    let values: Vec<(Kind, f64)> = results
        .contestants
        .iter()
        .map(|&kind| (kind, results.value(kind, metric)))
        .filter(|(_, value)| value.is_finite())
        .collect();
    let most = values
        .iter()
        .map(|(_, value)| *value)
        .fold(f64::MIN_POSITIVE, f64::max);
    let mut y = top + HEAD - BAR;
    for (kind, value) in values {
        let length = (value / most * LONGEST).max(1.0);
        let _ = writeln!(
            body,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>",
            BAR - 5.0,
            color(kind),
        );
        text(body, 10.0, y + 12.0, kind.name(), "normal");
        text(
            body,
            LEFT + length + 6.0,
            y + 12.0,
            &metric.show(value),
            "normal",
        );
        y += BAR;
    }
    y + 10.0
}

fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours
        | Kind::OursStrict
        | Kind::OursHandovers4
        | Kind::OursHandovers64
        | Kind::OursRetaining
        | Kind::OursRetainingBriefly
        | Kind::OursRetainedElsewhere
        | Kind::OursAtCluster
        | Kind::OursNested
        | Kind::OursNestedLocally => "#1f77b4",
        _ if kind.is_peer() => "#c7c7c7",
        _ => "#7f7f7f",
    }
}

/// The texts are fixed and contain no character that SVG requires to escape.
fn text(body: &mut String, x: f64, y: f64, text: &str, weight: &str) {
    let _ = writeln!(
        body,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-weight=\"{weight}\">{text}</text>"
    );
}
