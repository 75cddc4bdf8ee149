//! The size of the terminal that is the standard output, and how a page is drawn again on it.

use std::io::{self, IsTerminal as _};

use rustix::termios::tcgetwinsize;

/// The size of a terminal whose size is not known.
const USUAL: (usize, usize) = (80, 24);

/// The size of the terminal that is the standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) columns: usize,
    rows: usize,
}

impl Screen {
    /// Returns `None` if the standard output is not a terminal.
    pub(crate) fn of_stdout() -> Option<Self> {
        let stdout = io::stdout();
        if !stdout.is_terminal() {
            return None;
        }
        let size = tcgetwinsize(&stdout).ok();
        let known = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
        Some(Self {
            columns: size.map_or(USUAL.0, |size| known(size.ws_col, USUAL.0)),
            rows: size.map_or(USUAL.1, |size| known(size.ws_row, USUAL.1)),
        })
    }

    /// Returns what clears the screen and shows this text, as far as the screen has lines.
    pub(crate) fn redrawn(self, text: &str) -> String {
        const HOME_AND_CLEAR: &str = "\x1b[H\x1b[2J";
        let lines: Vec<&str> = text.lines().collect();
        // The cursor takes the last line.
        let room = self.rows.saturating_sub(1).max(1);
        let mut shown = HOME_AND_CLEAR.to_owned();
        if lines.len() <= room {
            shown.push_str(text);
            return shown;
        }
        let (first, rest) = lines.split_at(room - 1);
        shown.extend(first.iter().flat_map(|line| [line, "\n"]));
        shown.extend(["… and ", &rest.len().to_string(), " more\n"]);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_longer_than_the_screen_is_cut() {
        let screen = Screen {
            columns: 80,
            rows: 4,
        };
        assert_eq!(screen.redrawn("1\n2\n3\n"), "\x1b[H\x1b[2J1\n2\n3\n");
        let cut = screen.redrawn("1\n2\n3\n4\n");
        assert_eq!(cut, "\x1b[H\x1b[2J1\n2\n… and 2 more\n");
    }
}
