//! `rlock ls` lists the locks that are held.

use std::{collections::BTreeSet, process::Command};

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, eventually};

use crate::{
    common::{LONG, PATIENT, Running, hold, run, run_until, start},
    holders::{client, objects},
    once::tick_at,
    terminal::Shell,
};

#[tokio::test]
async fn ls_without_locks_prints_no_row_and_succeeds() {
    let server = RedisServer::start();
    for words in [
        &["ls"][..],
        &["ls", "--json"],
        &["ls", "--scan"],
        &["ls", "order:*"],
    ] {
        let outcome = run(&server, words).await.exits(0);
        assert_eq!((outcome.output.len(), &*outcome.log), (0, ""), "{words:?}");
    }
    assert!(server.keys("*").await.is_empty(), "nothing is taken");
}

#[tokio::test]
async fn a_row_has_key_holder_age_lease_and_waiters() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42", "-k", "job", "--lease", "10h"]).await;
    let _waiters = [(); 2].map(|()| start(&server, &["run", "-k", "order:42", "--", "true"]));
    let mut rows = Vec::new();
    eventually(LONG, "both wait", async || {
        rows = run(&server, &["ls"]).await.output;
        let are_described = rows.iter().all(|row| row.contains("rlock/"));
        are_described && rows.get(1).is_some_and(|row| row.ends_with('2'))
    })
    .await;
    let cells: Vec<Vec<&str>> = rows
        .iter()
        .map(|row| row.split_whitespace().collect())
        .collect();
    let [job, order] = &cells[..] else {
        panic!("{rows:?}")
    };
    assert_eq!((job[0], job[5]), ("job", "0"), "{rows:?}");
    assert_eq!((order[0], order[5]), ("order:42", "2"), "{rows:?}");
    for row in [job, order] {
        assert!(
            row[1].starts_with("rlock/") && row[1].contains('@'),
            "{rows:?}"
        );
        assert_eq!(row[2], holder.pid().to_string(), "{rows:?}");
        assert!(row[3].ends_with('s'), "{rows:?}");
        assert!(row[4].starts_with("9h5"), "{rows:?}");
    }
    let starts: BTreeSet<_> = rows.iter().map(|row| row.find("rlock/")).collect();
    assert_eq!(starts.len(), 1, "aligned: {rows:?}");
    let listed = run_until(&server, &["ls", "ord*:?2"], "order:42").await;
    assert_eq!(listed.output.len(), 1, "{listed:?}");
}

#[tokio::test]
async fn a_job_is_one_row_with_its_last_tick() {
    let server = RedisServer::start();
    for tick in [tick_at(-20), tick_at(-10), tick_at(0)] {
        for job in ["a", "b:c"] {
            let words = ["once", job, "--tick", &tick, "--", "true"];
            run(&server, &words).await.exits(0);
        }
    }
    let objects = objects(&run(&server, &["ls", "--json"]).await);
    assert_eq!(objects.len(), 6, "{objects:?}");
    let rows = run(&server, &["ls"]).await.output;
    let keys: Vec<_> = rows.iter().map(|row| row.split(' ').next()).collect();
    let last = [2, 5].map(|n: usize| objects[n]["key"].as_str());
    assert_eq!(keys, last, "{rows:?}");
}

#[tokio::test]
async fn with_json_each_lock_is_an_object() {
    let server = RedisServer::start();
    let builder = LockClient::builder()
        .service("billing", "1.4.2")
        .trace_id(|| Some("4bf92f35".to_owned()));
    let client = builder.connect(&server.url()).await.expect("it runs");
    let lock = client.lock("order:42").label("order:<id>");
    let guard = lock.acquire().await.expect("free");
    let outcome = run_until(&server, &["ls", "--json"], r#""service":"billing""#).await;
    let object = &objects(&outcome)[0];
    assert_eq!(object["key"], "order:42");
    assert_eq!(object["owner"], guard.owner());
    assert_eq!(object["token"], guard.token().as_u64());
    assert_eq!(
        (&object["depth"], &object["waiter_count"]),
        (&1.into(), &0.into())
    );
    assert!(
        object["lease_left_ms"].as_u64().expect("a lease") > 10_000,
        "{object}"
    );
    let holder = &object["holder"];
    assert_eq!(
        (&holder["service"], &holder["version"]),
        (&"billing".into(), &"1.4.2".into())
    );
    assert_eq!(
        (&holder["label"], &holder["trace_id"]),
        (&"order:<id>".into(), &"4bf92f35".into())
    );
    assert_eq!(holder["pid"], std::process::id());
}

#[tokio::test]
async fn a_scan_finds_locks_of_silent_holders_and_without_holders() {
    let server = RedisServer::start();
    let mut holder = hold(&server, &["-k", "stopped", "--lease", "10h"]).await;
    let client = client(&server).await;
    let kept = client.lock("kept").min_hold(LONG * 600);
    kept.run(async {}).await.expect("free");
    let retained = client.lock("retained").retain(LONG * 600);
    retained.run(async {}).await.expect("free");
    let _: u64 = server
        .command(&["HSET", "lock:{foreign}", "other", "1"])
        .await;
    holder.stop();
    let mut top = start(&server, &["top"]);
    let silent = "1 held, 0 waiters, 0 lost, 1 client does not reply";
    while !top.line().await.contains(silent) {}
    drop(top);
    // A store with few keys is scanned anyway.
    for words in [&["ls"][..], &["ls", "--scan"]] {
        let found = run_until(&server, words, "(retained)").await;
        let [foreign, kept, _, stopped] = &found.output[..] else {
            panic!("{found:?}")
        };
        assert!(
            foreign.contains("(other software)") && foreign.contains("no end"),
            "{found:?}"
        );
        assert!(kept.contains("(min_hold)"), "{found:?}");
        assert!(stopped.contains("(no reply)"), "{found:?}");
        assert_eq!(found.log, "", "{found:?}");
    }
    let fill = "for i = 1, 40000 do redis.call('SET', 'other:' .. i, '') end return 1";
    let _: u64 = server.command(&["EVAL", fill, "0"]).await;
    let found = run_until(&server, &["ls"], "(retained)").await;
    assert!(
        found.log.contains("1 client does not reply; `--scan`"),
        "{found:?}"
    );
    holder.kill();
    let mut log = String::new();
    eventually(LONG, "the client is gone", async || {
        log = run(&server, &["ls"]).await.log;
        !log.contains("reply")
    })
    .await;
    assert!(
        log.contains("not all keys of the store were scanned; `--scan`"),
        "{log}"
    );
    let found = run_until(&server, &["ls", "--scan"], "(retained)").await;
    assert!(found.output.iter().any(|row| row.contains("(min_hold)")));
    assert_eq!(found.log, "", "{found:?}");
}

#[tokio::test]
async fn foreign_data_hides_no_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let _guard = client.lock("order:42").acquire().await.expect("free");
    let foreign = r"
        local owner = '11111111-2222-4333-8444-555555555555:1'
        redis.call('HSET', 'lock:{count}', owner, 'many')
        redis.call('HSET', 'lock:{large}', owner, '99999999999999999999')
        redis.call('HSET', 'lock:{owner}', '\255\254', '\255')
        redis.call('HSET', 'lock:{name\255}', owner, '1')
        redis.call('SET', 'lock:{text}', '1')
        redis.call('HSET', 'lock:{queue}', owner, '1')
        redis.call('ZADD', 'lock:{queue}:queue', 1, '\255')
        redis.call('RPUSH', 'lock:{queue}:fence', '1')
        return 1";
    let _: u64 = server.command(&["EVAL", foreign, "0"]).await;
    let found = run(&server, &["ls", "--scan"]).await;
    assert_eq!((found.code, &*found.log), (Some(0), ""), "{found:?}");
    let keys = found.output.iter().filter_map(|row| row.split(' ').next());
    let expected = ["count", "large", "order:42", "owner", "queue", "text"];
    assert!(keys.eq(expected), "{found:?}");
    for row in [3, 5] {
        assert!(found.output[row].contains("(other software)"), "{found:?}");
    }
    let forced = ["release", "owner", "--force", "--yes"];
    let forced = run(&server, &forced).await.exits(69);
    assert!(forced.log.contains("delete the key"), "{forced:?}");
}

#[tokio::test]
async fn a_terminal_shows_a_heading_and_lines_that_fit() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let _guard = client
        .lock("order:".repeat(20))
        .acquire()
        .await
        .expect("free");
    let mut shell = Shell::start(&server);
    shell.type_line("stty cols 60; rlock ls");
    shell.shows("KEY").await;
    shell.shows("WAITERS").await;
    shell.shows("order:").await;
    shell.is_back_after(0).await;
    let screen = shell.screen();
    let row = screen.lines().find(|line| line.contains('…'));
    let row = row.expect(&screen).trim_end();
    assert!(row.chars().count() <= 60 && row.ends_with(" 0"), "{row:?}");
}

#[tokio::test]
async fn ls_repeats_its_list_until_its_output_is_closed() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    let short = ["--response-timeout", "2s"];
    let mut watching = start(&server, &[&["ls", "--watch", "100ms"], &short[..]].concat());
    for _ in 0..2 {
        while !watching.line().await.starts_with("order:42") {}
        assert_eq!(watching.line().await, "");
    }
    guard.release().await.expect("held");
    // A list without locks is only an empty line, and the lists before it end with one.
    let mut before = watching.line().await;
    loop {
        let line = watching.line().await;
        if line.is_empty() && before.is_empty() {
            break;
        }
        before = line;
    }
    // An outage is logged, and the list goes on.
    server.kill();
    watching.logs("could not list").await;
    server.restart();
    let _guard = client.lock("job").wait(LONG).acquire().await.expect("free");
    while !watching.line().await.starts_with("job") {}

    let mut command = Command::new("sh");
    let script = r#""$0" ls --watch 100ms | head -n 1; echo ended"#;
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_rlock")])
        .envs([PATIENT])
        .env("RLOCK_URL", server.url());
    let outcome = Running::start(command).end().await;
    assert_eq!(
        (outcome.output.len(), outcome.output[1].as_str()),
        (2, "ended"),
        "{outcome:?}"
    );

    let mut shell = Shell::start(&server);
    shell.type_line("rlock ls --watch 100ms");
    shell.shows("\u{1b}[H\u{1b}[2JKEY").await;
    shell.shows("\u{1b}[H\u{1b}[2JKEY").await;
    shell.press(crate::terminal::CTRL_C);
    shell.is_back_after(130).await;
}
