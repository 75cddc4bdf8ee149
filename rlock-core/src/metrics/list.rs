//! The name, unit and description of every metric.

use metrics::{Recorder, Unit};

pub(super) const ACQUIRE_DURATION: &str = "rlock_acquire_duration_seconds";
pub(super) const HOLD_DURATION: &str = "rlock_hold_duration_seconds";
pub(super) const WAITING: &str = "rlock_waiting";
pub(super) const HELD: &str = "rlock_held";
pub(super) const CONTENDED: &str = "rlock_contended_total";
pub(super) const REENTRIES: &str = "rlock_reentries_total";
pub(super) const LOST: &str = "rlock_lost_total";
pub(super) const ARRIVALS: &str = "rlock_arrivals_total";
pub(super) const RENEWALS: &str = "rlock_renewals_total";
pub(super) const LEASE_MARGIN: &str = "rlock_lease_margin_seconds";
pub(super) const REQUEST_DURATION: &str = "rlock_request_duration_seconds";
pub(super) const LEADER: &str = "rlock_leader";
pub(super) const CONNECTION_UP: &str = "rlock_connection_up";
pub(super) const RECONNECTS: &str = "rlock_reconnects_total";
pub(super) const PENDING_RELEASES: &str = "rlock_pending_releases";
pub(super) const PROCESS_PAUSE: &str = "rlock_process_pause_seconds";

#[rustfmt::skip]
const COUNTERS: [(&str, &str); 6] = [
    (CONTENDED, "acquires that found the lock taken"),
    (REENTRIES, "nested acquires that re-entered the hold of their call chain"),
    (LOST, "holds that were lost, by cause"),
    (ARRIVALS, "contended acquires that were granted, by what brought the lock"),
    (RENEWALS, "renewals of leases, by result"),
    (RECONNECTS, "lost connections to the server that were replaced"),
];

#[rustfmt::skip]
const GAUGES: [(&str, &str); 5] = [
    (WAITING, "calls that wait for a taken lock"),
    (HELD, "locks that this process holds"),
    (LEADER, "elections that this process leads"),
    (CONNECTION_UP, "1 if every client of this process is connected to the server"),
    (PENDING_RELEASES, "releases that the background has not finished"),
];

#[rustfmt::skip]
const HISTOGRAMS: [(&str, &str); 5] = [
    (ACQUIRE_DURATION, "time from the call of an acquire to its end, by outcome"),
    (HOLD_DURATION, "time from the grant of a hold to its end, by end"),
    (LEASE_MARGIN, "time left of the lease when its renewal arrived"),
    (REQUEST_DURATION, "time from sending a request to a server to its reply"),
    (PROCESS_PAUSE, "how much later than planned the watchdog woke up"),
];

pub(super) fn describe(recorder: &dyn Recorder) {
    for (name, help) in COUNTERS {
        recorder.describe_counter(name.into(), Some(Unit::Count), help.into());
    }
    for (name, help) in GAUGES {
        recorder.describe_gauge(name.into(), Some(Unit::Count), help.into());
    }
    for (name, help) in HISTOGRAMS {
        recorder.describe_histogram(name.into(), Some(Unit::Seconds), help.into());
    }
}
