//! The example `service` as a process that a supervisor or a terminal stops.

#![cfg(unix)]

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    process::{Command as Blocking, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{ChildStdout, Command},
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};

/// How long a step may take, so that the test cannot hang.
const LONG: Duration = Duration::from_secs(60);
const CALLERS: u64 = 64;
const ORDERS: u64 = 4;

/// Pays an order over a new connection. Returns the status, or an error after the service has stopped listening.
async fn pay_at(service: SocketAddr, order: u64) -> io::Result<String> {
    let mut stream = TcpStream::connect(service).await?;
    let request = format!(
        "POST /orders/{order}/payment HTTP/1.1\r\nHost: {service}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let status = response.split(' ').nth(1);
    Ok(status.ok_or(io::ErrorKind::UnexpectedEof)?.to_owned())
}

async fn line_with(lines: &mut Lines<BufReader<ChildStdout>>, text: &str) -> String {
    let found = async {
        loop {
            let line = lines.next_line().await.expect("readable");
            let line = line.unwrap_or_else(|| panic!("the service ends without `{text}`"));
            if line.contains(text) {
                return line;
            }
        }
    };
    timeout(LONG, found).await.expect(text)
}

/// Stops a service under load by this signal.
async fn stop_by(signal: &str) {
    let mut service = Command::new(env!("CARGO_BIN_EXE_service"))
        .env_remove("REDIS_URL")
        .envs([("ADDRESS", "127.0.0.1:0"), ("RUST_LOG", "off")])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the example starts");
    let mut lines = BufReader::new(service.stdout.take().expect("piped")).lines();
    let listening = line_with(&mut lines, "listening on").await;
    let (_, address) = listening.split_once("http://").expect("an address");
    let address: SocketAddr = address.parse().expect("an address");

    let (is_stopped, stopped) = watch::channel(false);
    let (served, mut outcomes) = mpsc::unbounded_channel();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (stopped, served) = (stopped.clone(), served.clone());
        callers.spawn(async move {
            let mut is_last = false;
            while !is_last && let Ok(status) = pay_at(address, caller % ORDERS).await {
                is_last = *stopped.borrow();
                let _ = served.send((status, is_last));
            }
        });
    }
    drop(served);
    let mut all = BTreeSet::new();
    for _ in 0..CALLERS {
        let reply = timeout(LONG, outcomes.recv()).await;
        all.extend(reply.expect("it serves"));
    }
    let pid = service.id().expect("it runs").to_string();
    let sent = Blocking::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.expect("`kill` runs").success());
    is_stopped.send(true).expect("callers listen");

    // The locks of all requests are released by then.
    line_with(&mut lines, "Completed").await;
    let ended = timeout(LONG, service.wait()).await.expect("it ends");
    let status = ended.expect("a status");
    assert!(status.success(), "{signal}: {status}");
    while let Some(reply) = timeout(LONG, outcomes.recv()).await.expect("callers end") {
        all.insert(reply);
    }
    // An order is paid once.
    let expected = |status: &str| ["200", "409"].contains(&status);
    assert!(all.iter().all(|(status, _)| expected(status)), "{all:?}");
    let is_served_late = all.iter().any(|(_, is_last)| *is_last);
    assert!(is_served_late, "requests in progress get replies: {all:?}");
}

#[tokio::test]
async fn a_service_that_a_supervisor_stops_under_load_serves_its_requests_and_drains() {
    stop_by("TERM").await;
}

#[tokio::test]
async fn a_service_that_a_terminal_interrupts_under_load_serves_its_requests_and_drains() {
    stop_by("INT").await;
}
