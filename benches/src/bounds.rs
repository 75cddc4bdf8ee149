//! What the figures have to keep to.

use serde::Serialize;

use crate::{contestant::Kind, metric::Metric, results::Results, scenario::Scenario};

/// A bound, and what was measured.
#[derive(Serialize)]
pub(crate) struct Verdict {
    pub(crate) scenario: Scenario,
    pub(crate) bound: String,
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

enum Bound {
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// Times what this contestant takes.
    TimesAtMost(f64, Kind),
    AtMost(f64),
    AtLeast(f64),
}

use Bound::{AtLeast, AtMost, RatioAtLeast, RatioAtMost, TimesAtMost};
use Metric::{
    BytesPerLock, ChangesPerSecond, CommandsPerChange, Growth, LeastOverMean, Lost, MostOverLeast,
    PairP50, PairsPerSecond, ProcessorTime, Violations, WaitP99OverP50,
};

/// Memory is flat if a lock takes so few bytes more after it was renewed four times: less than the least
/// that could be left behind by each renewal.
const FLAT: f64 = 16.0;

/// Everything that is bounded. That no task starves means here: none is served less than a tenth as
/// often as the mean.
const BOUNDS: [(Scenario, Metric, Bound); 27] = [
    (Scenario::Pair, PairP50, RatioAtMost(1.25)),
    (Scenario::OwnKeys, PairsPerSecond, RatioAtLeast(0.8)),
    (Scenario::Quorum3, PairP50, RatioAtMost(1.3)),
    (
        Scenario::Quorum3,
        PairP50,
        TimesAtMost(1.3, Kind::OursOnEach),
    ),
    (Scenario::Quorum5, PairP50, RatioAtMost(1.3)),
    (
        Scenario::Quorum5,
        PairP50,
        TimesAtMost(1.3, Kind::OursOnEach),
    ),
    (Scenario::OneKey, ChangesPerSecond, RatioAtLeast(1.0)),
    (Scenario::OneKey, CommandsPerChange, AtMost(1.2)),
    (Scenario::OneKey, MostOverLeast, AtMost(1.1)),
    (Scenario::OneKey, WaitP99OverP50, AtMost(2.0)),
    (Scenario::OneKey, Violations, AtMost(0.0)),
    (Scenario::Processes, ChangesPerSecond, RatioAtLeast(0.8)),
    (Scenario::Processes, CommandsPerChange, AtMost(2.5)),
    (Scenario::Processes, LeastOverMean, AtLeast(0.1)),
    (Scenario::Processes, WaitP99OverP50, AtMost(4.0)),
    (Scenario::Processes, Violations, AtMost(0.0)),
    (Scenario::Idle1000, Lost, AtMost(0.0)),
    (Scenario::Idle10000, ProcessorTime, RatioAtMost(2.0)),
    (Scenario::Idle10000, BytesPerLock, AtMost(1024.0)),
    (Scenario::Idle10000, Growth, AtMost(FLAT)),
    (Scenario::Idle10000, Lost, AtMost(0.0)),
    (Scenario::Idle100000, Growth, AtMost(FLAT)),
    (Scenario::Idle100000, Lost, AtMost(0.0)),
    (Scenario::WaitersTasks, CommandsPerChange, AtMost(1.2)),
    (Scenario::WaitersTasks, Violations, AtMost(0.0)),
    (Scenario::WaitersClients, CommandsPerChange, AtMost(2.5)),
    (Scenario::WaitersClients, Violations, AtMost(0.0)),
];

/// The figures by which this framework is to be ahead of every peer.
const AHEAD: [(Scenario, Metric); 10] = [
    (Scenario::Pair, PairP50),
    (Scenario::OwnKeys, PairsPerSecond),
    (Scenario::Quorum3, PairP50),
    (Scenario::Quorum3, PairsPerSecond),
    (Scenario::Quorum5, PairP50),
    (Scenario::Quorum5, PairsPerSecond),
    (Scenario::OneKey, ChangesPerSecond),
    (Scenario::Processes, ChangesPerSecond),
    (Scenario::Idle10000, ProcessorTime),
    (Scenario::Idle10000, BytesPerLock),
];

/// All verdicts that the results allow.
pub(crate) fn verdicts(all: &[Results]) -> Vec<Verdict> {
    let of = |scenario| all.iter().find(|results| results.scenario == scenario);
    let mut verdicts = Vec::new();
    for (scenario, metric, bound) in &BOUNDS {
        if let Some(results) = of(*scenario) {
            verdicts.push(judge(results, *metric, bound));
        }
    }
    for (scenario, metric) in AHEAD {
        if let Some(results) = of(scenario) {
            verdicts.extend(ahead(results, metric));
        }
    }
    verdicts
}

fn judge(results: &Results, metric: Metric, bound: &Bound) -> Verdict {
    let value = results.value(Kind::Ours, metric);
    let ratio = results.ratio(Kind::Ours, metric);
    let (title, floor) = (metric.title(), results.floor);
    let (text, measured, holds) = match *bound {
        RatioAtMost(most) => (
            format!("{title} ≤ {most} × {floor}"),
            format!("{ratio:.2} ×"),
            ratio <= most,
        ),
        RatioAtLeast(least) => (
            format!("{title} ≥ {least} × {floor}"),
            format!("{ratio:.2} ×"),
            ratio >= least,
        ),
        TimesAtMost(most, kind) => {
            let times = results.ratio_between(Kind::Ours, kind, metric);
            (
                format!("{title} ≤ {most} × {kind}"),
                format!("{times:.2} ×"),
                times <= most,
            )
        }
        AtMost(most) => (
            format!("{title} ≤ {most}"),
            metric.show(value),
            value <= most,
        ),
        AtLeast(least) => (
            format!("{title} ≥ {least}"),
            metric.show(value),
            value >= least,
        ),
    };
    Verdict {
        scenario: results.scenario,
        bound: text,
        measured,
        holds,
    }
}

/// Beside the best of the peers, round by round as with the floor; `None` if no peer took part.
fn ahead(results: &Results, metric: Metric) -> Option<Verdict> {
    let advantage = |kind: Kind| {
        let ratio = results.ratio_between(Kind::Ours, kind, metric);
        if metric.more_is_better() {
            ratio
        } else {
            1.0 / ratio
        }
    };
    let peers = results.contestants.iter().filter(|kind| kind.is_peer());
    let (closest, advantage) = peers
        .map(|kind| (*kind, advantage(*kind)))
        .filter(|(_, advantage)| !advantage.is_nan())
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(Verdict {
        scenario: results.scenario,
        bound: format!("{} ahead of every peer", metric.title()),
        measured: format!("{advantage:.2} × {closest}"),
        holds: advantage > 1.0,
    })
}
