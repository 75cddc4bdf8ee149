//! Lays out the rows and colours of `rlock top`.

use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    style::{Modifier, Style},
    text::Line,
    widgets::Paragraph,
};

use super::looks::{Looks, Order};
use crate::{ls, table, text::escaped};

/// What is shown, and how.
pub(super) struct View {
    pub(super) looks: Looks,
    pub(super) order: Order,
    /// How many locks are above the screen.
    pub(super) scrolled: usize,
    pub(super) glob: String,
    /// What went wrong lately.
    pub(super) notice: Option<String>,
}

impl View {
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let rows = Constraint::Length(1);
        let areas = Layout::vertical([rows, rows, rows, Constraint::Min(0), rows]);
        let [title, rates, heading, body, footer] = areas.areas(frame.area());
        let room = usize::from(body.height);
        let locks = self.looks.sorted(self.order);
        self.scrolled = self.scrolled.min(locks.len().saturating_sub(room));

        let held = format!(
            "rlock top {}   {}",
            escaped(&self.glob),
            self.looks.summary()
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(held, bold), title);
        frame.render_widget(Line::raw(self.rates()), rates);

        let cells: Vec<_> = locks.into_iter().map(ls::row).collect();
        let columns = usize::from(frame.area().width);
        let lines = table::lines(&ls::COLUMNS, &cells, Some(columns));
        if let [first, rest @ ..] = lines.as_slice() {
            let reversed = Style::new().add_modifier(Modifier::REVERSED);
            let first = format!("{first:columns$}");
            frame.render_widget(Line::styled(first, reversed), heading);
            let shown = rest.iter().skip(self.scrolled).take(room);
            let shown: Vec<Line<'_>> = shown.map(|line| Line::raw(line.as_str())).collect();
            frame.render_widget(Paragraph::new(shown), body);
        }

        let keys = "q quit   w by waiters   a by age   ↑ ↓ scroll";
        let (text, style) = match &self.notice {
            Some(notice) => (escaped(notice).into_owned(), bold),
            None => (keys.to_owned(), Style::new().add_modifier(Modifier::DIM)),
        };
        frame.render_widget(Line::styled(text, style), footer);
    }

    fn rates(&self) -> String {
        let rates = self.looks.rates();
        let order = match self.order {
            Order::Waiters => "waiters",
            Order::Age => "age",
        };
        format!(
            "+{:.1}/s appear, -{:.1}/s disappear   by {order}",
            rates.appeared, rates.gone
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::{Terminal, backend::TestBackend};
    use rlock_core::LockClient;

    use super::*;

    async fn view(client: &LockClient) -> View {
        let mut listed = ls::listed(client, "*", 0).await.unwrap();
        // Equal ages: the order of the rows is that of the keys.
        for info in &mut listed.locks {
            info.holder.as_mut().unwrap().held_for = Duration::ZERO;
        }
        let mut looks = Looks::default();
        looks.add(listed);
        View {
            looks,
            order: Order::Waiters,
            scrolled: 0,
            glob: "*".to_owned(),
            notice: None,
        }
    }

    fn drawn(view: &mut View, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |row| (0..columns).map(move |column| buffer[(column, row)].symbol());
        (0..rows).map(|at| row(at).collect()).collect()
    }

    #[tokio::test]
    async fn the_table_scrolls_and_fits_every_screen() {
        let client = LockClient::in_memory();
        let mut guards = Vec::new();
        for n in 0..9 {
            guards.push(client.lock(format!("order:{n}")).acquire().await.unwrap());
        }
        let mut view = view(&client).await;
        let lines = drawn(&mut view, 80, 10);
        assert!(
            lines[0].starts_with("rlock top *   9 held, 0 waiters"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("+0.0/s appear, -0.0/s disappear   by waiters"),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("KEY      HOLDER"), "{lines:?}");
        assert!(lines[3].starts_with("order:0"), "{lines:?}");
        assert!(lines[9].starts_with("q quit"), "{lines:?}");
        view.scrolled = usize::MAX;
        view.notice = Some("cannot\u{1b}[2J list".to_owned());
        let lines = drawn(&mut view, 80, 10);
        assert!(
            lines[8].starts_with("order:8"),
            "the last one is the last: {lines:?}"
        );
        assert!(lines[9].starts_with("cannot\\u{1b}[2J list"), "{lines:?}");
        for (columns, rows) in [(1, 1), (3, 4), (20, 2), (300, 100)] {
            drawn(&mut view, columns, rows);
        }
    }

    #[tokio::test]
    async fn without_locks_there_is_no_heading() {
        let lines = drawn(&mut view(&LockClient::in_memory()).await, 60, 6);
        assert!(lines[0].contains("0 held"), "{lines:?}");
    }
}
