//! The grants of a run, and their figures.

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

    /// Returns how often a task entered while another one was inside.
    pub(crate) fn violations(&self) -> usize {
        let mut inside_until = 0;
        let mut violations = 0;
        for grant in self.ordered() {
            if grant.entered < inside_until {
                violations += 1;
            }
            inside_until = inside_until.max(grant.left);
        }
        violations
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
        let pairs = self.grants.iter().filter(|grant| grant.left < span.stop);
        vec![(
            Metric::PairsPerSecond,
            float(pairs.count()) / span.seconds(),
        )]
    }

    /// Returns the figures of `tasks` tasks that share one lock.
    pub(crate) fn of_one_lock(&self, span: Span, tasks: usize) -> Figures {
        let mut waits: Vec<f64> = self
            .grants
            .iter()
            .map(|grant| seconds(grant.entered - grant.asked) * 1e3)
            .collect();
        waits.sort_unstable_by(f64::total_cmp);
        let (p50, p99) = (percentile(&waits, 50), percentile(&waits, 99));

        let mut served = vec![0_usize; tasks];
        for grant in &self.grants {
            if grant.entered < span.stop {
                served[grant.task as usize] += 1;
            }
        }
        let total = float(served.iter().sum());
        let most = float(served.iter().copied().max().unwrap_or(0));
        let least = float(served.iter().copied().min().unwrap_or(0));
        vec![
            (
                Metric::ChangesPerSecond,
                float(self.changes(span.stop)) / span.seconds(),
            ),
            (Metric::WaitP50, p50),
            (Metric::WaitP99, p99),
            (Metric::WaitMax, percentile(&waits, 100)),
            (Metric::WaitP99OverP50, p99 / p50),
            (Metric::MostOverLeast, most / least),
            (Metric::LeastOverMean, least * float(tasks) / total),
        ]
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
