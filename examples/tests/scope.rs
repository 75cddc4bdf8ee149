//! A layer of tower that scopes a client to each request, so that the handlers' annotated functions use it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::post,
};
use rlock_core::{ErrorKind, LockClient};
use rlock_examples::{OrderError, Orders};
use tower::{ServiceExt, util::MapFutureLayer};

async fn pay(orders: Arc<Orders>) -> StatusCode {
    match orders.pay(42, 100).await {
        Ok(_) => StatusCode::OK,
        Err(OrderError::Busy(error)) if error.kind() == ErrorKind::Closing => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Err(error) => panic!("{error}"),
    }
}

/// Makes a service whose requests lock with this client.
fn app(locks: LockClient) -> Router {
    let orders = Arc::<Orders>::default();
    let in_scope = MapFutureLayer::new(move |response| {
        let locks = locks.clone();
        async move { locks.scope(response).await }
    });
    Router::new()
        .route("/payment", post(move || pay(orders)))
        .layer(in_scope)
}

async fn payment(app: Router) -> StatusCode {
    let request = Request::post("/payment").body(Body::empty());
    let response = app.oneshot(request.expect("a request")).await;
    response.expect("a response").status()
}

#[tokio::test]
async fn each_request_locks_with_the_client_of_its_layer() {
    let [locks, closing] = [LockClient::in_memory(), LockClient::in_memory()];
    let drained = closing.drain(Duration::ZERO).await;
    drained.expect("nothing is held");
    assert_eq!(payment(app(locks)).await, StatusCode::OK);
    let refused = payment(app(closing)).await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
}
