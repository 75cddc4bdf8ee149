//! The schedulers' recipes of the page on jobs: which ticks they pass, on the days when clocks change and by hand.

use std::{
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use rlock_testkit::RedisServer;

use crate::common::{PATIENT, Running, path};

const PAGE: &str = include_str!("../../../docs/jobs-and-leaders.md");

/// Returns the rest of the only line that begins with this text.
fn line(begins: &str) -> &'static str {
    let mut rests = PAGE.lines().filter_map(|line| line.strip_prefix(begins));
    let rest = rests.next().expect(begins);
    assert_eq!(rests.next(), None, "{begins}");
    rest
}

/// Returns the tick for which a recipe starts `rlock` at this time, in seconds since 1970, on a machine in this time zone.
async fn tick(recipe: &str, zone: &str, now: i64) -> i64 {
    // With `-d`, `date` shows a time of that day, and otherwise `now`.
    let programs = format!(
        r#"date() {{
            case $1 in
                -d) command date -d "$(command date -d @{now} +%F) $2" "$3" ;;
                *) command date -d @{now} "$@" ;;
            esac
        }}
        rlock() {{ printf '%s\n' "$@"; }}"#
    );
    let script = format!("{programs}\n{}", recipe.replace("exec ", ""));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("TZ", zone);
    let outcome = Running::start(command).end().await;
    let mut words = outcome.output.iter().skip_while(|word| *word != "--tick");
    let tick = words.nth(1).unwrap_or_else(|| panic!("{outcome:?}"));
    match tick.strip_prefix('@') {
        Some(seconds) => seconds.parse().expect("a number"),
        None => seconds(tick),
    }
}

/// Returns the seconds since 1970 of a time in UTC, as `2026-03-29T02:00Z`.
fn seconds(time: &str) -> i64 {
    let time = format!("{}:00Z", time.strip_suffix('Z').expect(time));
    let time = humantime::parse_rfc3339(&time).expect("a time");
    let since = time.duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("a time")
}

/// The rules of the time zones, written so that they need no database.
const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
const NEW_YORK: &str = "EST5EDT,M3.2.0,M11.1.0";

#[tokio::test]
async fn crons_recipe_in_utc_passes_the_scheduled_time_in_every_zone() {
    let recipe = line("0 2 * * *  ").replace(r"\%", "%");
    for zone in ["UTC0", BERLIN, NEW_YORK] {
        for day in [
            "2026-03-08",
            "2026-03-29",
            "2026-10-25",
            "2026-11-01",
            "2026-11-27",
        ] {
            let time = seconds(&format!("{day}T02:00Z"));
            assert_eq!(tick(&recipe, zone, time + 3).await, time, "{zone}, {day}");
        }
    }
}

#[tokio::test]
async fn crons_recipe_in_local_time_has_one_tick_each_day_within_its_window() {
    let recipe = line("30 2 * * *  ").replace(r"\%", "%");
    let (_, window) = recipe.split_once("--window ").expect("a window");
    let hours: i64 = window[..1].parse().expect("hours");
    assert_eq!(&window[1..3], "h ");
    // When cron starts the job, which it does twice on the day when clocks go back.
    for (zone, starts) in [
        (
            BERLIN,
            &[
                &["2026-03-28T01:30Z"][..],
                &["2026-03-29T01:00Z", "2026-03-29T01:30Z"],
                &["2026-03-30T00:30Z"],
            ],
        ),
        (
            BERLIN,
            &[
                &["2026-10-24T00:30Z"],
                &["2026-10-25T00:30Z", "2026-10-25T01:30Z"],
                &["2026-10-26T01:30Z"],
            ],
        ),
        (
            NEW_YORK,
            &[
                &["2026-03-07T07:30Z"],
                &["2026-03-08T07:00Z", "2026-03-08T07:30Z"],
                &["2026-03-09T06:30Z"],
            ],
        ),
        (
            NEW_YORK,
            &[
                &["2026-10-31T06:30Z"],
                &["2026-11-01T06:30Z", "2026-11-01T07:30Z"],
                &["2026-11-02T07:30Z"],
            ],
        ),
    ] {
        let mut ticks = Vec::new();
        for day in starts {
            for start in *day {
                let now = seconds(start);
                let tick = tick(&recipe, zone, now).await;
                assert!(
                    (tick..tick + hours * 3600).contains(&now),
                    "{zone}, {start}: @{tick}"
                );
                ticks.push(tick);
            }
        }
        ticks.dedup();
        assert_eq!(ticks.len(), starts.len(), "{zone}, {starts:?}: {ticks:?}");
    }
}

#[tokio::test]
async fn systemds_recipe_asks_for_the_last_tick_even_if_it_starts_late() {
    let recipe = line("ExecStart=/bin/sh -c ")
        .replace("$$", "$")
        .replace("%%", "%");
    let recipe = recipe.trim_matches('\'');
    for (now, expected) in [
        ("2026-11-27T02:00Z", "2026-11-27T02:00Z"),
        ("2026-11-27T01:55Z", "2026-11-27T02:00Z"),
        ("2026-11-27T02:59Z", "2026-11-27T02:00Z"),
        ("2026-11-27T23:59Z", "2026-11-27T02:00Z"),
        ("2026-11-28T01:29Z", "2026-11-27T02:00Z"),
    ] {
        let tick = tick(recipe, BERLIN, seconds(now)).await;
        assert_eq!(tick, seconds(expected), "{now}");
    }
}

/// Returns a command for the script of the recipe for Kubernetes, in a pod of this Job.
fn pod(server: &RedisServer, job: &str, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env_clear();
    command.envs([
        ("PATH", &*path()),
        ("RLOCK_URL", &server.url()),
        ("JOB", job),
        PATIENT,
    ]);
    command
}

/// Returns the script of the recipe for Kubernetes, with a window of this many seconds.
fn script(window: u64) -> String {
    let (_, script) = PAGE
        .split_once("              args:\n                - |\n")
        .expect("a script");
    let (script, _) = script.split_once("              env:\n").expect("the end");
    let script = script.replace("/srv/report", "echo ran");
    assert_eq!(script.matches("--window 30m").count(), 1);
    script.replace("--window 30m", &format!("--window {window}s"))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

#[tokio::test]
async fn the_recipe_for_kubernetes_runs_a_tick_once_and_a_job_by_hand_each_time() {
    let server = RedisServer::start();
    let minute = now() / 60;
    for (name, code, runs) in [
        (format!("report-{minute}"), 0, 1),
        (format!("report-{minute}"), 0, 0),
        (format!("report-{}", minute - 60), 79, 0),
        ("report-20261127".to_owned(), 64, 0),
        ("report-by-hand".to_owned(), 0, 1),
        ("report-by-hand-2".to_owned(), 0, 1),
    ] {
        let outcome = Running::start(pod(&server, &name, &script(1800)))
            .end()
            .await;
        let result = (outcome.code, outcome.output.len());
        assert_eq!(result, (Some(code), runs), "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_job_of_kubernetes_fails_if_the_store_is_down_for_its_window() {
    let server = RedisServer::start();
    server.kill();
    let (minute, end) = (now() / 60, now() + 2);
    let script = script(end - minute * 60);
    let pods = format!(
        "while :; do ({script}); code=$?; echo $code; case $code in {}) exit $code ;; esac; done",
        final_statuses().replace(", ", "|")
    );
    let mut pods = Running::start(pod(&server, &format!("report-{minute}"), &pods));
    while now() <= end {
        pods.expect("69").await;
    }
    server.restart();
    let outcome = pods.end().await.exits(79);
    assert!(outcome.log.contains("was missed: "), "{outcome:?}");
}

/// Returns the statuses after which the Job ends.
fn final_statuses() -> &'static str {
    let (_, rule) = PAGE.split_once("operator: In, values: [").expect("a rule");
    rule.split_once(']').expect("the end").0
}

#[test]
fn a_unit_and_a_job_end_after_the_same_statuses() {
    let unit = line("RestartPreventExitStatus=64 79");
    assert_eq!(format!("64 79{unit}"), final_statuses().replace(',', ""));
}
