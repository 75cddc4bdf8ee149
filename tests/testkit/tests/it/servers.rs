//! Tests that the fixtures pause and end servers.

use std::env;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use rlock_testkit::{RedisServer, Worker, eventually};

use crate::{LONG, SILENCE, connect, incr, n};

/// Does nothing in a normal run. The next test runs it in a process of its own, which it kills.
#[test]
fn a_process_that_is_asked_to_keeps_a_paused_server() {
    if env::var_os("KEEP_A_SERVER").is_none() {
        return;
    }
    let server = RedisServer::start();
    server.pause();
    let directory = server.directory().display();
    println!("\nserver {} {directory}", server.address());
    thread::sleep(LONG * 4);
}

#[tokio::test]
async fn a_server_does_not_outlive_a_killed_test_even_when_it_is_paused() {
    let mut command = Command::new(env::current_exe().expect("the path of this test"));
    let test = "servers::a_process_that_is_asked_to_keeps_a_paused_server";
    command.args(["--exact", test, "--nocapture"]);
    let mut test = Worker::start(command.env("KEEP_A_SERVER", "1"));
    let (address, directory) = loop {
        let line = test.line(LONG).await.expect("it prints its server");
        let place = line.strip_prefix("server ");
        if let Some((address, directory)) = place.and_then(|place| place.split_once(' ')) {
            break (address.to_owned(), PathBuf::from(directory));
        }
    };
    assert!(TcpStream::connect(&address).is_ok());
    test.kill();
    eventually(LONG, "the server follows its test", async || {
        TcpStream::connect(&address).is_err()
    })
    .await;
    eventually(LONG, "its directory follows", async || !directory.exists()).await;
}

#[tokio::test]
async fn a_paused_server_is_silent_and_executes_late_what_it_was_sent() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    connection.set_response_timeout(SILENCE);
    server.pause();
    assert!(incr(&mut connection).await.is_err());
    server.resume();
    eventually(LONG, "the increment ran after all", async || {
        n(&server).await == 1
    })
    .await;
}
