//! Invalid options.

use std::time::Duration;

use rlock_core::{LockClient, LockError};

#[tokio::test]
async fn a_client_is_refused_options_that_make_no_sense() {
    let cases = [
        ("http://localhost/", "`http:…`"),
        ("", "``"),
        ("redis://", "redis"),
        ("redis://127.0.0.1:99999/", "redis"),
    ];
    for (url, named) in cases {
        let error = LockClient::connect(url).await.expect_err(url);
        assert!(
            matches!(error, LockError::InvalidOption { option: "url", .. }),
            "{error:?}"
        );
        assert!(
            error.to_string().contains(named.trim_matches('`')),
            "{error}"
        );
    }
    let builders = [
        LockClient::builder().default_lease(Duration::ZERO),
        LockClient::builder().default_wait(Duration::MAX),
        LockClient::builder().response_timeout(Duration::ZERO),
        LockClient::builder().connect_timeout(Duration::MAX),
        LockClient::builder().prefix("{x}"),
    ];
    for builder in builders {
        let error = builder.clone().in_memory().expect_err("out of bounds");
        assert!(
            matches!(error, LockError::InvalidOption { .. }),
            "{error:?}"
        );
        builder.connect("memory:").await.expect_err("out of bounds");
    }
}

#[test]
fn a_service_with_a_name_or_a_version_that_is_empty_or_long_is_refused() {
    let long = "x".repeat(257);
    let reason = "have 1 to 256 characters";
    for (name, version) in [
        ("", "1.4.2"),
        ("billing", ""),
        ("billing", &long),
        (&long, "1.4.2"),
    ] {
        let builder = LockClient::builder().service(name, version);
        let error = builder.in_memory().expect_err(reason);
        assert!(
            matches!(
                error,
                LockError::InvalidOption {
                    option: "service",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains(reason), "{error}");
    }
    let longest = "ü".repeat(256);
    let builder = LockClient::builder().service(&*longest, &*longest);
    builder.in_memory().expect("within the bounds");
}
