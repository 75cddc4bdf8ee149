//! Which URLs name which stores, and what errors show of them.

use proptest::prelude::*;
use redis::ProtocolVersion;

use super::*;

fn server(url: &str) -> ServerEndpoint {
    match Endpoint::parse(url) {
        Ok(Endpoint::Server(server)) => server,
        Ok(_) => panic!("{url} names no server"),
        Err(error) => panic!("{error}"),
    }
}

fn fixed(url: &str) -> ConnectionInfo {
    match server(url) {
        ServerEndpoint::Fixed(info) => info,
        ServerEndpoint::Master { .. } => panic!("{url} names Sentinels"),
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_second_address_of_postgres_may_name_a_user() {
    for address in ["v@db:5432/other", "v:p@db"] {
        let url = format!("postgres://u@pooler/app?direct={address}");
        assert!(matches!(Endpoint::parse(&url), Ok(Endpoint::Postgres(_))));
    }
    refusal("postgres://u:a/s3cret@h/app?direct=db");
    refusal("postgres://u:a?s3cret@h/app");
    refusal("postgres://u:a@s3cret@h/app");
}

/// Returns the error for a URL, which never shows the password.
fn refusal(url: &str) -> String {
    let error = Endpoint::parse(url).err().expect(url);
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    shown
}

#[test]
fn errors_and_addresses_never_show_a_password() {
    for (url, address) in [
        ("redis://user:s3cret@127.0.0.1:7/2", "127.0.0.1:7"),
        ("redis://u:s3cret@[::1]:7/", "[::1]:7"),
        ("unix:///run/a%0d%0ab.sock", "/run/a\\r\\nb.sock"),
        (
            "redis-sentinel://app:s3cret@one,two:1,[::1]:2/orders/3?sentinel_password=s3cret",
            "orders (one:26379, two:1, [::1]:2)",
        ),
    ] {
        assert_eq!(server(url).to_string(), address);
    }
    for (url, reason) in [
        (
            "redis://u:s3cret@h:99999/",
            "Redis URL did not parse; expected `redis://",
        ),
        ("redis://u@h:s3cret/", "Redis URL did not parse"),
        ("redis://u:s3cret@[::1]:abc/", "Redis URL did not parse"),
        ("redis://u:s3cret@::1:7/", "Redis URL did not parse"),
        (
            "redis://u:s3cret@h/-1",
            "`-1` is not a number of a database",
        ),
        (
            "redis-sentinel://u:s3cret@one/orders/-2",
            "`-2` is not a number",
        ),
        (
            "redis://u:s3cret@h/not-a-number",
            "Invalid database number; expected `redis://",
        ),
        (
            "redis://u:s3cret@h/?protocol=9",
            "Invalid protocol version; expected",
        ),
        ("redis:s3cret", "Missing hostname; expected `redis://"),
        ("unix:s3cret", "expected `unix:///path"),
        ("redis-sentinel://u:s3cret@one,two", "names no service"),
        (
            "redis-sentinel://u:s3cret@one,,two/orders",
            "host without a name",
        ),
        ("redis-sentinel://u:s3cret@one:99999/orders", "expected"),
        ("redis-sentinel://u:s3cret@one/orders/x", "expected"),
        ("redis-cluster://u:s3cret@one,,two", "host without a name"),
        ("redis-cluster://u:s3cret@", "host without a name"),
        (
            "redis-cluster://u:s3cret@one:99999",
            "`redis-cluster://…@one:99999`",
        ),
        ("redis-cluster://u:s3cret@one,two/1", "one database"),
        ("redis-cluster:one", "expected `redis-cluster://[user:"),
    ] {
        let shown = refusal(url);
        assert!(shown.contains(reason), "{shown}");
    }
}

#[test]
fn several_urls_in_one_text_are_refused_with_the_forms_that_they_can_have() {
    for url in [
        "redis://u:s3cret@a,redis://u:s3cret@b",
        "redis://u:s3cret@a/ rediss://b/",
        "redis://u:s3cret@a,b:7/0",
        "valkey://a/;\n valkey://b/",
        "unix:///a.sock,unix:///b.sock",
        "memory:a redis://b",
        "redis-cluster://a redis-cluster://b",
        "redis-sentinel://a/s,redis-sentinel://b/s",
    ] {
        let shown = refusal(url);
        for form in [
            "`StoreUrl::quorum([…])`",
            "`RLOCK_URL`",
            "`redis-cluster://a,b`",
            "`redis-sentinel://a,b/service`",
        ] {
            assert!(shown.contains(form), "{shown}");
        }
    }
    fixed("redis://u:a,b%3A%2F%2Fc@h/");
}

#[test]
fn nodes_of_a_cluster_share_a_login() {
    let url = "redis-cluster://app:s3cret@one,two:1,[::1]:2/?protocol=resp2";
    let Ok(Endpoint::Cluster(ClusterEndpoint { nodes, node })) = Endpoint::parse(url) else {
        panic!("{url} names a cluster");
    };
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(host, port)| (host.as_str(), *port))
        .collect();
    assert_eq!(nodes, [("one", 6379), ("two", 1), ("::1", 2)]);
    assert_eq!(node.redis_settings().password(), Some("s3cret"));
    assert_eq!(node.redis_settings().protocol(), ProtocolVersion::RESP2);
}

#[test]
fn a_password_that_is_cut_is_refused_before_it_passes_for_an_address() {
    for (url, hint) in [
        ("redis://user:12/s3cret@h/", "%2F"),
        ("redis://user:12?s3cret@h/", "%3F"),
        ("redis://user:12#s3cret@h/", "%23"),
        ("redis://user:12#s3cret", "%23"),
        ("redis-cluster://u:12/s3cret@one", "%2F"),
        ("unix:///redis.sock?pass=12#s3cret", "%23"),
    ] {
        let shown = refusal(url);
        assert!(shown.contains(hint), "{shown}");
    }
    let whole = fixed("redis://user:12%2Fs3%40cret@h/");
    assert_eq!(whole.redis_settings().password(), Some("12/s3@cret"));
    fixed("unix:///redis.sock?user=u&pass=s3@cret");
}

#[test]
fn unknown_options_are_refused_with_the_names_of_the_known_ones() {
    for (url, known) in [
        ("redis://h/?db=3", "`protocol`;"),
        ("redis://h/?protocol=resp3&s3cret", "`protocol`;"),
        ("unix:///redis.sock?db=3&pass=x&s3cret=1", "`user`, `pass`;"),
        ("unix:///redis.sock?password=s3cret", "`user`, `pass`;"),
        (
            "redis-sentinel://h/orders?sentinel_pasword=s3cret",
            "`sentinel_user`, `sentinel_password`;",
        ),
        ("redis-cluster://h/?&sentinel_user=s3cret", "`protocol`;"),
    ] {
        let shown = refusal(url);
        assert!(shown.contains("is not known; known are"), "{shown}");
        assert!(shown.contains(known), "{shown}");
    }
    for url in [
        "redis://h/?protocol=s3cret",
        "redis://h/?protocol=2&protocol=s3cret",
    ] {
        let shown = refusal(url);
        assert!(shown.contains("Invalid protocol version;"), "{shown}");
    }
    for url in [
        "redis://u:s3cret@h/3",
        "redis://h?protocol=2",
        "redis://h/?",
        "unix:///redis.sock?db=3&user=u&pass=s3cret&protocol=resp2",
        "redis-sentinel://h/orders/3?sentinel_user=u&sentinel_password=p&protocol=3",
        "redis-cluster://h/?protocol=resp2",
    ] {
        assert!(Endpoint::parse(url).is_ok(), "{url}");
    }
}

#[test]
#[cfg(feature = "tls")]
fn verification_cannot_be_switched_off() {
    let shown = refusal("rediss://h/#insecure");
    assert!(shown.contains("always verified"), "{shown}");
}

#[test]
fn the_url_may_ask_for_the_older_protocol() {
    for (url, protocol) in [
        ("redis://h/", ProtocolVersion::RESP3),
        ("redis://h/?protocol=3", ProtocolVersion::RESP3),
        ("redis://h/?protocol=resp2", ProtocolVersion::RESP2),
        ("redis://h/?protocol=3&protocol=2", ProtocolVersion::RESP2),
        ("unix:///s?db=1&protocol=2", ProtocolVersion::RESP2),
    ] {
        assert_eq!(fixed(url).redis_settings().protocol(), protocol, "{url}");
    }
}

proptest! {
    #[test]
    fn no_password_is_shown_wherever_it_stands(before in "[ -~]{0,4}", after in "[ -~]{0,4}") {
        let password = format!("{before}S3CRET{after}");
        let encode = |text, byte| format!("{text}%{byte:02x}");
        let encoded = password.bytes().fold(String::new(), encode);
        for password in [&password, &encoded] {
            let mut urls = vec![
                format!("redis://:{password}@h/"),
                format!("redis://u:{password}@h:1/2"),
                format!("rediss://u:{password}@h/"),
                format!("redis://u:{password}@h:99999/"),
                format!("redis://u:{password}@h/no-number"),
                format!("redis://u:{password}@"),
                format!("redis:u:{password}@h"),
                format!("unix:///redis.sock?user=u&pass={password}"),
                format!("unix:///redis.sock?pass={password}&db=none"),
                format!("unix://u:{password}@h/redis.sock"),
                format!("u:{password}@h:6379/0"),
                format!("{password}@h:6379"),
                format!("{password}://@h"),
                format!("http://u:{password}@h/"),
            ];
            // The text before an `@` is a login, and the text after it is a host.
            if !password.contains('@') {
                urls.push(format!("redis://u:{password}"));
            }
            for url in urls {
                let shown = match Endpoint::parse(&url) {
                    Ok(Endpoint::Server(server)) => server.to_string(),
                    Ok(_) => panic!("{url} names a server"),
                    Err(error) => format!("{error} {error:?}"),
                };
                let shown = shown.to_lowercase();
                prop_assert!(!shown.contains("s3cret") && !shown.contains("%53%33"), "{shown}");
            }
        }
    }
}
