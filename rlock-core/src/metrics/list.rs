//! The names of the metrics, and what they mean.

use metrics::{Recorder, Unit};

pub(super) const ACQUIRE_DURATION: &str = "rlock_acquire_duration_seconds";
pub(super) const HOLD_DURATION: &str = "rlock_hold_duration_seconds";
pub(super) const WAITING: &str = "rlock_waiting";
pub(super) const HELD: &str = "rlock_held";
pub(super) const CONTENDED: &str = "rlock_contended_total";
pub(super) const REENTRIES: &str = "rlock_reentries_total";
pub(super) const LOST: &str = "rlock_lost_total";
pub(super) const HANDOVERS: &str = "rlock_handovers_total";
pub(super) const RENEWALS: &str = "rlock_renewals_total";
pub(super) const LEASE_MARGIN: &str = "rlock_lease_margin_seconds";
pub(super) const REQUEST_DURATION: &str = "rlock_request_duration_seconds";
pub(super) const CONNECTION_UP: &str = "rlock_connection_up";
pub(super) const RECONNECTS: &str = "rlock_reconnects_total";
pub(super) const PENDING_RELEASES: &str = "rlock_pending_releases";
pub(super) const PROCESS_PAUSE: &str = "rlock_process_pause_seconds";

enum Kind {
    Counter,
    Gauge,
    Histogram,
}

use Kind::{Counter, Gauge, Histogram};

const ALL: [(&str, Kind, &str); 15] = [
    (
        ACQUIRE_DURATION,
        Histogram,
        "time from the call of an acquire to its end, by outcome",
    ),
    (
        HOLD_DURATION,
        Histogram,
        "time from the grant of a hold to its end, by end",
    ),
    (WAITING, Gauge, "calls that wait for a taken lock"),
    (HELD, Gauge, "locks that this process holds"),
    (CONTENDED, Counter, "acquires that found the lock taken"),
    (
        REENTRIES,
        Counter,
        "nested acquires that entered the hold of their call chain",
    ),
    (LOST, Counter, "holds that were lost, by cause"),
    (
        HANDOVERS,
        Counter,
        "contended acquires that were granted, by what brought the lock",
    ),
    (RENEWALS, Counter, "renewals of leases, by result"),
    (
        LEASE_MARGIN,
        Histogram,
        "what was left of the lease when its renewal arrived",
    ),
    (
        REQUEST_DURATION,
        Histogram,
        "time from sending a request to a server to its reply",
    ),
    (
        CONNECTION_UP,
        Gauge,
        "1 if every client of this process is connected to the server",
    ),
    (
        RECONNECTS,
        Counter,
        "lost connections to the server that were replaced",
    ),
    (
        PENDING_RELEASES,
        Gauge,
        "releases that the background has not finished",
    ),
    (
        PROCESS_PAUSE,
        Histogram,
        "how much later than planned the watchdog woke up",
    ),
];

pub(super) fn describe(recorder: &dyn Recorder) {
    for (name, kind, help) in ALL {
        let name = name.into();
        match kind {
            Counter => recorder.describe_counter(name, Some(Unit::Count), help.into()),
            Gauge => recorder.describe_gauge(name, Some(Unit::Count), help.into()),
            Histogram => recorder.describe_histogram(name, Some(Unit::Seconds), help.into()),
        }
    }
}
