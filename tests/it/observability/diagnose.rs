//! A service examines its own store by `diagnose`. The tests of `rlock doctor` cover the checks.

use std::{io, sync::Arc};

use pollster::block_on;
use rlock_core::{
    Credentials,
    diagnose::{self, Finding, Severity},
};
use rlock_testkit::{Authority, RedisServer};

use crate::common::{LONG, acl, assert_invalid, assert_unavailable, builder};

fn of<'a>(check: &str, findings: &'a [Finding]) -> &'a Finding {
    let mut found = findings.iter().filter(|finding| finding.check == check);
    found
        .next()
        .unwrap_or_else(|| panic!("{check}: {findings:#?}"))
}

#[tokio::test]
async fn a_service_examines_its_store_with_its_own_certificates_credentials_and_prefix() {
    let authority = Arc::new(Authority::new());
    let rules = acl::only(&[
        &acl::of_a_server(),
        "resetkeys resetchannels ~billing:* &billing:*",
    ]);
    let server = RedisServer::builder()
        .tls_of(&authority)
        .acl_user("locker", &rules)
        .start();
    let log_in = || async { Ok::<_, io::Error>(Credentials::new("locker", "secret")) };
    let builder = builder()
        .response_timeout(LONG)
        .prefix("billing:")
        .credentials(log_in);
    let trusting = builder.clone().tls_ca(authority.ca_pem());
    let url = server.tls_url();
    let address = url.trim_start_matches("rediss://").trim_end_matches('/');
    let findings = diagnose::store(&url, &trusting).await;
    let findings = findings.expect("it replies");
    assert_eq!(of("grant", &findings).severity, Severity::Good);
    let permissions = of("permissions", &findings);
    assert_ne!(permissions.severity, Severity::Unsafe, "{permissions}");
    for finding in &findings {
        assert_eq!(finding.server, address, "{finding}");
    }

    let findings = diagnose::store(&url, &trusting.prefix("lock:")).await;
    let findings = findings.expect("it replies");
    assert_eq!(of("grant", &findings).severity, Severity::Unsafe);

    let failed = diagnose::store(&url, &builder).await;
    let said = assert_unavailable(failed, "the authority is unknown");
    assert!(
        said.contains(address) && said.contains("certificate"),
        "{said}"
    );
}

#[test]
fn any_executor_awaits_the_findings_which_name_the_fault_and_the_remedy() {
    let server = RedisServer::builder()
        .config("maxmemory", "64mb")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let builder = builder().response_timeout(LONG);
    let findings = block_on(diagnose::store(server.url(), &builder)).expect("it replies");
    let worst = findings.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(Severity::Unsafe));
    let eviction = of("eviction", &findings);
    assert_eq!(eviction.severity, Severity::Unsafe);
    assert_eq!(
        eviction.remedy.as_deref(),
        Some("set `maxmemory-policy noeviction`")
    );
    assert_eq!(
        eviction.to_string(),
        format!(
            "{}: eviction: maxmemory-policy allkeys-lru may evict locks; set `maxmemory-policy noeviction`",
            server.address()
        )
    );
}

#[tokio::test]
async fn diagnose_refuses_the_embedded_store_and_an_invalid_prefix() {
    let said = assert_invalid(diagnose::store("memory:", &builder()).await, "no server");
    assert!(said.contains("`memory:"), "{said}");
    let invalid = diagnose::store("redis://h/", &builder().prefix("{")).await;
    assert_invalid(invalid, "an invalid prefix");
}
