//! Compares `docs/operations.md`, the dashboard and the alert rules with the metrics and spans of the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
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
    let lock = client.lock("order:1").name(TEMPLATE).lease(ms(300));
    let guard = lock.acquire().await.expect("free");
    eventually(LONG, "it is renewed", async || {
        let renewed = !values("rlock_lease_margin_seconds", &[]).is_empty();
        renewed && !values("rlock_process_pause_seconds", &[]).is_empty()
    })
    .await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_page_lists_every_metric_with_its_type_unit_and_labels() {
    alone!(the_page_lists_every_metric_with_its_type_unit_and_labels);
    keep_metrics();
    use_locks().await;
    let mut labels = BTreeMap::<String, BTreeSet<String>>::new();
    for (name, own) in series() {
        let own = own.into_iter().map(|(label, _)| label);
        labels.entry(name).or_default().extend(own);
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
        let [name, kind, unit, labels, _] = &row[..] else {
            panic!("five cells: {row:?}");
        };
        let unit = Unit::from_string(unit).unwrap_or_else(|| panic!("{unit}"));
        let name = in_code(name).pop_first().expect("a name");
        (name, (kind.clone(), unit, in_code(labels)))
    });
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), described);
}

/// The page lists the values after the label, as in "`by`: `local`, `release`" or "`end` is
/// `released`".
#[tokio::test]
async fn the_page_lists_the_values_of_counters_that_begin_with_zero() {
    alone!(the_page_lists_the_values_of_counters_that_begin_with_zero);
    keep_metrics();
    use_locks().await;
    for (metric, label) in [
        ("rlock_lost_total", "cause"),
        ("rlock_handovers_total", "by"),
        ("rlock_renewals_total", "result"),
    ] {
        let rows = rows(&format!("| `{metric}`"));
        let text = in_code(rows[0].last().expect("cells"));
        let all = series();
        let own = all.iter().filter(|(name, _)| name == metric);
        let values: BTreeSet<_> = own
            .flat_map(|(_, labels)| labels)
            .filter(|(name, _)| name == label)
            .map(|(_, value)| value.clone())
            .collect();
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
    let lock = client.lock("order:1").name(TEMPLATE);
    lock.run(async {}).await.expect("free");
    let mut fields = BTreeMap::<&str, BTreeSet<String>>::new();
    for span in spans_of(TEMPLATE) {
        let names = span.names.iter().map(|name| (*name).to_owned());
        fields.entry(span.name).or_default().extend(names);
    }
    let mut listed = BTreeMap::<&str, BTreeSet<String>>::new();
    for first in ["| `lock.", "| `db.", "| `server.", "| `otel."] {
        for row in rows(first) {
            let name = in_code(&row[0]).pop_first().expect("a name");
            for span in ["lock.acquire", "lock.hold"] {
                if row[1] == "both" || row[1] == format!("`{span}`") {
                    listed.entry(span).or_default().insert(name.clone());
                }
            }
        }
    }
    assert_eq!(listed, fields);
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
    let mut labels = BTreeSet::new();
    for group in query.split("by (").skip(1) {
        let group = group.split(')').next().unwrap_or_default();
        labels.extend(group.split(',').map(|label| label.trim().to_owned()));
    }
    for selector in query.split('{').skip(1) {
        let selector = selector.split('}').next().unwrap_or_default();
        let compared = selector
            .split(',')
            .filter_map(|pair| pair.split_once(['=', '!']));
        labels.extend(compared.map(|(label, _)| label.trim().to_owned()));
    }
    labels
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_and_labels_that_exist() {
    let rows = rows("| `rlock_");
    let known: BTreeSet<_> = rows.iter().flat_map(|row| in_code(&row[0])).collect();
    let mut labels: BTreeSet<_> = rows.iter().flat_map(|row| in_code(&row[3])).collect();
    // Prometheus adds these labels.
    labels.extend(["le", "job", "instance"].map(str::to_owned));

    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana.json")).expect("valid JSON");
    let alerts: serde_json::Value =
        serde_yaml_ng::from_str(&read("alerts.yml")).expect("valid YAML");
    let mut used = BTreeSet::new();
    for (document, least) in [(dashboard, 16), (alerts, 6)] {
        let mut queries = Vec::new();
        texts(&document, &["expr", "query"], &mut queries);
        queries.retain(|query| query.contains("rlock_"));
        assert!(queries.len() >= least, "{queries:#?}");
        for query in queries {
            let names = metrics_in(&query);
            assert!(names.is_subset(&known), "{query}: {names:?}");
            let own = labels_in(&query);
            assert!(own.is_subset(&labels), "{query}: {own:?}");
            used.extend(names);
        }
    }
    let unused: Vec<_> = known.difference(&used).collect();
    assert!(unused.is_empty(), "{unused:?} is in no panel and no alert");
}

/// Grafana's types (`@grafana/schema`) require these fields. Without `showLegend` it hides the
/// legend.
#[test]
fn every_panel_has_the_fields_that_the_schema_of_grafana_requires() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("grafana.json")).expect("valid JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert_eq!(panels.len(), 16);
    for panel in panels {
        assert_eq!(panel["type"], "timeseries", "{panel:#}");
        assert!(panel["title"].is_string() && panel["gridPos"].is_object());
        let legend = &panel["options"]["legend"];
        assert_eq!(legend["showLegend"], true, "{panel:#}");
        assert!(legend["calcs"].is_array() && legend["displayMode"] == "list");
        let tooltip = &panel["options"]["tooltip"];
        assert!(tooltip["mode"].is_string() && tooltip["sort"].is_string());
    }
}

#[test]
fn every_alert_says_what_happened_and_how_severe_it_is() {
    let alerts: serde_yaml_ng::Value =
        serde_yaml_ng::from_str(&read("alerts.yml")).expect("valid YAML");
    let rules = alerts["groups"][0]["rules"].as_sequence().expect("rules");
    assert_eq!(rules.len(), 6);
    for rule in rules {
        let has = |path: [&str; 2]| rule[path[0]][path[1]].as_str().is_some();
        assert!(rule["alert"].as_str().is_some() && rule["expr"].as_str().is_some());
        assert!(has(["labels", "severity"]), "{rule:?}");
        assert!(has(["annotations", "summary"]), "{rule:?}");
        assert!(has(["annotations", "description"]), "{rule:?}");
    }
}

/// Skipped where `promtool`, which parses the queries, is not installed.
#[test]
fn promtool_accepts_the_alerts_where_it_is_installed() {
    let rules = docs().join("alerts.yml");
    match Command::new("promtool")
        .args(["check", "rules"])
        .arg(rules)
        .output()
    {
        Ok(checked) => {
            let output = String::from_utf8_lossy(&checked.stderr).into_owned();
            assert!(checked.status.success(), "{output}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}
