//! Tables with aligned columns, fitted to the width of the terminal.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, presets};
use longshore_api::enums::State;

use super::escape::escape_line;
use super::output::Output;

/// Characters of the names in a cell, unless the first name is longer.
const NAMES_LENGTH: usize = 60;

/// Joins the names that fit into a cell, and counts the others. A worker may claim from 1,000
/// queues.
pub(crate) fn join_names(names: &[String]) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        if index > 0 && text.chars().count() + separator.len() + name.chars().count() > NAMES_LENGTH {
            return format!("{text} and {} more", names.len() - index);
        }
        text.push_str(separator);
        text.push_str(name);
    }
    text
}

/// One cell of a row.
#[derive(Clone, Debug)]
pub(crate) enum CellValue {
    Text(String),
    Number(String),
    State(State),
    /// Shown in red.
    Alarm(String),
}

impl CellValue {
    pub(crate) fn number(number: impl std::fmt::Display) -> Self {
        Self::Number(number.to_string())
    }

    /// An empty cell for `None`.
    pub(crate) fn maybe(value: Option<impl std::fmt::Display>) -> Self {
        Self::Text(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

impl<T: std::fmt::Display> From<T> for CellValue {
    fn from(value: T) -> Self {
        Self::Text(value.to_string())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TextTable {
    header: Vec<&'static str>,
    rows: Vec<Vec<CellValue>>,
}

impl TextTable {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// A table of two columns, key and value, without a header.
    pub(crate) fn key_values() -> Self {
        Self::new(&[])
    }

    pub(crate) fn row(&mut self, row: Vec<CellValue>) {
        self.rows.push(row);
    }

    pub(crate) fn key_value(&mut self, name: &str, value: impl Into<CellValue>) {
        self.row(vec![name.into(), value.into()]);
    }

    /// Adds a row unless the value is `None`.
    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.key_value(name, value);
        }
    }

    pub(crate) fn render(&self, output: &Output) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if output.terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        }
        if output.colour {
            table.enforce_styling();
        }
        let bold = |cell: Cell| if output.colour { cell.add_attribute(Attribute::Bold) } else { cell };
        if !self.header.is_empty() {
            let numbers = |column: usize| {
                let first = self.rows.first().and_then(|row| row.get(column));
                matches!(first, Some(CellValue::Number(_)))
            };
            table.set_header(self.header.iter().enumerate().map(|(column, name)| {
                let side = if numbers(column) { CellAlignment::Right } else { CellAlignment::Left };
                bold(Cell::new(name)).set_alignment(side)
            }));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|value| cell(value, output.colour)));
        }
        let last = self.rows.first().map_or(self.header.len(), Vec::len).saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { 2 }));
        }
        // The table pads the last column with blanks.
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

fn cell(value: &CellValue, colour: bool) -> Cell {
    let paint = |cell: Cell, shade: Option<Color>| match shade {
        Some(shade) if colour => cell.fg(shade),
        Some(_) | None => cell,
    };
    match value {
        CellValue::Text(text) => Cell::new(escape_line(text)),
        CellValue::Number(text) => Cell::new(escape_line(text)).set_alignment(CellAlignment::Right),
        CellValue::Alarm(text) => paint(Cell::new(escape_line(text)), Some(Color::Red)),
        CellValue::State(state) => paint(Cell::new(state.as_str()), shade(*state)),
    }
}

fn shade(state: State) -> Option<Color> {
    match state {
        State::Completed => Some(Color::Green),
        State::Running => Some(Color::Cyan),
        State::Retrying | State::Cancelled => Some(Color::Yellow),
        State::Failed | State::DeadLetter => Some(Color::Red),
        State::Pending | State::Scheduled | State::Delayed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_names_are_bounded() {
        let names = |names: &[&str]| join_names(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&[]), "");
        assert_eq!(names(&["mail", "reports"]), "mail, reports");
        let long = "x".repeat(100);
        assert_eq!(names(&[&long]), long);
        assert_eq!(names(&["mail", &long, "reports"]), "mail and 2 more");
        assert!(names(&["queue-of-twenty-chars"; 1_000]).ends_with(" and 998 more"));
    }

    #[test]
    fn columns_are_aligned_and_cells_are_escaped() {
        let output = Output { json: false, terminal: false, colour: false };
        let mut table = TextTable::new(&["NAME", "JOBS", "STATE"]);
        table.row(vec!["a\u{1b}[2J".into(), CellValue::number(7), CellValue::State(State::DeadLetter)]);
        table.row(vec!["long name\n".into(), CellValue::number(1_234), "".into()]);
        let render = table.render(&output);
        assert_eq!(
            render, "NAME         JOBS  STATE\na\\u{1b}[2J      7  dead_letter\nlong name\\n  1234",
            "\n{render}"
        );
        let empty = TextTable::new(&["NAME", "JOBS"]).render(&output);
        assert_eq!(empty, "NAME  JOBS", "\n{empty}");
    }
}
