//! `rlock run --shared`, `--permits` and `--take`, and how they are shown.

use rlock_testkit::{RedisServer, eventually};

use crate::{
    common::{LONG, Running, hold, hold_stubbornly, is_running, run, run_until, start},
    holders::objects,
};

#[tokio::test]
async fn shared_runs_go_on_at_once_and_exclusive_ones_wait() {
    let server = RedisServer::start();
    let readers = [
        hold_stubbornly(&server, &["-s", "-k", "data"]).await,
        hold_stubbornly(&server, &["--shared", "-k", "data"]).await,
    ];
    let words = ["run", "-n", "-k", "data", "--", "echo", "ran"];
    run(&server, &words).await.exits(75);
    let outcome = run(&server, &["inspect", "data"]).await;
    let mode = "mode      shared, 2 holders".to_owned();
    assert!(outcome.output.contains(&mode), "{outcome:?}");
    let outcome = run(&server, &["inspect", "data", "--json"]).await;
    let object = &objects(&outcome)[0];
    assert_eq!(
        (&object["mode"], &object["holder_count"], &object["permits"]),
        (&"shared".into(), &2.into(), &None::<u32>.into())
    );
    assert_eq!(object["other_owners"].as_array().map(Vec::len), Some(1));
    let help = run(&server, &["inspect", "--help"]).await.output;
    let help = help.join(" ");
    for field in [
        "mode",
        "permits",
        "permits_taken",
        "holder_count",
        "other_owners",
    ] {
        assert!(object.get(field).is_some(), "{field}: {object}");
        assert!(help.contains(field), "{field}: {help}");
    }
    eventually(LONG, "both are listed", async || {
        let listed = run(&server, &["ls"]).await.output;
        listed
            .iter()
            .filter(|line| line.contains(" (shared)"))
            .count()
            == 2
    })
    .await;
    let asked = ["release", "--revoke", "--yes", "data"];
    run_until(
        &server,
        &asked,
        ", and by 1 other holder; revoking it from all",
    )
    .await;
    let text = "lock `data`: its holders stop their bodies, and then release it";
    run_until(&server, &asked, text).await.exits(0);
    for reader in readers {
        reader.end().await.exits(124);
    }
    eventually(LONG, "it is free", async || {
        run(&server, &words).await.code == Some(0)
    })
    .await;
}

/// Waits for more than this many messages. Returns whether the process still runs, so that it has asked a holder again:
/// it ends if a holder is too busy to reply.
async fn asks_on(server: &RedisServer, asking: &Running, messages: u64) -> bool {
    let before = server.command_calls("publish").await;
    eventually(LONG, "it asks a holder, or ends", async || {
        let calls = server.command_calls("publish").await - before;
        calls > messages || !is_running(asking.pid())
    })
    .await;
    is_running(asking.pid())
}

/// The store names one of several holders, which is not always the same one.
#[tokio::test]
async fn an_asked_lock_is_released_when_its_last_holder_has_released_it() {
    let server = RedisServer::start();
    let mut readers = [
        hold_stubbornly(&server, &["-s", "-k", "data"]).await,
        hold_stubbornly(&server, &["-s", "-k", "data"]).await,
    ];
    let words = ["release", "--revoke", "--yes", "--wait", "1h", "data"];
    let asking = loop {
        let asking = start(&server, &words);
        // The plan and the two requests take six messages with their replies.
        if asks_on(&server, &asking, 6).await {
            break asking;
        }
    };
    let [first, last] = &mut readers;
    first.send("");
    eventually(LONG, "one has released it", async || {
        let outcome = run(&server, &["inspect", "data", "--json"]).await;
        objects(&outcome)[0]["holder_count"] == 1
    })
    .await;
    let waits = asks_on(&server, &asking, 4).await;
    assert!(waits, "the other one still holds it");
    last.send("");
    let outcome = asking.end().await;
    assert_eq!(
        (outcome.code, &outcome.output[..]),
        (
            Some(0),
            &["lock `data`: its holders have released it".to_owned()][..]
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn the_plan_and_the_outcome_of_a_release_speak_of_all_holders() {
    let server = RedisServer::start();
    let _readers = [
        hold(&server, &["-s", "-k", "data"]).await,
        hold(&server, &["-s", "-k", "data"]).await,
    ];
    let token = ["release", "--token", "1", "--yes", "data"];
    let outcome = run(&server, &token).await.exits(1);
    let plan = "other holder; taking it from the one with the token 1; its body may run on";
    let reason = "is not released: no holder that replies has the token 1";
    for text in [plan, reason] {
        assert!(outcome.log.contains(text), "{outcome:?}");
    }
    let outcome = run(&server, &["release", "--force", "--yes", "data"]).await;
    let plan = "other holder; taking it from all of them; their bodies may run on";
    assert!(outcome.log.contains(plan), "{outcome:?}");
    assert_eq!(outcome.output, ["lock `data`: taken from all its holders"]);
}

#[tokio::test]
async fn of_several_holders_only_a_silent_one_keeps_a_lock_that_is_asked_for() {
    let server = RedisServer::start();
    let options = ["-s", "-k", "data", "--lease", "1h"];
    let mut silent = hold(&server, &options).await;
    let other = hold_stubbornly(&server, &options).await;
    silent.stop();
    let asked = ["release", "--revoke", "--yes", "data"];
    let reason =
        "it was revoked from those of its holders that reply; take it from all with `--force`";
    eventually(LONG, "the other one replies", async || {
        let outcome = run(&server, &asked).await.exits(1);
        assert!(outcome.log.contains(reason), "{outcome:?}");
        other.log().contains("a lock was lost")
    })
    .await;
    other.end().await.exits(124);
    assert!(server.exists("lock:{data}").await, "one still holds it");
}

#[tokio::test]
async fn a_run_that_takes_several_permits_is_shown_with_them() {
    let server = RedisServer::start();
    let permits = ["--permits", "8", "-k", "exports"];
    let _several = hold(&server, &[&permits[..], &["--take", "6"]].concat()).await;
    let _one = hold(&server, &permits).await;
    let words = [&["run", "-n"], &permits[..], &["--take", "2", "--", "true"]].concat();
    run(&server, &words).await.exits(75);
    let outcome = run(&server, &["inspect", "exports"]).await;
    let mode = "mode      7 of 8 permits".to_owned();
    assert!(outcome.output.contains(&mode), "{outcome:?}");
    let outcome = run(&server, &["inspect", "exports", "--json"]).await;
    let object = &objects(&outcome)[0];
    let shown = ["permits", "permits_taken", "holder_count"].map(|field| object[field].as_u64());
    assert_eq!(shown, [Some(8), Some(7), Some(2)], "{object}");
    eventually(LONG, "each has a row", async || {
        let rows = run(&server, &["ls"]).await.output.join(" ");
        rows.contains("(6 of 8 permits)") && rows.contains("(1 of 8 permits)")
    })
    .await;
}
