//! Detects growth: compares the median of the samples after the warm-up with that of the last ones.

use super::sample::{MEASURES, Sample};

/// The first fifth of a soak is its warm-up. The second fifth is compared with the last.
const PARTS: usize = 5;

/// Returns a description of each growing value.
pub(super) fn growing(samples: &[Sample]) -> Vec<String> {
    let part = samples.len() / PARTS;
    let (before, after) = (&samples[part..2 * part], &samples[samples.len() - part..]);
    let mut growing = Vec::new();
    for (n, (name, percent, number)) in MEASURES.into_iter().enumerate() {
        let (was, is) = (middle(before, n), middle(after, n));
        let most = was + was * percent / 100 + number;
        println!("{name}: {was} after the warm-up, {is} at the end, {most} at the most");
        if is > most {
            growing.push(format!("{name} grow from {was} to {is}, more than {most}"));
        }
    }
    growing
}

fn middle(samples: &[Sample], measure: usize) -> u64 {
    let mut values: Vec<u64> = samples.iter().map(|it| it.values[measure]).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing_by(values: impl Fn(u64) -> [u64; MEASURES.len()]) -> usize {
        let sample = |second| Sample {
            second,
            values: values(second),
            grants: second * 1_000,
        };
        growing(&(0..100).map(sample).collect::<Vec<_>>()).len()
    }

    #[test]
    fn values_that_grow_after_the_warm_up_and_beyond_their_bounds_are_reported() {
        let all = growing_by(|second| {
            [20_000 + second * 200, 0, 0, 0, 0, 0, 0, 0, 0].map(|value| value + second)
        });
        assert_eq!(all, MEASURES.len());
        let noise =
            growing_by(|second| [20_000 + second % 7 * 100, 8, 0, 0, 0, 0, second % 5, 0, 0]);
        let warming = growing_by(|second| [10_000 * second.min(19); MEASURES.len()]);
        assert_eq!((noise, warming), (0, 0));
    }
}
