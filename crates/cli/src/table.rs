//! Tables within [`WIDTH_COLUMNS_MAX`] columns.
//!
//! Invariants: every row has as many cells as there are columns; a table too wide gives up room in
//! its shrinkable columns only, widest first, and marks the cut with `..`. ASCII only, so a byte is
//! a column; what is not printable ASCII in a cell (a path, say) is shown escaped.

/// Widest line. Half a screen, and what a mail or an issue shows without wrapping.
pub const WIDTH_COLUMNS_MAX: usize = 100;
const GAP: &str = "  ";
/// Narrowest that a column shrinks to.
const SHRUNK_COLUMNS_MIN: usize = 8;

/// What a column does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// Text, never cut.
    Text,
    /// Numbers, to the right.
    Number,
    /// Text that loses its end if there is no room.
    Long,
    /// A path, which loses its beginning if there is no room.
    Path,
}

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Column)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[(&'static str, Column)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        assert!(N == self.columns.len(), "{N} cells for {} columns", self.columns.len());
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, with or without the header.
    #[must_use]
    pub fn render(&self, header: bool) -> String {
        let widths = self.widths(header);
        let mut text = String::new();
        if header {
            let names: Vec<String> =
                self.columns.iter().map(|(name, _)| (*name).to_owned()).collect();
            self.line(&mut text, &names, &widths);
        }
        for row in &self.rows {
            self.line(&mut text, row, &widths);
        }
        text
    }

    fn widths(&self, header: bool) -> Vec<usize> {
        let widest = |index: usize, name: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(index)).map(String::len);
            cells.max().unwrap_or(0).max(if header { name.len() } else { 0 })
        };
        let columns = self.columns.iter().enumerate();
        let mut widths: Vec<usize> =
            columns.map(|(index, (name, _))| widest(index, name)).collect();
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        loop {
            let total = widths.iter().sum::<usize>() + gaps;
            let shrinkable = |(index, width): &(usize, &mut usize)| {
                let kind = self.columns.get(*index).map(|(_, kind)| *kind);
                **width > SHRUNK_COLUMNS_MIN && matches!(kind, Some(Column::Long | Column::Path))
            };
            let widest =
                widths.iter_mut().enumerate().filter(shrinkable).max_by_key(|(_, width)| **width);
            match widest {
                Some((_, width)) if total > WIDTH_COLUMNS_MAX => *width -= 1,
                _ => return widths,
            }
        }
    }

    fn line(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let mut line = String::new();
        for (index, ((cell, width), (_, kind))) in
            cells.iter().zip(widths).zip(&self.columns).enumerate()
        {
            if index > 0 {
                line.push_str(GAP);
            }
            let cell = fit(cell, *width, *kind);
            match kind {
                Column::Number => line.push_str(&format!("{cell:>width$}")),
                _ => line.push_str(&format!("{cell:<width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// A text in printable ASCII: all else is escaped.
pub(crate) fn printable(cell: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    cell.chars()
        .map(|c| if plain(c) { c.to_string() } else { c.escape_default().to_string() })
        .collect()
}

fn fit(cell: &str, width: usize, kind: Column) -> String {
    if cell.len() <= width {
        return cell.to_owned();
    }
    let kept = width.saturating_sub(2);
    let kept = match kind {
        Column::Path => cell.get(cell.len() - kept..).map(|tail| format!("..{tail}")),
        _ => cell.get(..kept).map(|start| format!("{start}..")),
    };
    kept.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&[("NAME", Column::Text), ("SIZE", Column::Number)]);
        table.row(["home".into(), "20GiB".into()]);
        table.row(["a".into(), "1MiB".into()]);
        assert_eq!(table.render(true), "NAME   SIZE\nhome  20GiB\na      1MiB\n");
        assert_eq!(table.render(false), "home  20GiB\na      1MiB\n");
    }

    #[test]
    fn long_cells_give_up_room() {
        let columns = [("NAME", Column::Long), ("PATH", Column::Path), ("N", Column::Number)];
        let mut table = Table::new(&columns);
        table.row(["n".repeat(60), format!("/{}/disk.img", "p".repeat(80)), "7".into()]);
        let text = table.render(true);
        assert!(text.lines().all(|line| line.len() <= WIDTH_COLUMNS_MAX), "{text}");
        assert!(
            text.contains("nn..") && text.contains("..p") && text.contains("disk.img"),
            "{text}"
        );
    }

    #[test]
    fn what_does_not_print_is_escaped() {
        let mut table = Table::new(&[("NAME", Column::Text)]);
        table.row(["a\u{1b}[31m\n\u{e9}".into()]);
        assert_eq!(table.render(false), "a\\u{1b}[31m\\n\\u{e9}\n");
    }

    proptest! {
        #[test]
        fn tables_are_never_too_wide(
            rows in prop::collection::vec((".{0,64}", "[a-z/]{0,300}", 0_u64..1 << 40), 0..6),
        ) {
            let columns =
                [("NAME", Column::Long), ("PATH", Column::Path), ("SIZE", Column::Number)];
            let mut table = Table::new(&columns);
            for (name, path, size) in rows {
                table.row([name, path, size.to_string()]);
            }
            for line in table.render(true).lines() {
                prop_assert!(line.len() <= WIDTH_COLUMNS_MAX && line.is_ascii());
            }
        }
    }
}
