//! Figures and how they look.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

/// What a command found out.
pub(crate) trait Report {
    /// For people.
    fn text(&self) -> String;
}

/// Several runs of one thing, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median_ms: f64,
    pub(crate) min_ms: f64,
    pub(crate) max_ms: f64,
}

impl Spread {
    /// Of these runs; all zeros when there are none.
    pub(crate) fn of(runs: &[Duration]) -> Self {
        let mut ms: Vec<f64> = runs.iter().map(|run| run.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        let middle = ms.len() / 2;
        let median = match ms.len() {
            0 => 0.0,
            odd if odd % 2 == 1 => ms[middle],
            _ => f64::midpoint(ms[middle - 1], ms[middle]),
        };
        Self {
            median_ms: median,
            min_ms: ms.first().copied().unwrap_or_default(),
            max_ms: ms.last().copied().unwrap_or_default(),
        }
    }

    /// `median (min to max)`.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:.0} ({:.0} to {:.0})",
            self.median_ms, self.min_ms, self.max_ms
        )
    }
}

/// Megabytes with one decimal.
pub(crate) fn megabytes(bytes: u64) -> String {
    #[allow(
        clippy::cast_precision_loss,
        reason = "memory sizes are far below 2^52"
    )]
    let megabytes = bytes as f64 / 1e6;
    format!("{megabytes:.1}")
}

/// Columns of equal width, the first row as heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let text: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Tells on standard error how far the benchmark is, or what is wrong. That it cannot be written is nobody's loss.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "muster-bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_runs_lies_between_the_middle_two() {
        let ms = |list: &[u64]| -> Vec<Duration> {
            list.iter().map(|ms| Duration::from_millis(*ms)).collect()
        };
        assert_eq!(Spread::of(&ms(&[9, 1, 4, 2])).text(), "3 (1 to 9)");
        assert_eq!(Spread::of(&ms(&[9, 1, 4])).text(), "4 (1 to 9)");
        assert_eq!(Spread::of(&[]).text(), "0 (0 to 0)");
    }

    #[test]
    fn columns_line_up() {
        let rows = [row(["nodes", "ms"]), row(["1", "22"])];
        assert_eq!(table(&rows), "nodes  ms\n1      22");
    }
}
