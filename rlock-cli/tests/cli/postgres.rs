//! `rlock postgres schema`, as an operator uses it with psql.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use rlock_testkit::PostgresServer;

use crate::common::{Outcome, run};

/// Executes the output of a command.
fn psql(server: &PostgresServer, sql: &Outcome) -> Output {
    let mut psql = Command::new("psql");
    psql.args(["-q", "-v", "ON_ERROR_STOP=1", &server.url()]);
    psql.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut psql = psql.spawn().expect("psql is installed");
    let text = sql.output.join("\n");
    let mut input = psql.stdin.take().expect("piped");
    // It may end before it has read all.
    let _ = input.write_all(text.as_bytes());
    drop(input);
    psql.wait_with_output().expect("it ends")
}

async fn schema(url: &str, options: &[&str]) -> Outcome {
    let printed = run(url, &[&["postgres", "schema"], options].concat()).await;
    assert_eq!((printed.code, &*printed.log), (Some(0), ""), "{printed:?}");
    printed
}

#[tokio::test]
async fn psql_executes_the_schema_again_and_again_and_its_role_locks() {
    let server = PostgresServer::start();
    server.execute("CREATE ROLE \"app-1\" LOGIN").await;
    let url = server.url().replace("postgres@", "app-1@");
    let words = ["run", "-k", "a", "--", "echo", "ran"];
    let refused = run(&url, &words).await;
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(
        refused.log.contains("`rlock postgres schema`"),
        "{refused:?}"
    );
    for (store, options) in [
        ("", &["--role", "app-1"][..]),
        (
            "",
            &["--role", "app-1", "--schema", "s", "--durability", "memory"],
        ),
        // The URL of the service says all.
        (
            &format!("{url}?schema=u&durability=memory"),
            &["--role", "app-1"],
        ),
    ] {
        let sql = schema(store, options).await;
        for _ in 0..2 {
            let done = psql(&server, &sql);
            assert!(done.status.success(), "{done:?}");
        }
    }
    for options in [
        "",
        "?schema=s&durability=memory",
        "?schema=u&durability=memory",
    ] {
        let ran = run(&format!("{url}{options}"), &words).await;
        assert_eq!(ran.output, ["ran"], "{ran:?}");
    }
    let other = schema("", &["--schema", "s"]).await;
    let refused = psql(&server, &other);
    assert!(!refused.status.success(), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("have the durability `memory`"), "{text}");
}

#[tokio::test]
async fn the_manual_has_a_page_for_a_subcommand_of_two_words() {
    let page = run("", &["man", "postgres", "schema"]).await;
    assert_eq!(page.code, Some(0), "{page:?}");
    assert!(
        page.output.join("\n").contains("\\-\\-durability"),
        "{page:?}"
    );
}
