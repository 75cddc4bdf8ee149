//! Checks whether a pooler serves the sessions of a Postgres client, and what its waiters lose by that.

use super::findings::Finding;
use crate::store::{
    StoreError,
    options::StoreOptions,
    postgres::{LookingSession, PostgresEndpoint},
};

const CHECK: &str = "pooler";

/// Looks for a pooler behind the address of this session.
pub(super) async fn pooler(
    endpoint: &PostgresEndpoint,
    session: &LookingSession,
    options: &StoreOptions,
) -> Result<Finding, StoreError> {
    if !session.is_pooled().await? {
        return Ok(Finding::good(CHECK, "no pooler in front of the server"));
    }
    if !endpoint.has_direct() {
        let text = "a pooler drops notifications, so waiters poll, up to half a second apart";
        let remedy = "name the server itself by `direct=<host>:<port>` in the URL";
        return Ok(Finding::advice(CHECK, text).with_remedy(remedy));
    }
    let direct = endpoint.of_listeners().look(options).await?;
    Ok(if direct.is_pooled().await? {
        let text = "`direct` leads to a pooler, too, which must keep sessions";
        let remedy = "name the server itself, or a pooler with `pool_mode = session`";
        Finding::advice(CHECK, text).with_remedy(remedy)
    } else {
        Finding::good(
            CHECK,
            "calls go through a pooler, and notifications over `direct`",
        )
    })
}
