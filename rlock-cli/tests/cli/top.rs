//! `rlock top` shows changes, and restores the terminal.

use std::{fs, os::fd::OwnedFd, process::Stdio};

use rlock_testkit::{RedisServer, eventually, stop_ignoring_signals};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::Signal,
    termios::{Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::{
    common::{LONG, Scratch, hold, is_running, rlock, send_signal, start},
    holders::client,
    terminal::{CTRL_C, Shell, open_terminal, shown_pid},
};

/// Enters and leaves the alternate screen.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// Asserts that line editing and echo are on, and that the main screen is back.
async fn assert_restored(shell: &mut Shell) {
    let screen = shell.screen();
    let (entered, left) = (screen.rfind(ENTER), screen.rfind(LEAVE));
    assert!(entered.is_some() && entered < left, "{screen:?}");
    let modes = Scratch::new("modes");
    shell.type_line(&format!(
        "stty -a >{}; echo \"written\"-",
        modes.path().display()
    ));
    shell.shows("written-").await;
    let modes = fs::read_to_string(modes.path()).expect("it is written");
    for mode in ["icanon", "echo", "isig", "opost"] {
        assert!(
            modes.split_whitespace().any(|word| word == mode),
            "{mode}: {modes}"
        );
    }
}

#[tokio::test]
async fn keys_sort_and_end_the_table_and_the_terminal_is_restored() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = Vec::new();
    for n in 0..40 {
        let key = if n < 39 {
            format!("order:{n:02}")
        } else {
            "last".to_owned()
        };
        guards.push(client.lock(key).acquire().await.expect("free"));
    }
    let mut shell = Shell::start(&server);
    shell.type_line("stty rows 12 cols 80; rlock top --interval 100ms");
    shell.shows(ENTER).await;
    shell.shows("40 held").await;
    shell.shows("disappear").await;
    shell.shows("waiters").await;
    shell.shows("order:00").await;
    shell.shows("scroll").await;
    shell.press("a");
    // Only changes are drawn.
    shell.shows("age").await;
    shell.press("\t");
    shell.shows("waiters").await;
    shell.press("\u{1b}[6~\u{1b}[6~\u{1b}[6~\u{1b}[6~\u{1b}[6~");
    shell.shows("last").await;
    shell.press("q");
    shell.shows(LEAVE).await;
    shell.is_back_after(0).await;
    assert_restored(&mut shell).await;
}

#[tokio::test]
async fn top_ends_with_its_terminal() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "order:42"]).await;
    let mut shell = Shell::start(&server);
    shell.type_line(r#"stty rows 12 cols 80; sh -c 'echo "pid"-$$-; exec rlock top'"#);
    let pid = shown_pid(&mut shell).await;
    shell.shows("order:42").await;
    assert!(is_running(pid));
    drop(shell);
    eventually(LONG, "it ends", async || !is_running(pid)).await;
}

#[tokio::test]
async fn ctrl_c_and_signals_end_it_and_the_terminal_is_restored() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "order:42"]).await;
    let mut shell = Shell::start(&server);
    shell.type_line("stty rows 12 cols 80; rlock top");
    shell.shows("order:42").await;
    shell.press(CTRL_C);
    shell.shows(LEAVE).await;
    shell.is_back_after(0).await;
    assert_restored(&mut shell).await;
    for signal in [Signal::TERM, Signal::HUP] {
        shell.type_line(r#"sh -c 'echo "pid"-$$-; exec rlock top'"#);
        let pid = shown_pid(&mut shell).await;
        shell.shows("order:42").await;
        send_signal(pid, signal);
        shell.shows(LEAVE).await;
        let status = u8::try_from(128 + signal.as_raw()).expect("a status");
        shell.is_back_after(status).await;
        assert_restored(&mut shell).await;
    }
}

#[tokio::test]
async fn signals_end_it_while_the_terminal_takes_no_output() {
    stop_ignoring_signals();
    let server = RedisServer::start();
    let (_terminal, device) = open_terminal();
    let size = Winsize {
        ws_row: 12,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&device, size).expect("a terminal");
    fill(&device);
    let before = tcgetattr(&device).expect("a terminal").local_modes;
    let stream = || Stdio::from(device.try_clone().expect("a descriptor"));
    let mut command = Command::from(rlock(&server, &["top"]));
    let command = command.stdin(stream()).stdout(stream()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    // In raw mode it draws, and the draw blocks.
    eventually(LONG, "it takes the terminal", async || {
        tcgetattr(&device).expect("a terminal").local_modes != before
    })
    .await;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    send_signal(pid.expect("it runs"), Signal::TERM);
    let ended = timeout(LONG, child.wait()).await.expect("it ends");
    let status = ended.expect("it is a child").code();
    assert_eq!(status, Some(128 + Signal::TERM.as_raw()));
    let after = tcgetattr(&device).expect("a terminal").local_modes;
    assert_eq!(after, before);
}

/// Writes to a terminal that nothing reads, until it takes no more.
fn fill(device: &OwnedFd) {
    let flags = fcntl_getfl(device).expect("a descriptor");
    fcntl_setfl(device, flags | OFlags::NONBLOCK).expect("a descriptor");
    while rustix::io::write(device, &[b' '; 1024]).is_ok() {}
    fcntl_setfl(device, flags).expect("a descriptor");
}

#[tokio::test]
async fn an_outage_is_shown_and_survived() {
    let server = RedisServer::start();
    let guard = client(&server)
        .await
        .lock("order:42")
        .acquire()
        .await
        .expect("free");
    let mut shell = Shell::start(&server);
    shell.type_line("stty rows 12 cols 80; rlock top --interval 100ms --response-timeout 2s");
    shell.shows("order:42").await;
    server.kill();
    // Only changes are drawn, without the spaces in between.
    shell.shows("unavailable:").await;
    server.restart();
    let client = client(&server).await;
    let _guard = client.lock("job:7").acquire().await.expect("free");
    shell.shows("job:7").await;
    shell.press("q");
    shell.shows(LEAVE).await;
    shell.is_back_after(0).await;
    drop(guard);
}

#[tokio::test]
async fn a_terminal_without_a_size_is_shown_lines() {
    let server = RedisServer::start();
    let mut shell = Shell::start(&server);
    shell.type_line("stty rows 0 cols 0; rlock top");
    shell.shows("0 held, 0 waiters").await;
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
    assert!(!shell.screen().contains(ENTER));
}

#[tokio::test]
async fn without_a_terminal_each_listing_is_a_line() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    let held = "1 held, 0 waiters, 0 lost, +0.0/s, -0.0/s, oldest: ";
    let first = async {
        loop {
            let mut lines = start(&server, &["top", "--interval", "100ms"]);
            let line = lines.line().await;
            // A busy client may not have replied yet.
            if !line.contains("0 held") {
                return (lines, line);
            }
        }
    };
    let (mut lines, line) = timeout(LONG, first).await.expect("the client replies");
    assert!(
        line.contains(held) && line.contains("for order:42 of "),
        "{line}"
    );
    drop(guard);
    while !lines.line().await.contains("0 held") {}

    let lost = client.lock("order:43").acquire().await.expect("free");
    let _: u64 = server.command(&["DEL", "lock:{order:43}"]).await;
    lost.lost().await;
    while !lines.line().await.contains("0 held, 0 waiters, 1 lost") {}

    let mut objects = start(&server, &["top", "--json", "--interval", "100ms"]);
    let object = loop {
        let object: Value = serde_json::from_str(&objects.line().await).expect("JSON");
        if object["lost"] == 1 {
            break object;
        }
    };
    assert_eq!(
        (&object["held"], &object["waiter_count"], &object["oldest"]),
        (&0.into(), &0.into(), &Value::Null)
    );
}
