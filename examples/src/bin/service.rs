//! An HTTP service with axum: locked handlers, errors as status codes, a readiness probe, metrics, spans, and a shutdown by a
//! signal that serves the requests in progress. The tests at the end need no server.
//!
//! Needs no server itself; with `REDIS_URL` several instances exclude each other on Redis. `RUST_LOG` chooses the spans and
//! events to print. By default no spans are printed; `RUST_LOG=info,rlock_core::spans=debug` prints those of every call.
//! It listens at `ADDRESS`, by default `127.0.0.1:3000`.
//!
//! ```sh
//! cargo run --bin service
//! curl -X POST http://127.0.0.1:3000/orders/42/payment
//! curl http://127.0.0.1:3000/metrics
//! cargo run --bin contend    # in another terminal: many payments at once
//! ```

use std::{
    collections::HashSet,
    env,
    future::IntoFuture as _,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use rlock_core::{ErrorKind, LockClient, LockError, current, distributed_lock};
use tokio::{net::TcpListener, sync::oneshot};
use tracing_subscriber::{
    filter::Targets, fmt::format::FmtSpan, layer::SubscriberExt, util::SubscriberInitExt,
};

/// The state of the service. Its handlers lock with `locks`, as they query with a pool.
#[derive(Clone)]
struct Orders {
    locks: LockClient,
    paid: Arc<Mutex<HashSet<u64>>>,
}

#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("order {0} is paid already")]
    AlreadyPaid(u64),
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl IntoResponse for OrderError {
    fn into_response(self) -> Response {
        // The text is for callers. The holder of the lock and the reasons of the store are for the log.
        let text = self.to_string();
        let Self::Lock(error) = self else {
            return (StatusCode::CONFLICT, text).into_response();
        };
        tracing::info!(error = format!("{error:#}"), "the lock of a request failed");
        let (status, retry_after) = match error.kind() {
            // Another call held the lock for the whole wait: the caller may try again.
            ErrorKind::Contention => (StatusCode::CONFLICT, Some("1")),
            // The store did not reply, or this instance shuts down: another instance may serve.
            ErrorKind::Outage | ErrorKind::Closing => (StatusCode::SERVICE_UNAVAILABLE, Some("5")),
            ErrorKind::Invalid => (StatusCode::BAD_REQUEST, None),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
        };
        let retry_after = retry_after.map(|seconds| [(RETRY_AFTER, seconds)]);
        (status, retry_after, text).into_response()
    }
}

impl Orders {
    fn new(locks: LockClient) -> Self {
        Self {
            locks,
            paid: Arc::default(),
        }
    }

    #[distributed_lock(key = "order:<id>", lease = "30s", wait = "2s", client = self.locks)]
    async fn pay(&self, id: u64) -> Result<String, OrderError> {
        tokio::time::sleep(Duration::from_millis(20)).await; // the bank takes its time
        // The storage would refuse a token below the largest that it has seen.
        let token = current().map(|hold| hold.token());
        let is_new = self
            .paid
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        if is_new {
            Ok(format!("order {id} is paid, token {token:?}\n"))
        } else {
            Err(OrderError::AlreadyPaid(id))
        }
    }
}

async fn pay(State(orders): State<Orders>, Path(id): Path<u64>) -> Result<String, OrderError> {
    orders.pay(id).await
}

async fn ready(State(orders): State<Orders>) -> Result<&'static str, OrderError> {
    orders.locks.probe().await?;
    Ok("ready\n")
}

fn app(orders: Orders, metrics: PrometheusHandle) -> Router {
    Router::new()
        .route("/orders/{id}/payment", post(pay))
        .route("/ready", get(ready))
        .route("/metrics", get(async move || metrics.render()))
        .with_state(orders)
}

/// Installs the recorder of metrics, with buckets for a histogram of each duration: 10 and 20 seconds are one third and two
/// thirds of the default lease. Call it before the client connects.
fn record_metrics() -> Result<PrometheusHandle, BuildError> {
    const SECONDS: [f64; 13] = [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0,
    ];
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .install_recorder()
}

/// Prints each span when it closes, and each event.
fn print_spans() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_span_events(FmtSpan::CLOSE))
        .with(wanted.parse::<Targets>()?)
        .init();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    print_spans()?;
    let stop = stop()?;
    let metrics = record_metrics()?;
    let locks = match env::var("REDIS_URL") {
        Ok(url) => LockClient::connect_lazy(url)?, // `/ready` replies when the store does
        Err(_) => LockClient::in_memory(),
    };
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, app(Orders::new(locks.clone()), metrics), stop).await?;
    // Background jobs that hold locks have 5 seconds.
    println!("{:?}", locks.drain(Duration::from_secs(5)).await?);
    Ok(())
}

/// Serves until `stop` resolves. From then on, requests in progress have 20 seconds.
async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stopping, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, app);
    let server = server.with_graceful_shutdown(async { drop(stopped.await) });
    let late = async {
        stop.await;
        drop(stopping); // the server accepts no further requests
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        ended = server.into_future() => ended,
        () = late => Ok(()),
    }
}

/// Returns a future that resolves when the process is to stop: at Ctrl-C, or at the TERM of systemd, Docker and Kubernetes.
/// Counts signals from this call on.
#[cfg(unix)]
fn stop() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns a future that resolves at Ctrl-C.
#[cfg(windows)]
fn stop() -> io::Result<impl Future<Output = ()>> {
    let mut ctrl_c = tokio::signal::windows::ctrl_c()?;
    Ok(async move { drop(ctrl_c.recv().await) })
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use rlock_core::testing::{self, simulate_outage, use_tokio_clock};
    use tokio::{io::AsyncWriteExt, net::TcpStream};
    use tower::ServiceExt;

    use super::*;

    fn app(locks: LockClient) -> Router {
        let recorder = PrometheusBuilder::new().build_recorder();
        super::app(Orders::new(locks), recorder.handle())
    }

    async fn post_payment(app: &Router, id: u64) -> StatusCode {
        let request = Request::post(format!("/orders/{id}/payment"))
            .body(Body::empty())
            .expect("a request");
        let response = app.clone().oneshot(request).await.expect("a response");
        response.status()
    }

    #[tokio::test]
    async fn an_order_is_paid_once() {
        let app = app(LockClient::in_memory());
        assert_eq!(post_payment(&app, 42).await, StatusCode::OK);
        assert_eq!(post_payment(&app, 42).await, StatusCode::CONFLICT);
    }

    // The clock is paused: the wait of two seconds takes no time.
    #[tokio::test(start_paused = true)]
    async fn an_order_that_another_instance_works_on_is_a_conflict() {
        let locks = use_tokio_clock(LockClient::builder());
        let locks = locks.in_memory().expect("a client");
        let app = app(locks.clone());
        let other = locks.lock("order:42").acquire().await.expect("free");
        assert_eq!(post_payment(&app, 42).await, StatusCode::CONFLICT);
        assert_eq!(post_payment(&app, 7).await, StatusCode::OK);
        other.release().await.expect("held");
        assert_eq!(post_payment(&app, 42).await, StatusCode::OK);
    }

    // The clock is paused: the wait of two seconds takes no time.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_down_is_a_503_until_it_is_back() {
        let locks = use_tokio_clock(LockClient::builder());
        let locks = locks.in_memory().expect("a client");
        let app = app(locks.clone());
        let outage = simulate_outage(&locks).expect("the embedded store");
        let status = post_payment(&app, 42).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        drop(outage);
        assert_eq!(post_payment(&app, 42).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_name_the_template_and_no_order() {
        let metrics = record_metrics().expect("the only recorder");
        let app = super::app(Orders::new(LockClient::in_memory()), metrics);
        assert_eq!(post_payment(&app, 4711).await, StatusCode::OK);
        let request = Request::get("/metrics").body(Body::empty());
        let response = app.oneshot(request.expect("a request")).await;
        let body = response.expect("a response").into_body();
        let body = axum::body::to_bytes(body, 1 << 20).await.expect("a text");
        let text = String::from_utf8_lossy(&body);
        let granted =
            r#"rlock_acquire_duration_seconds_count{lock="order:<id>",outcome="granted"}"#;
        assert!(text.contains(granted), "{text}");
        assert!(!text.contains("order:4711"), "{text}");
    }

    // The clock is paused: the 20 seconds take no time.
    #[tokio::test(start_paused = true)]
    async fn a_service_does_not_wait_for_a_request_that_hangs() {
        let locks = LockClient::in_memory();
        let _taken = locks.lock("order:42").acquire().await.expect("free");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let service = listener.local_addr().expect("bound");
        let mut hanging = TcpStream::connect(service).await.expect("it listens");
        let request =
            "POST /orders/42/payment HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n";
        hanging.write_all(request.as_bytes()).await.expect("sent");
        let until_it_waits = async {
            let waits = async || {
                let info = locks.inspect("order:42").await.expect("a reply");
                info.and_then(|info| info.holder)
                    .is_some_and(|holder| holder.waiter_count == 1)
            };
            while !waits().await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let served = serve(listener, app(locks.clone()), until_it_waits).await;
        served.expect("it stops");
    }

    #[tokio::test]
    async fn each_kind_of_error_has_its_status_and_tells_the_caller_when_to_try_again() {
        for (kind, status, retry_after) in [
            (ErrorKind::Contention, 409, Some("1")),
            (ErrorKind::Outage, 503, Some("5")),
            (ErrorKind::Closing, 503, Some("5")),
            (ErrorKind::Lost, 500, None),
            (ErrorKind::Invalid, 400, None),
            (ErrorKind::Misuse, 500, None),
        ] {
            let response = OrderError::Lock(testing::error(kind, "order:42")).into_response();
            assert_eq!(response.status(), status, "{kind:?}");
            let told = response.headers().get(RETRY_AFTER);
            let told = told.map(|value| value.to_str().expect("a number"));
            assert_eq!(told, retry_after, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_service_that_shuts_down_refuses_payments() {
        let locks = LockClient::in_memory();
        let app = app(locks.clone());
        locks.drain(Duration::ZERO).await.expect("nothing is held");
        let status = post_payment(&app, 42).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
