//! Tables: as wide as they need where nothing limits them, else within the terminal's width.
//!
//! Invariants: every row has as many cells as there are columns. What may have to be typed, names
//! and numbers, is never cut. In a terminal that is too narrow the [`Column::Long`] columns are
//! shortened, widest first, and the cut is marked with `..`. If that is not enough, a row goes on
//! in lines of its own, and so does the header. ASCII only, so a byte is a column; what is not
//! printable ASCII in a cell (a path, say) is shown escaped.

const GAP: &str = "  ";
/// Before the further lines of a row.
const INDENT: &str = "    ";
/// Narrowest that a column is shortened to: less says nothing.
const SHORTENED_COLUMNS_MIN: usize = 16;

/// What a column does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// Names, paths and words, never cut: somebody may have to type them.
    Text,
    /// Numbers, to the right, never cut.
    Number,
    /// Text that nobody types. It loses its end if there is no room.
    Long,
}

/// A table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: Vec<(String, Column)>,
    rows: Vec<Vec<String>>,
}

/// Where a column stands.
struct Place {
    width: usize,
    kind: Column,
    /// Whether it begins a further line of the row.
    begins_line: bool,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(columns: &[(&'static str, Column)]) -> Self {
        Self::of(columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect())
    }

    /// The same with columns that are not known before.
    #[must_use]
    pub fn of(columns: Vec<(String, Column)>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell for each column.
    pub fn row(&mut self, cells: impl AsRef<[String]>) {
        let (cells, columns) = (cells.as_ref(), self.columns.len());
        assert!(cells.len() == columns, "{} cells for {columns} columns", cells.len());
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Keeps these rows, in this order.
    pub(crate) fn keep(&mut self, places: &[usize]) {
        self.rows = places.iter().filter_map(|place| self.rows.get(*place).cloned()).collect();
    }

    /// Whether it has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, with or without the header; none wider than `room` columns, if that is given,
    /// but where one cell is, that is never cut.
    #[must_use]
    pub fn render(&self, header: bool, room: Option<usize>) -> String {
        let places = self.places(header, room.unwrap_or(usize::MAX));
        let mut text = String::new();
        if header {
            let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
            lines(&mut text, &names, &places);
        }
        for row in &self.rows {
            lines(&mut text, row, &places);
        }
        text
    }

    fn places(&self, header: bool, room: usize) -> Vec<Place> {
        let place = |(index, (name, kind)): (usize, &(String, Column))| {
            let cells = self.rows.iter().filter_map(|row| row.get(index)).map(String::len);
            let width = cells.max().unwrap_or(0).max(if header { name.len() } else { 0 });
            Place { width, kind: *kind, begins_line: false }
        };
        let mut places: Vec<Place> = self.columns.iter().enumerate().map(place).collect();
        if !shorten(&mut places, room) {
            places = self.columns.iter().enumerate().map(place).collect();
            wrap(&mut places, room);
        }
        places
    }
}

/// Has columns give up room until the table is `room` columns wide; whether it is.
fn shorten(places: &mut [Place], room: usize) -> bool {
    loop {
        let gaps = GAP.len() * places.len().saturating_sub(1);
        let total = places.iter().map(|place| place.width).sum::<usize>() + gaps;
        if total <= room {
            return true;
        }
        let can =
            |place: &&mut Place| place.kind == Column::Long && place.width > SHORTENED_COLUMNS_MIN;
        let widest = places.iter_mut().filter(can).max_by_key(|place| place.width);
        let Some(widest) = widest else { return false };
        widest.width -= 1;
    }
}

/// Has a row take several lines, each with as many columns as `room` has space for.
fn wrap(places: &mut [Place], room: usize) {
    let line = room.saturating_sub(INDENT.len());
    let mut end = 0;
    for (index, place) in places.iter_mut().enumerate() {
        if place.kind == Column::Long {
            place.width = place.width.min(line.max(SHORTENED_COLUMNS_MIN));
        }
        let gap = if index == 0 { 0 } else { GAP.len() };
        place.begins_line = index > 0 && end + gap + place.width > room;
        end = match place.begins_line {
            true => INDENT.len() + place.width,
            false => end + gap + place.width,
        };
    }
}

/// A row; further lines only where they say something.
fn lines(text: &mut String, cells: &[String], places: &[Place]) {
    let (mut line, mut is_first) = (String::new(), true);
    let mut end = |line: &str, is_first| {
        let line = line.trim_end();
        if is_first || !line.is_empty() {
            text.push_str(line);
            text.push('\n');
        }
    };
    for (index, (cell, place)) in cells.iter().zip(places).enumerate() {
        if place.begins_line {
            end(&line, is_first);
            (line, is_first) = (INDENT.to_owned(), false);
        } else if index > 0 {
            line.push_str(GAP);
        }
        let (cell, width) = (fit(cell, place), place.width);
        match place.kind {
            Column::Number => line.push_str(&format!("{cell:>width$}")),
            Column::Text | Column::Long => line.push_str(&format!("{cell:<width$}")),
        }
    }
    end(&line, is_first);
}

/// A text in printable ASCII: all else is escaped.
pub(crate) fn printable(cell: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() || c == ' ';
    cell.chars()
        .map(|c| if plain(c) { c.to_string() } else { c.escape_default().to_string() })
        .collect()
}

fn fit(cell: &str, place: &Place) -> String {
    if cell.len() <= place.width {
        return cell.to_owned();
    }
    assert!(place.kind == Column::Long, "only what nobody types is cut");
    let kept = cell.get(..place.width.saturating_sub(2)).unwrap_or_default();
    format!("{kept}..")
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
        assert_eq!(table.render(true, None), "NAME   SIZE\nhome  20GiB\na      1MiB\n");
        assert_eq!(table.render(false, None), "home  20GiB\na      1MiB\n");
    }

    /// A disk with a long name and a long note, and one without a note.
    fn disks() -> Table {
        let mut table = Table::new(&[
            ("DISK", Column::Text),
            ("SIZE", Column::Number),
            ("STATE", Column::Text),
            ("NOTE", Column::Long),
        ]);
        let note = "labelled for aggregate 'a1', not in service";
        table.row(["/dev/disk/d1.img".into(), "1GiB".into(), "foreign".into(), note.into()]);
        table.row(["d2".into(), "20GiB".into(), "unused".into(), String::new()]);
        table
    }

    #[test]
    fn a_table_that_nothing_limits_is_as_wide_as_it_needs() {
        let whole = "\
DISK               SIZE  STATE    NOTE
/dev/disk/d1.img   1GiB  foreign  labelled for aggregate 'a1', not in service
d2                20GiB  unused
";
        assert_eq!(disks().render(true, None), whole);
        assert_eq!(disks().render(true, Some(77)), whole);
    }

    #[test]
    fn what_nobody_types_is_shortened_first() {
        let text = "\
DISK               SIZE  STATE    NOTE
/dev/disk/d1.img   1GiB  foreign  labelled for agg..
d2                20GiB  unused
";
        assert_eq!(disks().render(true, Some(52)), text);
    }

    #[test]
    fn a_row_that_is_still_too_wide_takes_several_lines() {
        let text = "\
DISK               SIZE  STATE
    NOTE
/dev/disk/d1.img   1GiB  foreign
    labelled for aggregate 'a1',..
d2                20GiB  unused
";
        assert_eq!(disks().render(true, Some(34)), text);
        let text = "\
/dev/disk/d1.img
     1GiB
    foreign
    labelled for a..
d2
    20GiB
    unused
";
        assert_eq!(disks().render(false, Some(10)), text);
    }

    #[test]
    fn what_does_not_print_is_escaped() {
        let mut table = Table::new(&[("NAME", Column::Text)]);
        table.row(["a\u{1b}[31m\n\u{e9}".into()]);
        assert_eq!(table.render(false, None), "a\\u{1b}[31m\\n\\u{e9}\n");
    }

    proptest! {
        /// And no line is wider than the terminal, but one that has a single cell.
        #[test]
        fn what_may_be_typed_is_whole_at_any_width(
            rows in prop::collection::vec(
                ("[a-z/.]{1,300}", any::<u64>(), ".{0,64}", "[a-z0-9@-]{1,100}"), 1..6),
            room in prop::option::of(0..200_usize),
            header in any::<bool>(),
        ) {
            let mut table = Table::new(&[
                ("PATH", Column::Text),
                ("NUMBER", Column::Number),
                ("NOTE", Column::Long),
                ("NAME", Column::Text),
            ]);
            for (path, number, note, name) in &rows {
                table.row([path.clone(), number.to_string(), note.clone(), name.clone()]);
            }
            let text = table.render(header, room);
            let mut words = text.split_whitespace();
            for (path, number, _, name) in &rows {
                for typed in [path, &number.to_string(), name] {
                    prop_assert!(words.any(|word| word == typed), "{typed} in\n{text}");
                }
            }
            let lines = rows.len() + usize::from(header);
            prop_assert!(room.is_some() || text.lines().count() == lines, "{text}");
            for line in text.lines() {
                prop_assert!(line.is_ascii());
                let is_one_cell = !line.trim_start().contains(' ');
                let least = SHORTENED_COLUMNS_MIN + INDENT.len();
                let room = room.unwrap_or(usize::MAX).max(least);
                prop_assert!(line.len() <= room || is_one_cell, "{line}");
            }
        }
    }
}
