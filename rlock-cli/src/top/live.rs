//! Draws the table of `rlock top`, reads its keys, and restores the terminal.

use std::{
    io::{self, IsTerminal as _},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use ratatui::{
    DefaultTerminal,
    crossterm::{
        event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        terminal::disable_raw_mode,
    },
};
use rlock_core::LockClient;
use rustix::{process::Signal, termios::tcgetwinsize};
use tokio::{runtime, sync::mpsc, time::sleep};

use super::{
    TopOptions, look,
    looks::{Looks, Order},
    view::View,
};
use crate::{
    exit::{Failure, Status},
    log::Diversion,
    ls::Listed,
    run::signals::Signals,
};

/// How long the terminal is read before the end of the table is noticed.
const BREATH: Duration = Duration::from_millis(50);

/// How often the end of the thread is looked for.
const LAST_BREATHS: u32 = 10;

/// How long a signal waits for the table to end before it ends the process.
const GRACE: Duration = Duration::from_secs(1);

/// How many keys are read ahead.
const EVENTS: usize = 64;

/// How many locks a page has.
const PAGE: usize = 10;

/// The screen while the table has it. Dropping it gives the terminal back as it was; a panic does so, too, before its
/// message is shown.
struct LiveScreen {
    terminal: DefaultTerminal,
}

impl LiveScreen {
    fn take() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(Self { terminal })
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        // If the terminal is gone, the failure cannot be reported.
        let _ = ratatui::try_restore();
    }
}

/// Returns whether there is a terminal to draw on, with keys to press.
pub(super) fn has_screen() -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let size = tcgetwinsize(&stdout);
    stdin.is_terminal()
        && stdout.is_terminal()
        && size.is_ok_and(|size| size.ws_col > 0 && size.ws_row > 0)
}

/// Shows the table until a key or a signal ends it.
pub(super) async fn run(
    options: &TopOptions,
    client: &LockClient,
    looks: Looks,
) -> Result<Status, Failure> {
    let failed = |error: io::Error| Failure::own("draw on the terminal", &error);
    let mut signals = receive_signals().map_err(failed)?;
    let mut view = View {
        looks,
        order: Order::Waiters,
        scrolled: 0,
        glob: options.glob.clone(),
        notice: None,
    };
    let mut screen = LiveScreen::take().map_err(failed)?;
    let _log = Diversion::begin();
    // Dropped first, before the shell has the terminal again.
    let mut keys = Keys::read();
    let mut next = Box::pin(look_later(options, client));
    loop {
        view.notice = Diversion::latest().or(view.notice);
        let drawn = screen.terminal.draw(|frame| view.draw(frame));
        drawn.map_err(failed)?;
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => return Ok(signal.into()),
            event = keys.next() => match event {
                Some(Event::Key(key)) => {
                    if view.press(key) {
                        return Ok(Status::SUCCESS);
                    }
                }
                Some(_) => {}
                None => return Ok(Status::SUCCESS),
            },
            found = &mut next => {
                match found {
                    Ok(found) => {
                        view.looks.add(found);
                        view.notice = None;
                    }
                    Err(failure) => view.notice = Some(failure.message().to_owned()),
                }
                next = Box::pin(look_later(options, client));
            }
        }
    }
}

/// Receives signals on a thread of its own, because a draw blocks while the terminal takes no output.
fn receive_signals() -> io::Result<mpsc::Receiver<Signal>> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _context = runtime.enter();
        Signals::listen()?
    };
    let (sender, receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let signal = runtime.block_on(signals.next());
        if sender.blocking_send(signal).is_ok() {
            thread::sleep(GRACE);
        }
        // The escape sequences that end the screen would block as well.
        let _ = disable_raw_mode();
        process::exit(Status::from(signal).code().into());
    });
    Ok(receiver)
}

async fn look_later(options: &TopOptions, client: &LockClient) -> Result<Listed, Failure> {
    sleep(options.interval).await;
    look(client, options).await
}

/// Reads the terminal on a thread of its own. Dropping it ends the thread, which would take keys from the shell.
struct Keys {
    events: mpsc::Receiver<Event>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    fn read() -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                let event = match event::poll(BREATH) {
                    Ok(true) => event::read(),
                    Ok(false) => continue,
                    Err(error) => Err(error),
                };
                if event.is_ok_and(|event| sender.blocking_send(event).is_ok()) {
                    continue;
                }
                return;
            }
        });
        Self {
            events,
            is_over,
            thread: Some(thread),
        }
    }

    /// Returns the next event, or `None` if the terminal is gone.
    async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The thread may hang on a terminal that is gone. Then it ends with the process.
        for _ in 0..LAST_BREATHS {
            if thread.is_finished() {
                let _ = thread.join();
                return;
            }
            thread::sleep(BREATH);
        }
    }
}

impl View {
    /// Handles a key. Returns whether it ends the table.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('w') => self.order = Order::Waiters,
            KeyCode::Char('a') => self.order = Order::Age,
            KeyCode::Tab => {
                self.order = match self.order {
                    Order::Waiters => Order::Age,
                    Order::Age => Order::Waiters,
                }
            }
            KeyCode::Down => self.scrolled += 1,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled += PAGE,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        fs::File,
        io::Read as _,
        os::fd::OwnedFd,
        process::{Command, Stdio},
    };

    use rustix::{
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::tcgetattr,
    };

    use super::*;

    #[test]
    #[ignore = "the next test runs it in a terminal"]
    fn panics_while_the_table_is_shown() {
        let mut screen = LiveScreen::take().expect("a terminal");
        let drawn = screen.terminal.draw(|_| {});
        drawn.expect("it is drawn");
        panic!("on purpose");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message_is_shown() {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&terminal).expect("it is ours");
        unlockpt(&terminal).expect("it is ours");
        let name = ptsname(&terminal, Vec::new()).expect("it has a name");
        let device = File::options()
            .read(true)
            .write(true)
            .open(name.to_str().expect("plain"));
        let device: OwnedFd = device.expect("the device").into();
        let stream = || Stdio::from(device.try_clone().expect("a descriptor"));
        let before = tcgetattr(&device).expect("a terminal").local_modes;
        let program = env::current_exe().expect("this program");
        let status = Command::new(program)
            .args([
                "--exact",
                "top::live::tests::panics_while_the_table_is_shown",
            ])
            .args(["--ignored", "--nocapture"])
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .status();
        assert!(!status.expect("it starts").success());
        assert_eq!(tcgetattr(&device).expect("a terminal").local_modes, before);
        drop(device);
        let (mut shown, mut bytes) = (Vec::new(), [0; 4096]);
        // An error: the last process at the terminal has ended.
        while let Ok(length @ 1..) =
            File::from(terminal.try_clone().expect("ours")).read(&mut bytes)
        {
            shown.extend_from_slice(&bytes[..length]);
        }
        let shown = String::from_utf8_lossy(&shown);
        let at = |text: &str| {
            shown
                .find(text)
                .unwrap_or_else(|| panic!("no {text:?}: {shown:?}"))
        };
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"), "{shown:?}");
        assert!(at("\u{1b}[?1049l") < at("on purpose"), "{shown:?}");
    }
}
