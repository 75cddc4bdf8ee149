//! `rlock run --shared` and `--permits`, and how they are shown.

use rlock_testkit::{RedisServer, eventually};

use crate::{
    common::{LONG, hold, hold_stubbornly, run, run_until},
    holders::objects,
};

#[tokio::test]
async fn shared_runs_go_on_beside_each_other_and_exclusive_ones_wait() {
    let server = RedisServer::start();
    let readers = [
        hold_stubbornly(&server, &["-s", "-k", "data"]).await,
        hold_stubbornly(&server, &["--shared", "-k", "data"]).await,
    ];
    let words = ["run", "-n", "-k", "data", "--", "echo", "ran"];
    assert_eq!(run(&server.url(), &words).await.code, Some(75));
    let outcome = run(&server.url(), &["inspect", "data"]).await;
    let mode = "mode      shared, 2 holders".to_owned();
    assert!(outcome.output.contains(&mode), "{outcome:?}");
    let outcome = run(&server.url(), &["inspect", "data", "--json"]).await;
    let object = &objects(&outcome)[0];
    assert_eq!(
        (&object["mode"], &object["holders"], &object["permits"]),
        (&"shared".into(), &2.into(), &None::<u32>.into())
    );
    assert_eq!(object["other_owners"].as_array().map(Vec::len), Some(1));
    eventually(LONG, "both are listed", async || {
        let listed = run(&server.url(), &["ls"]).await.output;
        listed
            .iter()
            .filter(|line| line.contains(" (shared)"))
            .count()
            == 2
    })
    .await;
    let asked = ["release", "--ask", "--yes", "data"];
    run_until(&server.url(), &asked, "held by 2 holders, of which one is").await;
    let text = "lock `data`: its holders stop their bodies, and then release it";
    let asked = run_until(&server.url(), &asked, text).await;
    assert_eq!(asked.code, Some(0), "{asked:?}");
    for reader in readers {
        assert_eq!(reader.end().await.code, Some(124));
    }
    eventually(LONG, "it is free", async || {
        run(&server.url(), &words).await.code == Some(0)
    })
    .await;
}

#[tokio::test]
async fn as_many_runs_go_on_at_once_as_there_are_permits() {
    let server = RedisServer::start();
    let permits = ["--permits", "2", "-k", "exports"];
    let one = hold(&server, &permits).await;
    let _other = hold(&server, &permits).await;
    let words = [&["run", "-n"], &permits[..], &["--", "echo", "ran"]].concat();
    let outcome = run(&server.url(), &words).await;
    assert_eq!(
        (outcome.code, outcome.output.len()),
        (Some(75), 0),
        "{outcome:?}"
    );
    assert_eq!(one.end().await.code, Some(0));
    assert_eq!(run(&server.url(), &words).await.output, ["ran"]);
}

#[tokio::test]
async fn options_that_make_no_sense_together_are_refused() {
    let server = RedisServer::start();
    for words in [
        &["--permits", "0"][..],
        &["--permits", "many"],
        &["--shared", "--permits", "2"],
    ] {
        let words = [&["run", "-k", "a"], words, &["--", "true"]].concat();
        let outcome = run(&server.url(), &words).await;
        assert_eq!(outcome.code, Some(64), "{outcome:?}");
    }
}
