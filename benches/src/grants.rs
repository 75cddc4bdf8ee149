//! Collects the grants of a run: finds violations of exclusion, and computes waits, throughput and fairness.

use serde::{Deserialize, Serialize};

use crate::{
    metric::{Figures, Metric},
    statistics::percentile,
};

/// One hold of one task. Times are by [`clock::now`](crate::clock::now).
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) task: u32,
    /// The time of the task's call.
    pub(crate) asked: u64,
    pub(crate) entered: u64,
    pub(crate) left: u64,
    pub(crate) is_shared: bool,
}

/// All grants of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Grants {
    pub(crate) grants: Vec<Grant>,
    /// The first error of each task that failed.
    pub(crate) errors: Vec<String>,
}

/// The start and the end of a run. Later grants do not count for throughput.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) stop: u64,
}

impl Span {
    fn seconds(self) -> f64 {
        seconds(self.stop - self.start)
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a few seconds")]
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn float(count: usize) -> f64 {
    count as f64
}

impl Grants {
    pub(crate) fn extend(&mut self, other: Self) {
        self.grants.extend(other.grants);
        self.errors.extend(other.errors);
    }

    /// Returns the grants in order of entry.
    fn ordered(&self) -> Vec<Grant> {
        let mut grants = self.grants.clone();
        grants.sort_unstable_by_key(|grant| (grant.entered, grant.left));
        grants
    }

    /// Returns how often a task entered while another one was inside and did not share the lock with it.
    pub(crate) fn violations(&self) -> usize {
        let (mut shared_until, mut exclusive_until) = (0, 0);
        let mut violations = 0;
        for grant in self.ordered() {
            if grant.entered < exclusive_until || !grant.is_shared && grant.entered < shared_until {
                violations += 1;
            }
            let until = if grant.is_shared {
                &mut shared_until
            } else {
                &mut exclusive_until
            };
            *until = grant.left.max(*until);
        }
        violations
    }

    /// Takes the grants of tasks that share the lock out of the others.
    pub(crate) fn take_shared(&mut self) -> Self {
        Self {
            grants: self
                .grants
                .extract_if(.., |grant| grant.is_shared)
                .collect(),
            errors: Vec::new(),
        }
    }

    /// Returns how many have ended before `stop`.
    fn ended(&self, stop: u64) -> usize {
        let ended = |grant: &&Grant| grant.left < stop;
        self.grants.iter().filter(ended).count()
    }

    /// Returns how often the lock passed from one task to another before `stop`.
    pub(crate) fn changes(&self, stop: u64) -> usize {
        let mut holder = None;
        let mut changes = 0;
        for grant in self.ordered() {
            if grant.entered < stop && holder.replace(grant.task) != Some(grant.task) {
                changes += 1;
            }
        }
        changes
    }

    /// Returns the figures of tasks with a lock each.
    pub(crate) fn of_own_locks(&self, span: Span) -> Figures {
        let pairs = float(self.ended(span.stop));
        vec![(Metric::PairsPerSecond, pairs / span.seconds())]
    }

    /// Returns how often tasks that share a lock were inside in each second.
    pub(crate) fn reads_per_second(&self, span: Span) -> (Metric, f64) {
        let reads = float(self.ended(span.stop));
        (Metric::ReadsPerSecond, reads / span.seconds())
    }

    /// Returns the longest time inside.
    pub(crate) fn longest(&self) -> (Metric, f64) {
        let times = self.grants.iter().map(|grant| grant.left - grant.entered);
        let longest = times.max().map_or(f64::NAN, seconds);
        (Metric::LongestRead, longest * 1e3)
    }

    /// Returns the figures of `tasks` tasks that share one lock.
    pub(crate) fn of_one_lock(&self, span: Span, tasks: usize) -> Figures {
        let changes = float(self.changes(span.stop));
        let mut figures = vec![(Metric::ChangesPerSecond, changes / span.seconds())];
        figures.extend(self.waits());
        figures.push(self.served(span, tasks));
        figures
    }

    /// Returns how long tasks waited.
    pub(crate) fn waits(&self) -> Figures {
        let mut waits: Vec<f64> = self
            .grants
            .iter()
            .map(|grant| seconds(grant.entered - grant.asked) * 1e3)
            .collect();
        waits.sort_unstable_by(f64::total_cmp);
        let (p50, p99) = (percentile(&waits, 50), percentile(&waits, 99));
        vec![
            (Metric::WaitP50, p50),
            (Metric::WaitP99, p99),
            (Metric::WaitMax, percentile(&waits, 100)),
            (Metric::WaitP99OverP50, p99 / p50),
        ]
    }

    /// Returns how evenly `tasks` tasks were served.
    pub(crate) fn served(&self, span: Span, tasks: usize) -> (Metric, f64) {
        let mut served = vec![0_usize; tasks];
        for grant in &self.grants {
            if grant.entered < span.stop {
                served[grant.task as usize] += 1;
            }
        }
        let most = float(served.iter().copied().max().unwrap_or(0));
        let least = float(served.iter().copied().min().unwrap_or(0));
        (Metric::MostOverLeast, most / least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(task: u32, asked: u64, entered: u64, left: u64) -> Grant {
        Grant {
            task,
            asked,
            entered,
            left,
            is_shared: false,
        }
    }

    fn read(task: u32, entered: u64, left: u64) -> Grant {
        Grant {
            is_shared: true,
            ..grant(task, 0, entered, left)
        }
    }

    #[test]
    fn entering_while_another_is_inside_is_a_violation() {
        let mut grants = Grants::default();
        grants.grants.push(grant(0, 0, 10, 20));
        grants.grants.push(grant(1, 0, 20, 30));
        assert_eq!(grants.violations(), 0);
        grants.grants.push(grant(2, 0, 12, 13));
        grants.grants.push(grant(3, 0, 15, 16));
        assert_eq!(grants.violations(), 2);
    }

    #[test]
    fn readers_may_be_inside_together_and_a_writer_only_alone() {
        let mut grants = Grants::default();
        grants.grants.extend([read(0, 10, 20), read(1, 15, 40)]);
        grants.grants.push(grant(2, 0, 40, 50));
        grants.grants.push(read(0, 50, 60));
        assert_eq!(grants.violations(), 0);
        grants.grants.push(read(1, 49, 51));
        assert_eq!(grants.violations(), 1);
        grants.grants.push(grant(2, 0, 59, 61));
        assert_eq!(grants.violations(), 2);
        assert_eq!(grants.take_shared().grants.len(), 4);
        assert_eq!(grants.grants.len(), 2);
    }

    #[test]
    fn a_task_that_enters_twice_in_a_row_is_no_change_of_holder() {
        let mut grants = Grants::default();
        for (index, task) in [0, 0, 1, 1, 0].into_iter().enumerate() {
            let entered = index as u64;
            grants.grants.push(grant(task, 0, entered, entered));
        }
        assert_eq!(grants.changes(5), 3);
        assert_eq!(grants.changes(4), 2);
    }
}
