//! Checks whether a pooler serves the sessions of a Postgres client, and what its waiters lose by that.

use super::findings::Finding;
use crate::store::{
    StoreError,
    options::StoreOptions,
    postgres::{DATABASE, ELSEWHERE, LookingSession, PostgresEndpoint},
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
    let itself = endpoint.of_listeners();
    let direct = match itself.look(options).await {
        Ok(direct) => direct,
        Err(error) => {
            return Ok(Finding::harm(
                CHECK,
                error.at(format!("`direct`, {itself}")).to_string(),
            ));
        }
    };
    let databases = (session.ask(DATABASE).await?, direct.ask(DATABASE).await?);
    if databases.0.get::<_, String>(0) != databases.1.get::<_, String>(0) {
        return Ok(Finding::harm(CHECK, ELSEWHERE));
    }
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
