//! The label `lock`, and recorders that are installed late.

use rlock_core::LockClient;

use super::{is, of_lock};
use crate::common::{
    alone::alone,
    log::{keep_log, logged_of},
    recorder::{keep_metrics, metric, series},
};

#[tokio::test]
async fn a_lock_without_a_name_is_unnamed_and_keys_are_no_labels() {
    const KEY: &str = "secret-4711";
    keep_metrics();
    let client = LockClient::in_memory();
    client.lock(KEY).run(async {}).await.expect("free");
    assert!(metric("rlock_held", &[("lock", "unnamed")]).is_some());
    for (name, labels) in series() {
        for (label, value) in labels {
            assert!(!value.contains(KEY), "{name}: {label}={value}");
        }
    }
}

#[tokio::test]
async fn two_sites_of_the_same_name_share_their_metrics() {
    keep_metrics();
    let client = LockClient::in_memory();
    for n in 0..3 {
        let name: &'static str = String::from("same-name:<id>").leak();
        let lock = client.lock(format!("same-name:{n}")).name(name);
        lock.run(async {}).await.expect("free");
    }
    let labels = [("lock", "same-name:<id>"), ("outcome", "granted")];
    let granted = crate::common::recorder::values("rlock_acquire_duration_seconds", &labels);
    assert_eq!(granted.len(), 3);
}

#[tokio::test]
async fn beyond_two_hundred_names_locks_are_counted_as_other_with_one_warning() {
    alone!(beyond_two_hundred_names_locks_are_counted_as_other_with_one_warning);
    keep_log();
    keep_metrics();
    let client = LockClient::in_memory();
    for round in 0..2 {
        for n in 0..210 {
            let name: &'static str = format!("template-{n}:<id>").leak();
            let lock = client.lock(format!("k:{n}")).name(name);
            let guard = lock.acquire().await.expect("free");
            let label = if n < 200 { name } else { "other" };
            assert!(is(of_lock("rlock_held", label), 1), "{round}: {n}");
            guard.release().await.expect("held");
        }
    }
    let all = series();
    let mut locks: Vec<_> = all
        .iter()
        .flat_map(|(_, labels)| labels)
        .filter(|(label, _)| label == "lock")
        .map(|(_, value)| value)
        .collect();
    locks.sort();
    locks.dedup();
    assert_eq!(locks.len(), 201, "{locks:?}");
    let warnings = logged_of("too many lock names");
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains("WARN"), "{}", warnings[0]);
}

#[tokio::test]
async fn a_recorder_that_is_installed_late_sees_what_begins_from_then_on() {
    alone!(a_recorder_that_is_installed_late_sees_what_begins_from_then_on);
    let client = LockClient::in_memory();
    let lock = client.lock("k").name("late:<id>");
    let early = lock.acquire().await.expect("free");
    keep_metrics();
    early.release().await.expect("held");
    let late = lock.acquire().await.expect("free");
    assert!(is(of_lock("rlock_held", "late:<id>"), 1));
    late.release().await.expect("held");
    assert!(is(of_lock("rlock_held", "late:<id>"), 0));
}
