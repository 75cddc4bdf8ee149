//! The schema of locks in Postgres: who creates it, versions next to each other, roles, and what an examination finds there.

use std::time::Duration;

use rlock_core::{
    LockClient, StoreUrl,
    diagnose::{self, Finding, Severity},
};
use rlock_testkit::{PostgresServer, assert_taken, eventually};

use super::{super::assert_soon_extended, connect, try_connect, waiting_at};
use crate::common::{LONG, assert_refused, assert_unavailable, builder, its_turn};

/// Returns the SQL of a migration.
fn migration(url: &str, role: Option<&str>) -> String {
    let sql = StoreUrl::from(url).postgres_schema(role);
    sql.expect("it is a URL of Postgres")
}

/// Deployments execute the migration again, even while clients run.
#[tokio::test]
async fn a_role_that_may_create_nothing_needs_no_more_than_a_migration() {
    let server = PostgresServer::start();
    server.execute("CREATE ROLE app LOGIN").await;
    // As administrators do who grant each permission by name.
    let defaults = "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC";
    server.execute(defaults).await;
    let url = server.url().replace("postgres@", "app@");
    let text = assert_refused(try_connect(&url).await, "it may not create the schema");
    assert!(text.contains("`rlock postgres schema`"), "{text}");

    server.execute(&migration(&url, None)).await;
    let text = assert_refused(try_connect(&url).await, "no permission");
    assert!(text.contains("`rlock postgres schema`"), "{text}");

    server.execute(&migration(&url, Some("app"))).await;
    let client = try_connect(&url).await.expect("it may");
    let guard = client.lock("k").acquire().await.expect("free");
    server.execute(&migration(&url, Some("app"))).await;
    assert_taken(&connect(&server).await, "k").await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_migration_refuses_tables_that_its_clients_cannot_use() {
    let server = PostgresServer::start();
    drop(connect(&server).await);
    let session = server.session().await;
    let refused = async |url: &str| {
        let refused = session.batch_execute(&migration(url, None)).await;
        let error = refused.expect_err("other tables");
        error
            .as_db_error()
            .expect("of the server")
            .message()
            .to_owned()
    };
    let memory = refused("postgres://h/?durability=memory").await;
    assert!(memory.contains("have the durability `disk`"), "{memory}");
    let comment = "COMMENT ON TABLE rlock.lock IS NULL";
    server.execute(comment).await;
    let foreign = refused("postgres://h/").await;
    assert!(
        foreign.contains("has tables of other software"),
        "{foreign}"
    );
}

#[tokio::test]
async fn a_schema_of_another_version_is_refused_and_another_schema_is_apart() {
    let server = PostgresServer::start();
    let client = connect(&server).await;
    let _guard = client.lock("k").acquire().await.expect("free");
    let apart = format!("{}?schema=apart", server.url());
    let other = try_connect(&apart).await.expect("it runs");
    let other = other.lock("k").try_acquire().await.expect("a reply");
    let _other = other.expect("another lock");
    server
        .execute("COMMENT ON TABLE rlock.lock IS 'tables of rlock, version 0'")
        .await;
    let said = assert_refused(try_connect(&server.url()).await, "another version");
    assert!(said.contains("version 0"), "{said}");
    assert!(said.contains("?schema="), "{said}");
}

/// As in an upgrade of the service, instance by instance.
#[tokio::test]
async fn clients_of_two_versions_share_the_locks_while_a_service_is_upgraded() {
    let server = PostgresServer::start();
    let old = connect(&server).await;
    let guard = old.lock("k").acquire().await.expect("free");
    // The functions of the old version have other names.
    let rename = "DO $$ DECLARE f record; BEGIN
        FOR f IN SELECT oid::regprocedure AS it, proname FROM pg_proc WHERE pronamespace = 'rlock'::regnamespace LOOP
          EXECUTE format('ALTER FUNCTION %s RENAME TO %I', f.it, f.proname || '_old');
        END LOOP; END $$";
    server.execute(rename).await;
    let new = connect(&server).await;
    let acquires = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'acquire%'";
    assert_eq!(server.number(acquires).await, 2);
    assert_taken(&new, "k").await;
    assert_soon_extended(&guard).await;
    let waiter = waiting_at(&new, 1).await;
    guard.release().await.expect("it is held");
    drop(its_turn(waiter).await);
}

#[tokio::test]
async fn a_schema_that_was_dropped_under_its_clients_is_created_again() {
    const RELEASES: &str = "DO $$ DECLARE f regprocedure; BEGIN
        FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'rlock'::regnamespace AND proname LIKE 'release%' LOOP
          EXECUTE 'DROP FUNCTION ' || f;
        END LOOP; END $$";
    let server = PostgresServer::start();
    let client = connect(&server).await;
    for dropped in ["DROP SCHEMA rlock CASCADE", RELEASES] {
        drop(client.lock("k").acquire().await.expect("free"));
        server.execute(dropped).await;
        let guard = client.lock("k").acquire().await.expect("free");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_client_waits_while_another_one_creates_the_schema() {
    let server = PostgresServer::start();
    let session = server.session().await;
    let creates = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('rlock rlock', 0))";
    session.batch_execute(creates).await.expect("it may");
    let short = Duration::from_millis(40);
    let builder = LockClient::builder().response_timeout(short);
    let url = server.url();
    let connects = tokio::spawn(builder.connect_timeout(LONG).connect(url));
    eventually(LONG, "it waits", async || {
        server
            .number("SELECT count(*) FROM pg_locks WHERE NOT granted")
            .await
            == 1
            || connects.is_finished()
    })
    .await;
    // Longer than a request waits for a row.
    tokio::time::sleep(short).await;
    session.batch_execute("COMMIT").await.expect("it may");
    connects.await.expect("no panic").expect("it is created");
}

/// Returns the findings of a check.
async fn examined(url: &str, check: &str) -> Vec<Finding> {
    let findings = diagnose::store(url, &builder()).await;
    let findings = findings.expect("it runs").into_iter();
    findings.filter(|finding| finding.check == check).collect()
}

/// Asserts that an examination finds something of this severity, with this text.
async fn assert_finds(url: &str, check: &str, severity: Severity, text: &str) {
    let findings = examined(url, check).await;
    let is_it = |one: &Finding| one.severity == severity && one.to_string().contains(text);
    assert!(
        findings.iter().any(is_it),
        "no {severity:?} `{text}`: {findings:#?}"
    );
}

#[tokio::test]
async fn an_examination_names_what_a_database_lacks_for_locks() {
    let server = PostgresServer::start();
    let url = server.url();
    for good in ["version", "clock", "connections", "schema", "grant"] {
        let found = examined(&url, good).await;
        let are_good = found.iter().all(|one| one.severity == Severity::Good);
        assert!(are_good && !found.is_empty(), "{good}: {found:?}");
    }
    assert_finds(&url, "persistence", Severity::Advice, "fsync off").await;
    let memory = format!("{url}?schema=other&durability=memory");
    let forgets = "a crash or a failover forgets all locks";
    assert_finds(&memory, "persistence", Severity::Advice, forgets).await;
    server.kill();
    let outcome = diagnose::store(url, &builder()).await;
    assert_unavailable(outcome, "it is down");
}

#[tokio::test]
async fn an_examination_compares_the_schema_and_the_permissions() {
    let server = PostgresServer::start();
    server.execute("CREATE ROLE app LOGIN").await;
    let (url, app) = (server.url(), server.url().replace("postgres@", "app@"));
    let may_not = "lacks its tables, and this role may not create it";
    assert_finds(&app, "schema", Severity::Unsafe, may_not).await;
    assert_finds(
        &url,
        "schema",
        Severity::Good,
        "which the first client creates",
    )
    .await;
    assert_finds(&url, "schema", Severity::Good, "as this version needs it").await;
    let usage = "the role `app` lacks USAGE on the schema `rlock`; execute what `rlock postgres schema --role app` prints";
    assert_finds(&app, "permissions", Severity::Unsafe, usage).await;
    server.execute(&migration(&app, Some("app"))).await;
    assert_finds(&app, "permissions", Severity::Good, "all that locks use").await;
    server
        .execute("REVOKE DELETE ON rlock.waiter FROM app")
        .await;
    assert_finds(&app, "permissions", Severity::Unsafe, "on `waiter`").await;

    let change = "DO $$ DECLARE text text; BEGIN
        SELECT pg_get_functiondef(oid) INTO text FROM pg_proc WHERE proname LIKE 'inspect%';
        EXECUTE replace(text, 'holders,', 'holders ,'); END $$";
    server.execute(change).await;
    assert_finds(
        &url,
        "schema",
        Severity::Unsafe,
        "functions that somebody has changed: `",
    )
    .await;
    let other = "CREATE FUNCTION rlock.acquire_0123abcd() RETURNS int LANGUAGE sql AS 'SELECT 1'";
    server
        .execute(&format!("{}; {other}", migration(&url, None)))
        .await;
    assert_finds(&url, "schema", Severity::Good, "as this version needs it").await;
    assert_finds(
        &url,
        "schema",
        Severity::Advice,
        "of other versions: `0123abcd`",
    )
    .await;
    // The end of the migration.
    let sql = migration(&url, None);
    let (_, drop) = sql.rsplit_once("-- DO $drop$").expect("at the end");
    let drop = format!("DO $drop${}", drop.replace("\n-- ", "\n"));
    server.execute(&drop).await;
    let versions = examined(&url, "schema").await;
    assert!(
        versions.iter().all(|one| one.severity == Severity::Good),
        "{versions:?}"
    );

    let memory = format!("{url}?durability=memory");
    assert_finds(
        &memory,
        "schema",
        Severity::Unsafe,
        "have the durability `disk`",
    )
    .await;
    server
        .execute("COMMENT ON TABLE rlock.lock IS 'tables of rlock, version 0'")
        .await;
    assert_finds(&url, "schema", Severity::Unsafe, "version 0").await;
}
