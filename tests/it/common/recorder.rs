//! The metrics of this process. Reading resets nothing, so tests with different lock names can run
//! in parallel.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The unit and the text of a metric.
pub(crate) type Description = (&'static str, Option<Unit>, String);

/// Records every metric from now on.
pub(crate) fn keep_metrics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| metrics::set_global_recorder(Recorded).expect("the only recorder"));
}

/// Returns the value of a counter or a gauge; `None` if there is no such series.
pub(crate) fn metric(name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let series = all().get(&key(name, labels)).cloned()?;
    Some(series.state().value)
}

/// Returns the values of a histogram.
pub(crate) fn values(name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let series = all().get(&key(name, labels)).cloned();
    series.map_or_else(Vec::new, |series| series.state().values.clone())
}

/// Returns the name and the labels of every series.
pub(crate) fn series() -> Vec<(String, Vec<(String, String)>)> {
    all().keys().cloned().collect()
}

/// Returns the descriptions of all metrics, by name.
pub(crate) fn descriptions() -> BTreeMap<String, Description> {
    described().clone()
}

type SeriesKey = (String, Vec<(String, String)>);

static SERIES: Mutex<BTreeMap<SeriesKey, Arc<Series>>> = Mutex::new(BTreeMap::new());
static DESCRIBED: Mutex<BTreeMap<String, Description>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<SeriesKey, Arc<Series>>> {
    SERIES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn described() -> MutexGuard<'static, BTreeMap<String, Description>> {
    DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(name: &str, labels: &[(&str, &str)]) -> SeriesKey {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut labels: Vec<_> = labels.iter().map(owned).collect();
    labels.sort();
    (name.to_owned(), labels)
}

#[derive(Default)]
struct Series(Mutex<State>);

#[derive(Default)]
struct State {
    value: f64,
    values: Vec<f64>,
}

impl Series {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(key: &Key) -> Arc<Self> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| (label.key(), label.value()))
            .collect();
        let key = self::key(key.name(), &labels);
        Arc::clone(all().entry(key).or_default())
    }
}

impl CounterFn for Series {
    #[expect(clippy::cast_precision_loss, reason = "tests count to less than 2^53")]
    fn increment(&self, value: u64) {
        self.state().value += value as f64;
    }

    fn absolute(&self, _value: u64) {
        unimplemented_by_locks("absolute");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.state().value += value;
    }

    fn decrement(&self, value: f64) {
        self.state().value -= value;
    }

    fn set(&self, value: f64) {
        self.state().value = value;
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.state().values.push(value);
    }
}

fn unimplemented_by_locks(what: &str) {
    panic!("locks do not use `{what}`");
}

struct Recorded;

impl Recorded {
    fn describe(kind: &'static str, name: &KeyName, unit: Option<Unit>, text: SharedString) {
        let description = (kind, unit, text.into_owned());
        described().insert(name.as_str().to_owned(), description);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe("counter", &name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe("gauge", &name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        Self::describe("histogram", &name, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Series::of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::of(key))
    }
}
