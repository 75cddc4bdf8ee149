//! Traces with OpenTelemetry: the spans of locks are children of the request's span, and an inspection of a lock shows the trace
//! of its holder.
//!
//! ```sh
//! cargo run -p rlock-frameworks --bin traces
//! ```

use std::{error::Error, time::Duration};

use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use rlock_core::LockClient;
use rlock_frameworks::{Bank, PaymentError, confirm};
use tracing::{Span, Subscriber, instrument};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// Returns a subscriber that exports spans, those of locks among them, and the provider that is to be shut down at the end.
fn subscriber(
    exporter: impl SpanExporter + 'static,
) -> (impl Subscriber + Send + Sync, SdkTracerProvider) {
    // A service would use `with_batch_exporter` with an exporter of `opentelemetry-otlp`.
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter);
    let provider = provider.build();
    let wanted = Targets::new()
        .with_default(tracing::Level::INFO)
        .with_target("rlock_core::spans", tracing::Level::DEBUG);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let subscriber = tracing_subscriber::registry().with(wanted).with(layer);
    (subscriber, provider)
}

/// Returns a client whose inspections show the trace of each holder.
fn client() -> Result<LockClient, rlock_core::LockError> {
    let trace_id = || {
        let context = Span::current().context();
        let span = context.span().span_context().clone();
        span.is_valid().then(|| span.trace_id().to_string())
    };
    LockClient::builder().trace_id(trace_id).in_memory()
}

/// Handles a request, which begins a trace.
#[instrument(skip(bank))]
async fn request(bank: &Bank, order: u64) -> Result<u64, PaymentError> {
    bank.pay(order).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (subscriber, provider) = subscriber(opentelemetry_stdout::SpanExporter::default());
    subscriber.init();
    let locks = client()?;
    let (bank, payments) = Bank::open();
    tokio::spawn(confirm(payments));
    // The second request waits for the first one, as the length of its span `lock.acquire` shows.
    let requests = async { tokio::join!(request(&bank, 42), request(&bank, 42)) };
    let (first, second) = locks.scope(requests).await;
    println!("tokens {} and {}", first?, second?);
    locks.drain(Duration::from_secs(5)).await?;
    provider.shutdown()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
    use rlock_core::DrainOutcome;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_spans_of_a_lock_belong_to_the_request_and_its_holder_shows_the_trace() {
        let exporter = InMemorySpanExporter::default();
        let (subscriber, provider) = subscriber(exporter.clone());
        let _subscribed = subscriber.set_default();
        let locks = client().expect("a client");
        let (bank, mut payments) = Bank::open();
        let held = async {
            let payment = timeout(LONG, payments.recv()).await;
            let payment = payment.expect("it does not hang").expect("a payment");
            let info = locks.inspect("order:42").await.expect("a reply");
            payment.confirm.send(()).expect("the payment runs");
            info.and_then(|info| info.holder).expect("this client")
        };
        let (paid, holder) = tokio::join!(locks.scope(request(&bank, 42)), held);
        paid.expect("free");
        let drained = locks.drain(LONG).await;
        assert_eq!(drained.expect("in good order"), DrainOutcome::Completed);

        provider.force_flush().expect("exported");
        let spans = exporter.get_finished_spans().expect("the spans");
        let span = |name: &str| -> &SpanData {
            let found = spans.iter().find(|span| span.name == name);
            found.unwrap_or_else(|| panic!("no `{name}` in {spans:?}"))
        };
        let request = span("request");
        for name in ["lock.acquire", "lock.hold"] {
            let lock = span(name);
            assert_eq!(lock.parent_span_id, request.span_context.span_id());
            let key = lock
                .attributes
                .iter()
                .find(|field| field.key.as_str() == "lock.key");
            assert_eq!(
                key.map(|key| key.value.to_string()).as_deref(),
                Some("order:42")
            );
        }
        let trace = request.span_context.trace_id().to_string();
        assert_eq!(holder.trace_id, Some(trace));
    }
}
