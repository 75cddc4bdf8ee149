//! Writes the results as Markdown tables.

use std::fmt::Write as _;

use crate::{bounds::Verdict, results::Results};

/// Formats one scenario: a row for each contestant, a column for each figure, with the ratio to the
/// floor in brackets.
pub(crate) fn table(results: &Results) -> String {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(
        results
            .metrics
            .iter()
            .map(|metric| metric.title().to_owned()),
    );
    for &kind in &results.contestants {
        let mut row = vec![kind.to_string()];
        for &metric in &results.metrics {
            let mut cell = metric.show(results.value(kind, metric));
            if metric.compares() && kind != results.floor {
                let ratio = results.ratio(kind, metric);
                if ratio.is_finite() {
                    let _ = write!(cell, " ({ratio:.2})");
                }
            }
            row.push(cell);
        }
        rows.push(row);
    }
    let mut text = format!("## {}{}\n\n", results.scenario.title(), results.network);
    if let Some(added) = results.added {
        let _ = writeln!(text, "`PING` takes {added:.2} ms longer.\n");
    }
    text.push_str(&markdown(&rows));
    for (kind, error) in &results.errors {
        let _ = writeln!(text, "\n{kind} failed: {error}");
    }
    text
}

/// Formats the bounds, and whether they hold.
pub(crate) fn verdicts(verdicts: &[Verdict]) -> String {
    let mut rows = vec![["", "bound", "measured", ""].map(str::to_owned).to_vec()];
    for verdict in verdicts {
        rows.push(vec![
            format!("{}{}", verdict.scenario.title(), verdict.network),
            verdict.bound.clone(),
            verdict.measured.clone(),
            if verdict.holds { "pass" } else { "FAIL" }.to_owned(),
        ]);
    }
    format!("## Bounds\n\n{}", markdown(&rows))
}

/// Formats rows of equal length, with the first as the header.
fn markdown(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(3)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if index == 0 {
            for width in &widths {
                let _ = write!(text, "| {} ", "-".repeat(*width));
            }
            text.push_str("|\n");
        }
    }
    text
}
