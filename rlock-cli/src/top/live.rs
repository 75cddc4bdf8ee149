//! The table on the terminal: what moves it, and how the terminal is given back.

use std::{io, thread};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
};
use rlock_core::{LockClient, LockInfo};
use tokio::{sync::mpsc, time::sleep};

use super::{
    TopOptions, look,
    looks::{Looks, Order},
    view::View,
};
use crate::{
    exit::{Failure, Status},
    log::Diversion,
    run::signals::Signals,
};

/// How many locks a page has.
const PAGE: usize = 10;

/// The screen while the table has it. Dropping it gives the terminal back as it was; a panic does so, too, before its
/// message is shown.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn take() -> io::Result<Self> {
        let terminal = ratatui::try_init().inspect_err(|_| drop(ratatui::try_restore()))?;
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody is left to tell if the terminal is gone.
        let _ = ratatui::try_restore();
    }
}

/// Shows the table until a key or a signal ends it.
pub(super) async fn run(
    options: &TopOptions,
    client: &LockClient,
    looks: Looks,
) -> Result<Status, Failure> {
    let failed = |error: io::Error| Failure::own("draw on the terminal", &error);
    let mut signals = Signals::listen().map_err(failed)?;
    let mut view = View {
        looks,
        order: Order::Waiters,
        scrolled: 0,
        glob: options.glob.clone(),
        notice: None,
    };
    let mut screen = Screen::take().map_err(failed)?;
    let log = Diversion::begin();
    let mut events = events();
    let mut next = Box::pin(look_later(options, client));
    loop {
        view.notice = log.latest().or(view.notice);
        let drawn = screen.terminal.draw(|frame| view.draw(frame));
        drawn.map_err(failed)?;
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(signal.into()),
            event = events.recv() => match event {
                Some(Event::Key(key)) => {
                    if view.press(key) {
                        return Ok(Status::SUCCESS);
                    }
                }
                Some(_) => {}
                // The terminal is gone.
                None => return Ok(Status::SUCCESS),
            },
            found = &mut next => {
                match found {
                    Ok(locks) => {
                        view.looks.add(locks);
                        view.notice = None;
                    }
                    Err(failure) => view.notice = Some(failure.message().to_owned()),
                }
                next = Box::pin(look_later(options, client));
            }
        }
    }
}

async fn look_later(options: &TopOptions, client: &LockClient) -> Result<Vec<LockInfo>, Failure> {
    sleep(options.interval).await;
    look(client, options).await
}

/// Reads the terminal on a thread of its own, which ends with the process.
fn events() -> mpsc::UnboundedReceiver<Event> {
    let (sender, events) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    events
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
    use super::*;

    #[test]
    #[ignore = "tests/cli/top.rs runs it in a terminal"]
    fn panics_while_the_table_is_shown() {
        let mut screen = Screen::take().expect("a terminal");
        let drawn = screen.terminal.draw(|_| {});
        drawn.expect("it is drawn");
        panic!("on purpose");
    }
}
