//! A gRPC service with tonic: a layer that scopes the client to each request, errors as gRPC statuses, and a shutdown that lets
//! running payments end.
//!
//! ```sh
//! cargo run -p rlock-frameworks --bin grpc
//! ```

use std::{error::Error, time::Duration};

use rlock_core::{DrainOutcome, ErrorKind, LockClient};
use rlock_frameworks::{Bank, PaymentError, confirm, stop};
use rlock_payments::{
    Order, Receipt,
    payments_server::{Payments, PaymentsServer},
};
use tokio::{net::TcpListener, sync::oneshot};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};
use tower::util::MapFutureLayer;

struct Shop {
    bank: Bank,
}

#[tonic::async_trait]
impl Payments for Shop {
    async fn pay(&self, order: Request<Order>) -> Result<Response<Receipt>, Status> {
        let paid = self.bank.pay(order.get_ref().id).await;
        let token = paid.map_err(|error| status(&error))?;
        Ok(Response::new(Receipt { token }))
    }
}

fn status(error: &PaymentError) -> Status {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Contention => Status::aborted(text),
        ErrorKind::Outage | ErrorKind::Closing => Status::unavailable(text),
        ErrorKind::Invalid => Status::invalid_argument(text),
        _ => Status::internal(text),
    }
}

/// Serves until `stop` resolves. From then on, requests in progress have 20 seconds, and then background jobs that hold locks
/// have 5 seconds.
async fn serve(
    listener: TcpListener,
    locks: LockClient,
    bank: Bank,
    stop: impl Future<Output = ()>,
) -> Result<DrainOutcome, Box<dyn Error + Send + Sync>> {
    let scoped = locks.clone();
    let in_scope = MapFutureLayer::new(move |response| {
        let locks = scoped.clone();
        async move { locks.scope(response).await }
    });
    let (stopping, stopped) = oneshot::channel::<()>();
    let server = Server::builder()
        .layer(in_scope)
        .add_service(PaymentsServer::new(Shop { bank }))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
            drop(stopped.await);
        });
    let late = async {
        stop.await;
        drop(stopping); // the server accepts no further requests
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    tokio::select! {
        ended = server => ended?,
        () = late => {}
    }
    Ok(locks.drain(Duration::from_secs(5)).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let stop = stop()?;
    let (bank, payments) = Bank::open();
    tokio::spawn(confirm(payments));
    let listener = TcpListener::bind("127.0.0.1:50051").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Several instances lock at a server: LockClient::connect("redis://127.0.0.1:6379/").await?
    let locks = LockClient::in_memory();
    println!("{:?}", serve(listener, locks, bank, stop).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use rlock_payments::payments_client::PaymentsClient;
    use tokio::{net::TcpStream, time::timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_payment_that_runs_at_the_shutdown_ends_and_its_lock_is_released() {
        let client = async || LockClient::connect("memory:shop").await.expect("embedded");
        let (locks, observer) = (client().await, client().await);
        let (bank, mut payments) = Bank::open();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let server = tokio::spawn(serve(listener, locks, bank, stopped));

        let client = PaymentsClient::connect(format!("http://{address}"));
        let mut client = client.await.expect("it listens");
        let call = tokio::spawn(async move { client.pay(Order { id: 42 }).await });
        let payment = timeout(LONG, payments.recv()).await;
        let payment = payment.expect("it does not hang").expect("a payment");
        let held = observer.inspect("order:42").await.expect("a reply");
        assert!(held.is_some(), "it is paid under its lock");

        stop.send(()).expect("it serves");
        while TcpStream::connect(address).await.is_ok() {} // it still accepts connections
        payment.confirm.send(()).expect("the payment runs");
        let receipt = call.await.expect("no panic").expect("a receipt");
        assert!(receipt.get_ref().token > 0);
        let drained = timeout(LONG, server).await.expect("it does not hang");
        let drained = drained.expect("no panic").expect("in good order");
        assert_eq!(drained, DrainOutcome::Completed);
        let held = observer.inspect("order:42").await.expect("a reply");
        assert!(held.is_none(), "it was released");
    }
}
