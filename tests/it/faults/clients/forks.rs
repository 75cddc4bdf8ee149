//! A process that forks: the child does not hold its parent's lock, and does not disturb the
//! parent.

use std::process::Command;

use rlock_testkit::{RedisServer, Worker};

use crate::common::{LONG, name};

/// Returns the output of `tests/src/bin/forker.rs` with this kind of client.
async fn fork(way: &str, url: &str) -> Vec<String> {
    let mut forker = Worker::start(Command::new(env!("CARGO_BIN_EXE_forker")).args([way, url]));
    let said = forker.remaining_lines(LONG).await;
    assert!(forker.wait(LONG).await.success(), "{said:?}");
    said
}

async fn fork_with_server(way: &str) -> Vec<String> {
    let server = RedisServer::start();
    let said = fork(way, &server.url()).await;
    assert!(!server.exists(&name("k")).await, "{said:?}");
    assert!(!server.exists(&name("other")).await, "{said:?}");
    assert!(!server.exists(&name("kept")).await, "{said:?}");
    said
}

#[tokio::test]
async fn a_forked_child_neither_acquires_nor_releases_and_fails_at_once() {
    for way in ["blocking", "async", "embedded"] {
        let said = match way {
            "embedded" => fork("blocking", "memory:forked").await,
            _ => fork_with_server(way).await,
        };
        for call in [
            "child nested",
            "child acquires",
            "child resumes",
            "child waits",
            "child tries",
            "child enters",
            "child keeps",
            "child closes",
        ] {
            let lines: Vec<_> = said.iter().filter(|line| line.starts_with(call)).collect();
            assert!(!lines.is_empty(), "{way}: no reply to {call}: {said:?}");
            for line in lines {
                assert!(line.contains("connect again after a fork"), "{way}: {line}");
            }
        }
        let says = |line: &str| said.iter().any(|said| said == line);
        assert!(says("child valid later false"), "{way}: {said:?}");
        assert!(!says("child releases"), "{way}: {said:?}");
        assert!(says("child done"), "{way}: {said:?}");

        let parents: Vec<_> = said
            .iter()
            .filter(|line| line.starts_with("parent acquires"))
            .collect();
        assert!(parents.len() > 5, "{way}: {said:?}");
        let failed = parents.iter().find(|line| line.contains("action"));
        assert_eq!(failed, None, "{way}");
        assert!(says("parent valid true"), "{way}: {said:?}");
        assert!(says("parent releases"), "{way}: {said:?}");
    }
}
