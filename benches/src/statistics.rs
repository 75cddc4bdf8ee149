//! Medians and percentiles.

/// Of sorted values the one below which `percent` of them lie; not a number if there are none.
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * percent / 100)
        .copied()
        .unwrap_or(f64::NAN)
}

/// The value in the middle; not a number if there is none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    percentile(&sorted, 50)
}
