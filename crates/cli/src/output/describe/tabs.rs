//! Text with elastic tabs: cells of lines that follow each other are aligned, each column only over the lines
//! that have it. kubectl's describe texts are laid out that way.

/// Blanks behind the widest cell of a column.
const PADDING: usize = 2;

/// Lines with tabs in them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Text {
    lines: Vec<String>,
}

impl Text {
    /// Adds a line, indented by two blanks a level.
    pub(crate) fn line(&mut self, level: usize, text: impl AsRef<str>) {
        let indent = "  ".repeat(level);
        for line in text.as_ref().split('\n') {
            self.lines.push(format!("{indent}{line}"));
        }
    }

    /// The text with its tabs as they are: what kubectl prints where it forgets to align.
    pub(crate) fn raw(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The aligned text.
    pub(crate) fn render(&self) -> String {
        let rows: Vec<Vec<&str>> = self
            .lines
            .iter()
            .map(|line| line.split('\t').collect())
            .collect();
        let mut widths = vec![Vec::new(); rows.len()];
        align(&rows, &mut widths, 0);
        let mut text = String::new();
        for (row, widths) in rows.iter().zip(&widths) {
            for (index, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if index + 1 < row.len() {
                    let width = widths.get(index).copied().unwrap_or_default();
                    text.push_str(&" ".repeat(usize::saturating_sub(width, cell.chars().count())));
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Gives every run of lines that have a cell in this column the width of the widest of them.
fn align(rows: &[Vec<&str>], widths: &mut [Vec<usize>], column: usize) {
    // The last cell of a line ends no column.
    let has = |row: &Vec<&str>| row.len() > column + 1;
    let mut start = 0;
    while start < rows.len() {
        if !has(&rows[start]) {
            start += 1;
            continue;
        }
        let end = start + rows[start..].iter().take_while(|row| has(row)).count();
        let widest = rows[start..end]
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default();
        for width in &mut widths[start..end] {
            width.push(widest + PADDING);
        }
        align(&rows[start..end], &mut widths[start..end], column + 1);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_run_of_lines() {
        let mut text = Text::default();
        text.line(0, "Name:\tweb");
        text.line(0, "Namespace:\tdefault");
        text.line(0, "no tab here");
        text.line(1, "a:\tb\tc");
        text.line(1, "aaaa:\tbbbb\tc");
        text.line(1, "x:\ty");
        assert_eq!(
            text.render(),
            "Name:       web\nNamespace:  default\nno tab here\n  a:     b     c\n  aaaa:  bbbb  c\n  x:     y\n"
        );
    }
}
