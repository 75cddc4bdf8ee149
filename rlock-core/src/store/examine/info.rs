//! Reads a server's version and its risk of eviction from `INFO`.

use redis::InfoDict;

use super::findings::{Finding, Part};

/// The oldest version that has what the scripts use.
const OLDEST: (u32, u32) = (6, 2);

pub(super) fn version(info: Option<&InfoDict>, part: Part) -> Finding {
    const CHECK: &str = "version";
    let Some((name, version)) = version_of(info) else {
        return unknown(CHECK);
    };
    if numbers(&version) < OLDEST {
        let text = format!("{name} {version} is too old");
        return Finding::harm(CHECK, text).with_remedy("use Redis 6.2 or later, or Valkey");
    }
    let role: Option<String> = info.and_then(|info| info.get("role"));
    match (part, role.as_deref()) {
        (Part::Master | Part::Member, Some("slave")) => {
            let text = format!("{name} {version}, but it is a replica, which grants no locks");
            Finding::harm(CHECK, text).with_remedy("give the URL of its master")
        }
        _ => Finding::good(CHECK, format!("{name} {version}")),
    }
}

pub(super) fn eviction(info: &Result<InfoDict, String>) -> Finding {
    const CHECK: &str = "eviction";
    let policy = info.as_ref().ok().and_then(|info| {
        let limit: u64 = info.get("maxmemory")?;
        Some((info.get::<String>("maxmemory_policy")?, limit))
    });
    match policy {
        None => unknown(CHECK),
        Some((policy, _)) if policy == "noeviction" => {
            Finding::good(CHECK, "maxmemory-policy noeviction")
        }
        Some((policy, 0)) => {
            let text = format!(
                "maxmemory-policy {policy}, without effect as long as there is no maxmemory"
            );
            Finding::advice(CHECK, text).with_remedy("set `noeviction`")
        }
        Some((policy, _)) => {
            let text = format!("maxmemory-policy {policy} may evict locks");
            Finding::harm(CHECK, text).with_remedy("set `maxmemory-policy noeviction`")
        }
    }
}

/// Returns the finding of a check that needs `INFO`.
pub(super) fn unknown(check: &'static str) -> Finding {
    Finding::advice(check, "unknown, because INFO is refused").with_remedy("grant `+info`")
}

/// Returns the name and the version of the server. Valkey also reports a version of Redis.
pub(super) fn version_of(info: Option<&InfoDict>) -> Option<(&'static str, String)> {
    let info = info?;
    let valkey = info
        .get("valkey_version")
        .map(|version| ("Valkey", version));
    valkey.or_else(|| Some(("Redis", info.get("redis_version")?)))
}

pub(super) fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for (version, is_fit) in [
            ("7.0.15", true),
            ("6.2.0", true),
            ("6.0.20", false),
            ("10.0", true),
            ("5", false),
        ] {
            assert_eq!(numbers(version) >= OLDEST, is_fit, "{version}");
        }
    }
}
