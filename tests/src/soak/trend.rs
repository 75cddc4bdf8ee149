//! Detects growth: compares the median of the samples after the warm-up with that of the last ones.

use super::sample::Sample;

/// The first fifth of a soak is its warm-up. The second fifth is compared with the last.
const PARTS: usize = 5;

/// A value that must not grow.
struct Measure {
    name: &'static str,
    of: fn(&Sample) -> u64,
    /// The allowed growth: a percentage and a number.
    hundredths: u64,
    number: u64,
}

const MEASURES: [Measure; 9] = [
    // An allocator keeps some memory for each thread.
    measure("memory/KiB", |s| s.memory, 10, 1024),
    measure("threads", |s| s.threads, 0, 1),
    measure("descriptors", |s| s.descriptors, 0, 4),
    // As many as concurrent calls.
    measure("tasks", |s| s.tasks, 0, 8),
    measure("connections", |s| s.connections, 0, 3),
    measure("channels", |s| s.channels, 0, 1),
    measure("locks", |s| s.locks, 0, 8),
    measure("queues", |s| s.queues, 0, 8),
    // The warm-up uses all keys.
    measure("fences", |s| s.fences, 0, 8),
];

const fn measure(
    name: &'static str,
    of: fn(&Sample) -> u64,
    hundredths: u64,
    number: u64,
) -> Measure {
    Measure {
        name,
        of,
        hundredths,
        number,
    }
}

/// Returns a description of each growing value.
pub(super) fn growing(samples: &[Sample]) -> Vec<String> {
    let part = samples.len() / PARTS;
    let (before, after) = (&samples[part..2 * part], &samples[samples.len() - part..]);
    let mut growing = Vec::new();
    for Measure {
        name,
        of,
        hundredths,
        number,
    } in MEASURES
    {
        let (was, is) = (middle(before, of), middle(after, of));
        let most = was + was * hundredths / 100 + number;
        println!("{name}: {was} after the warm-up, {is} at the end, {most} at the most");
        if is > most {
            growing.push(format!("{name} grow from {was} to {is}, more than {most}"));
        }
    }
    growing
}

fn middle(samples: &[Sample], of: fn(&Sample) -> u64) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(at: impl Fn(u64) -> Sample) -> Vec<Sample> {
        (0..100).map(at).collect()
    }

    #[test]
    fn a_value_that_stays_within_its_bounds_does_not_grow() {
        let noisy = samples(|second| Sample {
            second,
            memory: 20_000 + second % 7 * 100,
            threads: 8,
            locks: second % 5,
            grants: second * 1_000,
            ..Sample::default()
        });
        assert_eq!(growing(&noisy), Vec::<String>::new());
    }

    #[test]
    fn growth_during_the_warm_up_is_not_reported() {
        let warming = samples(|second| Sample {
            memory: 10_000 * second.min(19),
            ..Sample::default()
        });
        assert_eq!(growing(&warming), Vec::<String>::new());
    }

    #[test]
    fn each_measure_that_grows_is_reported() {
        let all = samples(|second| Sample {
            second,
            memory: 20_000 + second * 200,
            threads: second / 10,
            descriptors: second / 10,
            tasks: second,
            connections: second / 10,
            channels: second / 10,
            locks: second,
            queues: second,
            fences: second,
            grants: 0,
        });
        assert_eq!(growing(&all).len(), MEASURES.len());
    }
}
