//! A readiness probe, as Spring's health indicators are: the instance gets requests only while it can lock.

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Request, StatusCode},
    routing::get,
};
use rlock_core::{LockClient, LockError, testing};
use tower::ServiceExt as _;

async fn ready(State(locks): State<LockClient>) -> StatusCode {
    match locks.probe().await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn app(locks: LockClient) -> Router {
    Router::new().route("/ready", get(ready)).with_state(locks)
}

async fn status(app: &Router) -> StatusCode {
    let request = Request::get("/ready").body(Body::empty());
    let response = app.clone().oneshot(request.expect("a request")).await;
    response.expect("a response").status()
}

#[tokio::test]
async fn an_instance_is_ready_while_it_can_lock() -> Result<(), LockError> {
    let locks = LockClient::in_memory();
    let app = app(locks.clone());
    assert_eq!(status(&app).await, StatusCode::OK);
    let outage = testing::simulate_outage(&locks)?;
    assert_eq!(status(&app).await, StatusCode::SERVICE_UNAVAILABLE);
    drop(outage);
    assert_eq!(status(&app).await, StatusCode::OK);
    Ok(())
}
