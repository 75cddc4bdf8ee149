//! Tests the order of a surface's items.

use serde_json::json;

use super::*;
use crate::counts;

/// A crate that has an item of each kind.
fn sample() -> Documented {
    let items = [
        (0, None, "pub mod rlock_core"),
        (1, None, "pub mod rlock_core::fencing"),
        (2, None, "pub use rlock_core::LockMode"),
        (3, None, "pub use rlock_core::distributed_lock"),
        (4, None, "pub struct rlock_core::LockClient(_)"),
        (5, None, "impl rlock_core::LockClient"),
        (
            6,
            Some(5),
            "pub async fn rlock_core::LockClient::connect(url: &str) -> \
             core::result::Result<Self, rlock_core::LockError>",
        ),
        (
            7,
            Some(5),
            "pub fn rlock_core::LockClient::mode(&self) -> rlock_proto::mode::LockMode",
        ),
        (
            8,
            None,
            "impl core::clone::Clone for rlock_core::LockClient",
        ),
        (
            9,
            Some(8),
            "pub fn rlock_core::LockClient::clone(&self) -> Self",
        ),
        (
            10,
            None,
            "impl rlock_core::private::AsClient for rlock_core::LockClient",
        ),
        (
            11,
            None,
            "impl core::str::traits::FromStr for rlock_core::LockClient",
        ),
        (
            12,
            Some(11),
            "pub type rlock_core::LockClient::Err = rlock_core::LockError",
        ),
        (13, None, "#[non_exhaustive] pub enum rlock_core::LockError"),
        (
            14,
            Some(13),
            "#[non_exhaustive] pub rlock_core::LockError::Lost",
        ),
        (
            15,
            Some(14),
            "pub rlock_core::LockError::Lost::key: alloc::string::String",
        ),
        (17, None, "pub struct rlock_core::LockGuard(_)"),
        (
            18,
            None,
            "impl core::ops::deref::Deref for rlock_core::LockGuard",
        ),
        (
            19,
            Some(18),
            "pub type rlock_core::LockGuard::Target = rlock_core::Hold",
        ),
        (20, None, "pub struct rlock_core::Hold"),
        (21, None, "impl rlock_core::Hold"),
        (
            22,
            Some(21),
            "pub fn rlock_core::Hold::token(&self) -> rlock_core::Token",
        ),
        (
            16,
            None,
            "pub fn rlock_core::fencing::token_at(time: std::time::SystemTime) -> i64",
        ),
    ];
    let gate = "#[attr = CfgTrace([NameValue { name: \"feature\", value: Some(\"tls\"), }])]";
    let json = json!({
        "index": {
            "2": { "inner": { "use": { "id": 20, "name": "LockMode" } } },
            "3": { "inner": { "use": { "id": 21, "name": "distributed_lock" } } },
            "7": { "attrs": [{ "other": gate }] },
        },
        "paths": {
            "20": { "path": ["rlock_proto", "mode", "LockMode"] },
            "21": { "path": ["rlock_macros", "distributed_lock"] },
        },
    });
    Documented::new(&items, json)
}

#[test]
fn items_are_listed_below_their_module_and_type_with_public_paths() {
    let proto = Documented::new(
        &[
            (0, None, "pub mod rlock_proto"),
            (1, None, "pub enum rlock_proto::mode::LockMode"),
            (2, Some(1), "pub rlock_proto::mode::LockMode::Shared"),
            (3, None, "pub struct rlock_proto::machine::Machine"),
        ],
        json!({}),
    );
    let listing = Listing::of(&sample(), &proto, &["key".to_owned()]).unwrap();
    let expected = "\
mod rlock_core
  struct Hold
    fn Hold::token(&self) -> Token
  struct LockClient
    impl Clone + FromStr<Err = LockError> for LockClient
    async fn LockClient::connect(url: &str) -> Result<Self, LockError>
    fn LockClient::mode(&self) -> LockMode // feature tls
  #[non_exhaustive] enum LockError
    #[non_exhaustive] LockError::Lost
    LockError::Lost::key: String
  struct LockGuard
    impl Deref<Target = Hold> for LockGuard
  enum LockMode
    LockMode::Shared
  attribute distributed_lock
    distributed_lock(key)

mod rlock_core::fencing
  fn token_at(time: SystemTime) -> i64
";
    assert_eq!(listing.to_string(), expected);
    let table = counts::table(&listing);
    for row in [
        "   7  names at the root of the crate: 5 types, 1 macros, 1 modules\n",
        "   1  ways to make a client: LockClient::connect\n",
        "   1  methods of LockGuard\n",
        "   1  of them for a token: token\n",
    ] {
        assert!(table.contains(row), "{table}");
    }
}

#[test]
fn an_export_of_another_library_is_refused() {
    let json = json!({
        "index": { "1": { "inner": { "use": { "id": 2, "name": "Client" } } } },
        "paths": { "2": { "path": ["redis", "client", "Client"] } },
    });
    let items = [
        (0, None, "pub mod rlock_core"),
        (1, None, "pub use rlock_core::Client"),
    ];
    let refused = Listing::of(
        &Documented::new(&items, json),
        &Documented::new(&[], json!({})),
        &[],
    );
    assert!(
        refused
            .unwrap_err()
            .contains("`rlock_core::Client` is exported from `redis::client::Client`")
    );
}
