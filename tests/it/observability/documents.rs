//! Compares `docs/operations.md`, the dashboard and the alert rules with the metrics and spans of the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use metrics::Unit;
use rlock_testkit::{RedisServer, eventually};
use tracing::level_filters::LevelFilter;

use crate::common::{
    LONG,
    alone::alone,
    client, ms,
    recorder::{descriptions, keep_metrics, series, values},
    spans::{keep_spans, spans_of},
};

const TEMPLATE: &str = "order:<id>";

fn docs() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace").join("docs")
}

fn read(file: &str) -> String {
    fs::read_to_string(docs().join(file)).expect("the file is there")
}

/// The cells of the rows on the page whose first cell begins with this text.
fn rows(first: &str) -> Vec<Vec<String>> {
    let page = read("operations.md");
    let rows = page.lines().filter(|line| line.starts_with(first));
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).collect()
}

fn in_code(cell: &str) -> BTreeSet<String> {
    let code = cell.split('`').skip(1).step_by(2);
    code.map(str::to_owned).collect()
}

/// Uses every metric once.
async fn use_locks() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1").label(TEMPLATE).lease(ms(9000));
    let guard = lock.acquire().await.expect("free");
    eventually(LONG, "it is renewed", async || {
        let renewed = !values("rlock_lease_margin_seconds", &[]).is_empty();
        renewed && !values("rlock_process_pause_seconds", &[]).is_empty()
    })
    .await;
    guard.release().await.expect("held");
    let leadership = client.election("scheduler").campaign().await;
    leadership.expect("free").resign().await.expect("led");
}

/// The page lists the values of a counter after the label, as in "`by`: `local`, `release`" or "`end` is
/// `released`".
#[tokio::test]
async fn the_page_lists_every_metric_with_its_type_unit_and_labels() {
    alone!(the_page_lists_every_metric_with_its_type_unit_and_labels);
    keep_metrics();
    use_locks().await;
    let all = series();
    let mut labels = BTreeMap::<String, BTreeSet<String>>::new();
    for (name, own) in &all {
        let own = own.iter().map(|(label, _)| label.clone());
        labels.entry(name.clone()).or_default().extend(own);
    }
    let described = descriptions();
    let described = described.iter().map(|(name, (kind, unit, text))| {
        assert!(!text.is_empty(), "{name}");
        let unit = unit.expect("every metric has a unit");
        let labels = labels.remove(name).unwrap_or_else(|| panic!("{name}"));
        (name.clone(), ((*kind).to_owned(), unit, labels))
    });
    let described: BTreeMap<_, _> = described.collect();
    assert_eq!(labels.into_keys().collect::<Vec<_>>(), Vec::<String>::new());
    let listed = rows("| `rlock_").into_iter().map(|row| {
        let [name, kind, labels, _] = &row[..] else {
            panic!("four cells: {row:?}");
        };
        let name = in_code(name).pop_first().expect("a name");
        // The name says the unit, as is usual for Prometheus.
        let unit = if name.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        };
        (name, (kind.clone(), unit, in_code(labels)))
    });
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), described);

    for (metric, label) in [
        ("rlock_lost_total", "cause"),
        ("rlock_arrivals_total", "by"),
        ("rlock_renewals_total", "result"),
    ] {
        let rows = rows(&format!("| `{metric}`"));
        let text = in_code(rows[0].last().expect("cells"));
        let own = all.iter().filter(|(name, _)| name == metric);
        let pairs = own.flat_map(|(_, labels)| labels);
        let values = pairs.filter(|(name, _)| name == label);
        let values: BTreeSet<_> = values.map(|(_, value)| value.clone()).collect();
        assert!(values.len() > 3, "{metric}: {values:?}");
        let unlisted: Vec<_> = values.difference(&text).collect();
        assert!(unlisted.is_empty(), "{metric}: {unlisted:?}");
    }
}

#[tokio::test]
async fn the_page_lists_every_field_of_the_spans() {
    alone!(the_page_lists_every_field_of_the_spans);
    keep_spans(LevelFilter::DEBUG);
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1").label(TEMPLATE);
    lock.run(async {}).await.expect("free");
    let mut fields = BTreeMap::<&str, BTreeSet<String>>::new();
    for span in spans_of(TEMPLATE) {
        let names = span.names.iter().map(|name| (*name).to_owned());
        fields.entry(span.name).or_default().extend(names);
    }
    let fields_in = |first: &str| -> BTreeSet<String> {
        let rows = rows(first);
        rows.iter().flat_map(|row| in_code(&row[1])).collect()
    };
    let both = fields_in("| both |");
    let listed = ["lock.acquire", "lock.hold"].map(|span| {
        let own = fields_in(&format!("| `{span}` |"));
        (span, both.union(&own).cloned().collect())
    });
    assert_eq!(BTreeMap::from(listed), fields);
}

/// All texts in a document below these keys.
fn texts(value: &serde_json::Value, keys: &[&str], found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str() {
                    Some(text) if keys.contains(&key.as_str()) => found.push(text.to_owned()),
                    _ => texts(value, keys, found),
                }
            }
        }
        serde_json::Value::Array(values) => {
            for value in values {
                texts(value, keys, found);
            }
        }
        _ => {}
    }
}

/// Returns the names of metrics in a query, without the suffixes of histogram series.
fn metrics_in(query: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split(|c| !is_name(c));
    let names = words.filter(|word| word.starts_with("rlock_"));
    let base = |name: &str| {
        let suffixes = ["_bucket", "_count", "_sum"];
        let base = suffixes.iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    };
    names.map(base).collect()
}

/// Returns the labels in a query: in matchers, and in groupings.
fn labels_in(query: &str) -> BTreeSet<String> {
    let inside = |open: &'static str, close: char| {
        let parts = query.split(open).skip(1);
        let parts = parts.filter_map(move |part| part.split(close).next());
        parts.flat_map(|part| part.split(','))
    };
    let compared = inside("{", '}').filter_map(|pair| pair.split(['=', '!']).next());
    let labels = compared.chain(inside("by (", ')'));
    labels.map(|label| label.trim().to_owned()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_exist() {
    let rows = rows("| `rlock_");
    let known: BTreeSet<_> = rows.iter().flat_map(|row| in_code(&row[0])).collect();
    let mut labels: BTreeSet<_> = rows.iter().flat_map(|row| in_code(&row[2])).collect();
    // Prometheus adds these labels.
    labels.extend(["le", "job", "instance"].map(str::to_owned));
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana.json")).expect("valid JSON");
    let alerts: serde_json::Value =
        serde_yaml_ng::from_str(&read("alerts.yml")).expect("valid YAML");
    let mut used = BTreeSet::new();
    for (document, least) in [(dashboard, 16), (alerts, 7)] {
        let mut queries = Vec::new();
        texts(&document, &["expr", "query"], &mut queries);
        queries.retain(|query| query.contains("rlock_"));
        assert!(queries.len() >= least, "{queries:#?}");
        for query in queries {
            let names = metrics_in(&query);
            assert!(names.is_subset(&known), "{query}: {names:?}");
            used.extend(names);
            let own = labels_in(&query);
            assert!(own.is_subset(&labels), "{query}: {own:?}");
        }
    }
    let unused: Vec<_> = known.difference(&used).collect();
    assert!(unused.is_empty(), "{unused:?} is in no panel and no alert");
}

#[test]
fn the_page_explains_every_alert() {
    let alerts: serde_json::Value =
        serde_yaml_ng::from_str(&read("alerts.yml")).expect("valid YAML");
    let mut names = Vec::new();
    texts(&alerts, &["alert"], &mut names);
    let names: BTreeSet<String> = names.into_iter().collect();
    let rows = rows("| `Rlock");
    let explained: BTreeSet<_> = rows.iter().flat_map(|row| in_code(&row[0])).collect();
    assert_eq!(explained, names);
}
