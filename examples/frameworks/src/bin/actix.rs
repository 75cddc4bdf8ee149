//! An HTTP service with actix-web: a middleware that scopes the client to each request, and a shutdown that lets running payments
//! end.
//!
//! ```sh
//! cargo run -p rlock-frameworks --bin actix
//! curl -X POST http://127.0.0.1:3000/orders/42/payment
//! ```

use std::{error::Error, net::TcpListener, time::Duration};

use actix_web::{
    App, HttpServer, ResponseError,
    dev::Service as _,
    http::StatusCode,
    web::{self, Data, Path},
};
use rlock_core::{DrainOutcome, ErrorKind, LockClient};
use rlock_frameworks::{Bank, PaymentError, confirm, stop};

/// The error of a request.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failure(#[from] PaymentError);

impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        match self.0.kind() {
            ErrorKind::Contention => StatusCode::CONFLICT,
            ErrorKind::Outage | ErrorKind::Closing => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

async fn pay(bank: Data<Bank>, order: Path<u64>) -> Result<String, Failure> {
    let token = bank.pay(*order).await?;
    Ok(format!("order {order} is paid, token {token}\n"))
}

/// Serves until `stop` resolves. From then on, requests in progress have 20 seconds, and then background jobs that hold locks
/// have 5 seconds.
async fn serve(
    listener: TcpListener,
    locks: LockClient,
    bank: Bank,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<DrainOutcome, Box<dyn Error + Send + Sync>> {
    let scoped = locks.clone();
    let app = move || {
        let locks = scoped.clone();
        App::new()
            .app_data(Data::new(bank.clone()))
            .wrap_fn(move |request, service| {
                let (locks, response) = (locks.clone(), service.call(request));
                async move { locks.scope(response).await }
            })
            .route("/orders/{order}/payment", web::post().to(pay))
    };
    let server = HttpServer::new(app).listen(listener)?;
    let server = server.shutdown_signal(stop).shutdown_timeout(20);
    server.run().await?;
    Ok(locks.drain(Duration::from_secs(5)).await?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let stop = stop()?;
    let (bank, payments) = Bank::open();
    tokio::spawn(confirm(payments));
    let listener = TcpListener::bind("127.0.0.1:3000")?;
    println!("listening on http://{}", listener.local_addr()?);
    // Several instances lock at a server: LockClient::connect("redis://127.0.0.1:6379/").await?
    let locks = LockClient::in_memory();
    println!("{:?}", serve(listener, locks, bank, stop).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::oneshot,
        time::timeout,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_payment_that_runs_at_the_shutdown_ends_and_its_lock_is_released() {
        let client = async || LockClient::connect("memory:shop").await.expect("embedded");
        let (locks, observer) = (client().await, client().await);
        let (bank, mut payments) = Bank::open();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let server = tokio::spawn(serve(listener, locks, bank, stopped));

        let mut caller = TcpStream::connect(address).await.expect("it listens");
        let request = "POST /orders/42/payment HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        caller.write_all(request.as_bytes()).await.expect("sent");
        let payment = timeout(LONG, payments.recv()).await;
        let payment = payment.expect("it does not hang").expect("a payment");
        let held = observer.inspect("order:42").await.expect("a reply");
        assert!(held.is_some(), "it is paid under its lock");

        stop.send(()).expect("it serves");
        while TcpStream::connect(address).await.is_ok() {} // it still accepts connections
        payment.confirm.send(()).expect("the payment runs");
        let mut response = String::new();
        let read = caller.read_to_string(&mut response).await;
        read.expect("a response");
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        let drained = timeout(LONG, server).await.expect("it does not hang");
        let drained = drained.expect("no panic").expect("in good order");
        assert_eq!(drained, DrainOutcome::Completed);
        let held = observer.inspect("order:42").await.expect("a reply");
        assert!(held.is_none(), "it was released");
    }
}
