//! Replaces the metrics without the feature `metrics`: types without a size, and functions without an effect.

#![allow(clippy::unused_self, clippy::needless_pass_by_value)]

use std::time::Duration;

use rlock_proto::{
    lease::Time,
    lost::LostCause,
    machine::{By, HoldEnd},
    options::Site,
};
use tokio::time::Instant;

use crate::observe::Outcome;

#[derive(Debug, Clone, Copy)]
pub(crate) struct LockCounters;

pub(crate) fn lock(_: Site) -> LockCounters {
    LockCounters
}

impl LockCounters {
    pub(crate) fn holds(self) {}
    pub(crate) fn reentered(self) {}
    pub(crate) fn lost(self, _: LostCause) {}
}

pub(crate) struct Acquire;

impl Acquire {
    pub(crate) fn begin(_: Site, _: Time) -> Self {
        Self
    }

    pub(crate) fn waits(&self) {}
    pub(crate) fn holds(&self, _: impl FnOnce() -> Time, _: bool, _: impl FnOnce() -> By) {}
    pub(crate) fn ends(&mut self, _: Outcome, _: bool, _: impl FnOnce() -> Time) {}
}

#[derive(Default)]
pub(crate) struct Held(());

impl Held {
    pub(crate) fn begin(_: LockCounters, _: Time) -> Self {
        Self(())
    }

    pub(crate) fn ends(self, _: HoldEnd, _: impl FnOnce() -> Time) {}
}

pub(crate) struct Leads(());

impl Leads {
    pub(crate) fn campaigns(_: Site) {}

    pub(crate) fn begin(_: Site) -> Self {
        Self(())
    }
}

pub(crate) fn renewals(_: [usize; 4]) {}
pub(crate) fn lease_margin(_: Duration) {}
pub(crate) fn overslept(_: Duration) {}

pub(crate) struct RequestTimer;

impl RequestTimer {
    pub(crate) fn begin(_: &'static str, _: Instant) -> Self {
        Self
    }

    pub(crate) fn replied(self, _: bool) {}
    pub(crate) fn timed_out(self) {}
}

pub(crate) struct PendingRelease;

impl PendingRelease {
    pub(crate) fn begin() -> Self {
        Self
    }
}

pub(crate) struct ConnectionMetrics;

impl ConnectionMetrics {
    pub(crate) fn new(_: usize) -> Self {
        Self
    }

    pub(crate) fn is_up(&self, _: bool) {}
    pub(crate) fn reconnected(&self) {}
}
