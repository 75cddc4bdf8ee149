//! The bounds that figures must meet, and which of them a run misses.

use serde::Serialize;

use crate::{
    contestant::Kind, metric::Metric, network::Network, results::Results, scenario::Scenario,
};

/// A bound, and the measured value.
#[derive(Serialize)]
pub(crate) struct Verdict {
    pub(crate) scenario: Scenario,
    pub(crate) network: Network,
    pub(crate) bound: String,
    pub(crate) measured: String,
    pub(crate) holds: bool,
}

/// A bound for a figure of one contestant.
struct Bound(Scenario, Network, Kind, Metric, Limit);

enum Limit {
    AtMost(f64),
    /// This much more than a figure of another contestant.
    AboveAtMost(f64, Kind, Metric),
    /// A multiple of this contestant's value.
    TimesAtMost(f64, Kind),
    TimesAtLeast(f64, Kind),
    /// A multiple of the best peer's value.
    BestPeerAtMost(f64),
    AheadOfPeers,
}

use Kind::{
    Blpop, LeaseRow, Mutex, Ours, OursNested, OursOnEach, OursRetainedElsewhere, OursRetaining,
    OursRetainingBriefly, OursShared, OursSharedFewWrites, OursStrict, OursWriter, PostgresFloor,
    Raw, RwLock, RwLockFewWrites,
};
use Limit::{AboveAtMost, AheadOfPeers, AtMost, BestPeerAtMost, TimesAtLeast, TimesAtMost};
use Metric::{
    AcquireP50, BytesPerLock, ChangesPerSecond, CommandsPerChange, ExecutedPerChange,
    ExecutedPerRead, Growth, LongestRead, Lost, MostOverLeast, PairP50, PairsPerSecond,
    ProcessorTime, ReadsPerSecond, ServerProcessorTime, Violations, WaitP99, WaitP99OverP50,
};
use Network::{Delayed, Direct};
use Scenario::{
    Idle1000, Idle10000, Idle100000, Nested, OneKey, OwnKeys, Pair, Postgres, Processes, Quorum3,
    Quorum5, Readers, ReadersAndWriter, Retained, WaitersClients, WaitersTasks,
};

/// The limit of a lock's additional bytes after four renewals. It is less than the smallest leak of
/// a renewal.
const FLAT: f64 = 16.0;

/// All bounds.
#[rustfmt::skip]
const BOUNDS: [Bound; 61] = [
    Bound(Pair, Direct, Ours, PairP50, TimesAtMost(1.25, Raw)),
    Bound(Pair, Delayed, Ours, PairP50, TimesAtMost(1.05, Raw)),
    Bound(Pair, Delayed, OursRetainingBriefly, PairP50, TimesAtMost(0.6, Raw)),
    Bound(Nested, Delayed, OursNested, PairP50, AtMost(100.0)),
    Bound(OwnKeys, Direct, Ours, PairsPerSecond, TimesAtLeast(0.5, Raw)),
    Bound(OwnKeys, Direct, OursRetaining, PairsPerSecond, TimesAtLeast(10.0, Raw)),
    Bound(Quorum3, Direct, Ours, PairsPerSecond, AheadOfPeers),
    Bound(Quorum3, Direct, Ours, PairP50, TimesAtMost(1.3, OursOnEach)),
    Bound(Quorum5, Direct, Ours, PairsPerSecond, AheadOfPeers),
    Bound(Quorum5, Direct, Ours, PairP50, TimesAtMost(1.3, OursOnEach)),
    Bound(OneKey, Direct, Ours, ChangesPerSecond, TimesAtLeast(20.0, Blpop)),
    Bound(OneKey, Direct, Ours, ChangesPerSecond, TimesAtLeast(0.2, Mutex)),
    Bound(OneKey, Direct, Ours, ChangesPerSecond, AheadOfPeers),
    Bound(OneKey, Direct, Ours, ExecutedPerChange, AtMost(0.1)),
    Bound(OneKey, Direct, Ours, MostOverLeast, AtMost(1.1)),
    Bound(OneKey, Direct, Ours, WaitP99OverP50, AtMost(2.0)),
    Bound(OneKey, Direct, Ours, Violations, AtMost(0.0)),
    Bound(OneKey, Delayed, Ours, Violations, AtMost(0.0)),
    Bound(Processes, Direct, Ours, ChangesPerSecond, TimesAtLeast(2.5, Blpop)),
    Bound(Processes, Direct, OursStrict, ChangesPerSecond, TimesAtLeast(0.45, Blpop)),
    Bound(Processes, Direct, Ours, ChangesPerSecond, AheadOfPeers),
    Bound(Processes, Direct, Ours, CommandsPerChange, AtMost(2.5)),
    Bound(Processes, Direct, Ours, WaitP99OverP50, AtMost(6.0)),
    Bound(Processes, Direct, Ours, MostOverLeast, AtMost(1.1)),
    Bound(Processes, Direct, Ours, Violations, AtMost(0.0)),
    Bound(Processes, Direct, OursStrict, Violations, AtMost(0.0)),
    Bound(Processes, Delayed, Ours, Violations, AtMost(0.0)),
    Bound(Processes, Delayed, OursStrict, Violations, AtMost(0.0)),
    Bound(Retained, Direct, OursRetainedElsewhere, AcquireP50, TimesAtMost(3.0, Ours)),
    Bound(Postgres, Direct, Ours, PairP50, TimesAtMost(2.0, PostgresFloor)),
    Bound(Postgres, Direct, OursNested, PairP50, AtMost(10.0)),
    Bound(Postgres, Direct, Ours, ChangesPerSecond, TimesAtLeast(20.0, LeaseRow)),
    Bound(Postgres, Direct, Ours, Violations, AtMost(0.0)),
    Bound(Readers, Direct, OursShared, ReadsPerSecond, TimesAtLeast(0.5, RwLock)),
    Bound(Readers, Direct, OursShared, ExecutedPerRead, AtMost(0.05)),
    Bound(Readers, Direct, OursSharedFewWrites, ReadsPerSecond, TimesAtLeast(0.5, RwLockFewWrites)),
    Bound(Readers, Direct, OursSharedFewWrites, ExecutedPerRead, AtMost(0.05)),
    Bound(Readers, Direct, OursSharedFewWrites, Violations, AtMost(0.0)),
    Bound(Readers, Delayed, OursSharedFewWrites, Violations, AtMost(0.0)),
    Bound(ReadersAndWriter, Direct, OursWriter, WaitP99, AboveAtMost(50.0, OursShared, LongestRead)),
    Bound(ReadersAndWriter, Direct, OursShared, MostOverLeast, AtMost(1.2)),
    Bound(ReadersAndWriter, Direct, OursShared, Violations, AtMost(0.0)),
    Bound(ReadersAndWriter, Delayed, OursShared, Violations, AtMost(0.0)),
    Bound(Idle1000, Direct, Ours, Lost, AtMost(0.0)),
    Bound(Idle1000, Delayed, Ours, Lost, AtMost(0.0)),
    Bound(Idle10000, Direct, Ours, ProcessorTime, BestPeerAtMost(0.4)),
    Bound(Idle10000, Direct, Ours, ServerProcessorTime, BestPeerAtMost(1.0)),
    Bound(Idle10000, Direct, Ours, BytesPerLock, AtMost(1100.0)),
    Bound(Idle10000, Direct, Ours, BytesPerLock, AheadOfPeers),
    Bound(Idle10000, Direct, Ours, Growth, AtMost(FLAT)),
    Bound(Idle10000, Direct, Ours, Lost, AtMost(0.0)),
    Bound(Idle10000, Delayed, Ours, Lost, AtMost(0.0)),
    Bound(Idle100000, Direct, Ours, Growth, AtMost(FLAT)),
    Bound(Idle100000, Direct, Ours, Lost, AtMost(0.0)),
    Bound(Idle100000, Delayed, Ours, Lost, AtMost(0.0)),
    Bound(WaitersTasks, Direct, Ours, CommandsPerChange, AtMost(1.2)),
    Bound(WaitersTasks, Direct, Ours, Violations, AtMost(0.0)),
    Bound(WaitersTasks, Delayed, Ours, Violations, AtMost(0.0)),
    Bound(WaitersClients, Direct, Ours, CommandsPerChange, AtMost(2.5)),
    Bound(WaitersClients, Direct, Ours, Violations, AtMost(0.0)),
    Bound(WaitersClients, Delayed, Ours, Violations, AtMost(0.0)),
];

/// Returns all verdicts that the results allow.
pub(crate) fn verdicts(all: &[Results]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for bound in &BOUNDS {
        let &Bound(scenario, network, ..) = bound;
        let results = all
            .iter()
            .find(|results| results.scenario == scenario && results.network == network);
        verdicts.extend(results.map(|results| bound.judge(results)));
    }
    verdicts
}

impl Bound {
    fn judge(&self, results: &Results) -> Verdict {
        let &Self(scenario, network, kind, metric, ref limit) = self;
        let whose = if kind == Ours {
            metric.title().to_owned()
        } else {
            format!("{kind}: {}", metric.title())
        };
        let (bound, measured, holds) = match *limit {
            AtMost(most) => {
                let value = results.value(kind, metric);
                let text = format!("{whose} ≤ {}", short(most));
                (text, metric.show(value), value <= most)
            }
            AboveAtMost(most, other, base) => {
                let above = results.value(kind, metric) - results.value(other, base);
                let text = format!("{whose} ≤ {} + {most}", base.title());
                (text, format!("{above:+.1}"), above <= most)
            }
            TimesAtMost(most, other) => {
                let times = results.ratio_between(kind, other, metric);
                let text = format!("{whose} ≤ {most} × {other}");
                (text, format!("{times:.2} ×"), times <= most)
            }
            TimesAtLeast(least, other) => {
                let times = results.ratio_between(kind, other, metric);
                let text = format!("{whose} ≥ {least} × {other}");
                (text, format!("{times:.2} ×"), times >= least)
            }
            BestPeerAtMost(most) => {
                let (best, times) = against_best_peer(results, kind, metric);
                let text = format!("{whose} ≤ {most} × best peer");
                (text, format!("{times:.2} × {best}"), times <= most)
            }
            AheadOfPeers => {
                let (best, times) = against_best_peer(results, kind, metric);
                let ahead = if metric.more_is_better() {
                    times > 1.0
                } else {
                    times < 1.0
                };
                let text = format!("{whose} ahead of every peer");
                (text, format!("{times:.2} × {best}"), ahead)
            }
        };
        Verdict {
            scenario,
            network,
            bound,
            measured,
            holds,
        }
    }
}

/// Returns the best peer and the ratio to it, by rounds like the ratio to the floor. Without a peer
/// the ratio is NaN, so no bound holds.
fn against_best_peer(results: &Results, kind: Kind, metric: Metric) -> (&'static str, f64) {
    let peers = results.contestants.iter().filter(|kind| kind.is_peer());
    let ratios = peers
        .map(|peer| (peer.name(), results.ratio_between(kind, *peer, metric)))
        .filter(|(_, ratio)| !ratio.is_nan());
    let best = if metric.more_is_better() {
        ratios.min_by(|one, other| one.1.total_cmp(&other.1))
    } else {
        ratios.max_by(|one, other| one.1.total_cmp(&other.1))
    };
    best.unwrap_or(("no peer", f64::NAN))
}

/// Formats a bound: `1,100`, `0.1`.
fn short(bound: f64) -> String {
    if bound >= 1000.0 {
        BytesPerLock.show(bound)
    } else {
        bound.to_string()
    }
}
