//! Aligns rows as columns.

use crate::text::{cut, width};

/// The space between two columns.
const GAP: usize = 2;

/// A column shrinks to this width at most.
const LEAST: usize = 8;

/// A column of a table.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    /// Numbers are aligned to the right.
    pub(crate) is_number: bool,
    /// Whether the column is cut if the table is wider than the terminal.
    pub(crate) shrinks: bool,
}

impl Column {
    pub(crate) const fn text(title: &'static str) -> Self {
        Self {
            title,
            is_number: false,
            shrinks: true,
        }
    }

    pub(crate) const fn number(title: &'static str) -> Self {
        Self {
            title,
            is_number: true,
            shrinks: false,
        }
    }
}

/// Returns the rows, a line for each. `terminal` is its width: then the table has a heading, and fits.
pub(crate) fn lines<const N: usize>(
    columns: &[Column; N],
    rows: &[[String; N]],
    terminal: Option<usize>,
) -> Vec<String> {
    let heading = columns.each_ref().map(|column| column.title.to_owned());
    let heading = terminal.map(|_| &heading);
    let mut widths = [0; N];
    for row in heading.into_iter().chain(rows) {
        for (column, cell) in widths.iter_mut().zip(row) {
            *column = (*column).max(width(cell));
        }
    }
    if let Some(terminal) = terminal {
        fit(columns, &mut widths, terminal);
    }
    let line = |row| line(columns, &widths, row);
    heading.into_iter().chain(rows).map(line).collect()
}

/// Shrinks the widest columns until the table fits, as far as they may.
fn fit<const N: usize>(columns: &[Column; N], widths: &mut [usize; N], terminal: usize) {
    while widths.iter().sum::<usize>() + GAP * (N - 1) > terminal {
        let may_shrink =
            |(column, width): &(&Column, &mut usize)| column.shrinks && **width > LEAST;
        let shrunk = columns.iter().zip(widths.iter_mut()).filter(may_shrink);
        let Some((_, widest)) = shrunk.max_by_key(|(_, width)| **width) else {
            return;
        };
        *widest -= 1;
    }
}

fn line<const N: usize>(columns: &[Column; N], widths: &[usize; N], row: &[String; N]) -> String {
    let mut line = String::new();
    for ((column, &columns), cell) in columns.iter().zip(widths).zip(row) {
        let cell = cut(cell, columns);
        let space = " ".repeat(columns - width(&cell));
        let (before, after) = if column.is_number {
            (&*space, "")
        } else {
            ("", &*space)
        };
        if !line.is_empty() {
            line.push_str(&" ".repeat(GAP));
        }
        line.extend([before, &cell, after]);
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column::text("KEY"),
        Column::text("HOLDER"),
        Column::number("WAITERS"),
    ];

    fn row(key: &str, holder: &str, waiters: &str) -> [String; 3] {
        [key, holder, waiters].map(str::to_owned)
    }

    #[test]
    fn columns_are_aligned_by_what_the_terminal_shows() {
        let rows = [row("order:42", "a", "12"), row("鍵", "billing", "3")];
        assert_eq!(
            lines(&COLUMNS, &rows, None),
            ["order:42  a        12", "鍵        billing   3"]
        );
        assert_eq!(
            lines(&COLUMNS, &rows, Some(80)),
            [
                "KEY       HOLDER   WAITERS",
                "order:42  a             12",
                "鍵        billing        3",
            ]
        );
        assert!(lines(&COLUMNS, &[], None).is_empty());
    }

    #[test]
    fn columns_of_text_are_cut_to_the_terminal_and_numbers_are_not() {
        let rows = [row(&"k".repeat(50), &"h".repeat(30), "123456")];
        for columns in [80, 60, 40, 27] {
            let lines = lines(&COLUMNS, &rows, Some(columns));
            for line in &lines {
                assert!(width(line) <= columns, "{columns}: {line}");
            }
            assert!(lines[1].ends_with(" 123456"), "{}", lines[1]);
            assert!(lines[1].contains('…'), "{}", lines[1]);
        }
        // Narrower than the columns may become: nothing panics.
        assert_eq!(lines(&COLUMNS, &rows, Some(3)).len(), 2);
    }
}
