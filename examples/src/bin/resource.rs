//! An HTTP service with axum that refuses stale writers. A process that is paused for longer than its lease may write
//! once more when it resumes, so each write sends the fence of its lock, such as `document:plan@2258374700878976`, in the
//! header `Fencing-Token`. The service refuses a token below the largest that it has seen for the key.
//!
//! Here a restart forgets the documents with their tokens, and a second instance does not know them. A real service keeps
//! both in a database, and checks the token in the transaction that writes: see `rlock_core::fencing`.
//!
//! `cargo run --bin resource` sends its requests straight to the router, so it needs neither a port nor a server. With
//! `REDIS_URL` the two writers compete on Redis.

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use axum::{
    RequestExt as _, Router,
    body::{Body, to_bytes},
    extract::{FromRequest, Path, Request},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::put,
};
use rlock_core::{LockClient, escape, fencing::Fence};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tower::ServiceExt as _;

#[derive(Default)]
struct Document {
    text: String,
    /// The largest token that the service has seen, even if that write was cancelled.
    token: u64,
}

/// The documents by the keys of their locks. Writes create none, so a caller cannot fill the memory with tokens of keys
/// that it invents. A key that is used again after a deletion needs its old token, or it lets stale writers in.
#[derive(Clone)]
struct Documents(Arc<HashMap<String, Arc<Mutex<Document>>>>);

impl Documents {
    fn new(ids: &[&str]) -> Self {
        let documents = ids.iter().map(|id| (key(id), Arc::default()));
        Self(Arc::new(documents.collect()))
    }
}

fn key(id: &str) -> String {
    format!("document:{}", escape(id))
}

/// A write that is not stale, and the document that it may change.
///
/// A check alone would be a race, because an earlier writer could pass it and write after a newer one. So the document
/// stays locked until the handler ends, or is dropped because the caller has disconnected. A handler that writes in
/// another task moves the document there.
///
/// Authenticate callers first, because a huge token shuts out all others for good.
struct Fenced {
    document: OwnedMutexGuard<Document>,
    text: String,
}

impl FromRequest<Documents> for Fenced {
    type Rejection = Response;

    async fn from_request(mut request: Request, documents: &Documents) -> Result<Self, Response> {
        let id = request.extract_parts::<Path<String>>().await;
        let Path(id) = id.map_err(IntoResponse::into_response)?;
        let key = key(&id);
        let Some(header) = request.headers().get("fencing-token") else {
            let text = format!("header Fencing-Token is missing: send the fence of lock `{key}`");
            return Err((StatusCode::PRECONDITION_REQUIRED, text).into_response());
        };
        let invalid = |reason: String| {
            let text = format!("header Fencing-Token: {reason}");
            (StatusCode::BAD_REQUEST, text).into_response()
        };
        let fence = String::from_utf8_lossy(header.as_bytes()).parse::<Fence>();
        let fence = fence.map_err(|error| invalid(error.to_string()))?;
        if fence.key() != key {
            return Err(invalid(format!("fence `{fence}` is not of lock `{key}`")));
        }
        let document = documents.0.get(&key).cloned();
        let document = document.ok_or_else(|| StatusCode::NOT_FOUND.into_response())?;
        // The text comes before the lock, so a caller that is paused while it sends the text delays no other.
        let text = String::from_request(request, documents).await;
        let text = text.map_err(IntoResponse::into_response)?;
        let locked = tokio::time::timeout(Duration::from_secs(5), document.lock_owned());
        let Ok(mut document) = locked.await else {
            let text = format!("an earlier write with lock `{key}` has not ended");
            let retry_after = [(RETRY_AFTER, "1")];
            return Err((StatusCode::SERVICE_UNAVAILABLE, retry_after, text).into_response());
        };
        let (token, seen) = (fence.token().as_u64(), document.token);
        if token < seen {
            let text = format!("token {token} of lock `{key}` is stale: {seen} has been seen");
            // The header is a condition, as `If-Match` is. 409 would invite the caller to send it again.
            return Err((StatusCode::PRECONDITION_FAILED, text).into_response());
        }
        document.token = token;
        Ok(Self { document, text })
    }
}

async fn write(Fenced { mut document, text }: Fenced) -> String {
    document.text = text;
    format!("token {} wrote `{}`", document.token, document.text)
}

fn app(documents: Documents) -> Router {
    let router = Router::new().route("/documents/{id}", put(write));
    router.with_state(documents)
}

/// Sends a write, and returns the status and the body of the response.
async fn send(app: &Router, id: &str, fence: &str, text: &str) -> Result<String, Box<dyn Error>> {
    let request = Request::put(format!("/documents/{id}")).header("Fencing-Token", fence);
    let request = request.body(Body::from(text.to_owned()))?;
    let response = app.clone().oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await?;
    Ok(format!("{status}: {}", String::from_utf8_lossy(&body)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let app = app(Documents::new(&["plan"]));
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:resource".to_owned());
    let one = LockClient::connect(&url).await?;
    let two = LockClient::connect(url).await?;

    // Nothing renews this lease, so it ends as that of a paused process does.
    let lock = one.lock("document:plan").watchdog(false);
    let older = lock.lease(Duration::from_millis(500)).acquire().await?;
    let fence = older.fence().to_string();
    println!("1: {}", send(&app, "plan", &fence, "draft").await?);
    println!("1 is paused, and its lease ends");

    let newer = two.lock("document:plan").acquire().await?;
    println!(
        "2: {}",
        send(&app, "plan", &newer.fence().to_string(), "final").await?
    );

    println!("1 resumes in the middle of its work");
    println!("1: {}", send(&app, "plan", &fence, "second draft").await?);
    let lost = older.release().await;
    println!("1: {}", lost.expect_err("its lease has ended"));
    newer.release().await?;
    one.shutdown().await?;
    two.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, pin::pin};

    use futures_util::{future::poll_immediate, stream};
    use tokio::{sync::Semaphore, time::timeout};

    use super::*;

    /// A service whose writes of `slow` wait in their handler for a permit of the gate.
    fn gated() -> (Router, Documents, Arc<Semaphore>) {
        let documents = Documents::new(&["plan", "a:b"]);
        let gate = Arc::new(Semaphore::new(0));
        let handlers = Arc::clone(&gate);
        let write = async move |Fenced { mut document, text }: Fenced| {
            if text == "slow" {
                handlers.acquire().await.expect("it is open").forget();
            }
            document.text += &(text + " ");
        };
        let router = Router::new().route("/documents/{id}", put(write));
        (router.with_state(documents.clone()), documents, gate)
    }

    async fn write(app: &Router, fence: &str, text: &str) -> String {
        let sent = timeout(Duration::from_secs(60), send(app, "plan", fence, text)).await;
        sent.expect("a response in time").expect("a response")
    }

    #[tokio::test]
    async fn a_smaller_token_is_refused_and_an_equal_one_passes() {
        let app = app(Documents::new(&["plan"]));
        for (token, response) in [
            (7, "200 OK: token 7 wrote `text`"),
            (7, "200 OK: token 7 wrote `text`"),
            (
                5,
                "412 Precondition Failed: token 5 of lock `document:plan` is stale: 7 has been seen",
            ),
            (9, "200 OK: token 9 wrote `text`"),
        ] {
            let fence = format!("document:plan@{token}");
            assert_eq!(write(&app, &fence, "text").await, response);
        }
    }

    #[tokio::test]
    async fn a_header_that_is_no_fence_of_the_document_is_named() {
        let (app, documents, _) = gated();
        for (header, reason) in [
            ("5", "invalid fence `5`: it is written `<key>@<token>`"),
            (
                "document:other@5",
                "fence `document:other@5` is not of lock `document:plan`",
            ),
        ] {
            let response = write(&app, header, "text").await;
            let named = format!("400 Bad Request: header Fencing-Token: {reason}");
            assert_eq!(response, named);
        }
        let request = Request::put("/documents/plan").body(Body::empty());
        let response = app.oneshot(request.expect("a request")).await;
        let status = response.expect("a response").status();
        assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
        let document = documents.0["document:plan"].lock().await;
        assert_eq!((document.token, document.text.as_str()), (0, ""));
    }

    #[tokio::test]
    async fn the_key_escapes_the_id_as_the_attribute_does() {
        let (app, ..) = gated();
        let client = LockClient::in_memory();
        let lock = client.lock(key("a:b")).acquire().await.expect("free");
        let fence = lock.fence().to_string();
        assert!(fence.starts_with("document:a%253Ab@"), "{fence}");
        for (id, status) in [("a:b", "200"), ("a%3Ab", "200"), ("a", "400"), ("c", "404")] {
            let fence = if id == "c" { "document:c@5" } else { &fence };
            let response = send(&app, id, fence, "text").await.expect("a response");
            assert!(response.starts_with(status), "{id}: {response}");
        }
    }

    #[tokio::test]
    async fn a_newer_write_waits_for_an_older_one_that_has_passed_the_check() {
        let (app, documents, gate) = gated();
        let mut older = pin!(write(&app, "document:plan@5", "slow"));
        assert_eq!(poll_immediate(older.as_mut()).await, None);
        let mut newer = pin!(write(&app, "document:plan@7", "newer"));
        assert_eq!(poll_immediate(newer.as_mut()).await, None);
        gate.add_permits(1);
        assert_eq!(older.await, "200 OK: ");
        assert_eq!(newer.await, "200 OK: ");
        let document = documents.0["document:plan"].lock().await;
        assert_eq!(document.text, "slow newer ");
    }

    #[tokio::test]
    async fn an_older_write_that_waited_for_a_newer_one_is_refused() {
        let (app, documents, gate) = gated();
        let mut newer = pin!(write(&app, "document:plan@7", "slow"));
        assert_eq!(poll_immediate(newer.as_mut()).await, None);
        let mut older = pin!(write(&app, "document:plan@5", "older"));
        assert_eq!(poll_immediate(older.as_mut()).await, None);
        gate.add_permits(1);
        assert_eq!(newer.await, "200 OK: ");
        let refused = older.await;
        assert!(refused.starts_with("412"), "{refused}");
        let document = documents.0["document:plan"].lock().await;
        assert_eq!(document.text, "slow ");
    }

    #[tokio::test]
    async fn a_write_that_is_cancelled_frees_the_document_and_its_token_counts() {
        let (app, documents, _) = gated();
        {
            let mut cancelled = pin!(write(&app, "document:plan@7", "slow"));
            assert_eq!(poll_immediate(cancelled.as_mut()).await, None);
            assert!(documents.0["document:plan"].try_lock().is_err());
        }
        let refused = write(&app, "document:plan@5", "older").await;
        assert!(refused.starts_with("412"), "{refused}");
        assert_eq!(write(&app, "document:plan@7", "again").await, "200 OK: ");
        let document = documents.0["document:plan"].lock().await;
        assert_eq!(document.text, "again ");
    }

    // The clock is paused: the wait of 5 seconds takes no time.
    #[tokio::test(start_paused = true)]
    async fn a_write_behind_one_that_hangs_is_told_when_to_try_again() {
        let (app, ..) = gated();
        let mut hanging = pin!(write(&app, "document:plan@5", "slow"));
        assert_eq!(poll_immediate(hanging.as_mut()).await, None);
        let request = Request::put("/documents/plan").header("Fencing-Token", "document:plan@7");
        let request = request.body(Body::empty()).expect("a request");
        let refused = timeout(Duration::from_secs(60), app.clone().oneshot(request)).await;
        let response = refused.expect("a response in time").expect("a response");
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }

    #[tokio::test]
    async fn a_caller_that_stops_while_it_sends_its_text_delays_no_other() {
        let (app, ..) = gated();
        let request = Request::put("/documents/plan").header("Fencing-Token", "document:plan@5");
        let body = Body::from_stream(stream::pending::<Result<String, Infallible>>());
        let request = request.body(body).expect("a request");
        let mut stopped = pin!(app.clone().oneshot(request));
        assert!(poll_immediate(stopped.as_mut()).await.is_none());
        assert_eq!(write(&app, "document:plan@7", "text").await, "200 OK: ");
    }
}
