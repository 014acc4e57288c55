//! Tables: aligned columns, fitted to the terminal where there is one.

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, presets};
use longshore_api::enums::State;

use super::escape::escape_line;
use super::output::Output;

/// One value of a row.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Number(String),
    State(State),
    /// Something a person should look at.
    Alarm(String),
}

impl Value {
    pub(crate) fn number(number: impl std::fmt::Display) -> Self {
        Self::Number(number.to_string())
    }

    /// Nothing is shown as nothing.
    pub(crate) fn maybe(value: Option<impl std::fmt::Display>) -> Self {
        Self::Text(value.map(|value| value.to_string()).unwrap_or_default())
    }
}

impl<T: std::fmt::Display> From<T> for Value {
    fn from(value: T) -> Self {
        Self::Text(value.to_string())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Value>>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Two columns without a header: what something is, and its value.
    pub(crate) fn key_values() -> Self {
        Self::new(&[])
    }

    pub(crate) fn row(&mut self, row: Vec<Value>) {
        self.rows.push(row);
    }

    pub(crate) fn key_value(&mut self, name: &str, value: impl Into<Value>) {
        self.row(vec![name.into(), value.into()]);
    }

    /// Left out when there is nothing to say.
    pub(crate) fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.key_value(name, value);
        }
    }

    pub(crate) fn drawn(&self, screen: &Output) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if screen.terminal {
            table.set_content_arrangement(ContentArrangement::Dynamic);
        } else {
            table.set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
        }
        if screen.colour {
            table.enforce_styling();
        }
        let bold = |cell: Cell| if screen.colour { cell.add_attribute(Attribute::Bold) } else { cell };
        if !self.header.is_empty() {
            let numbers = |column: usize| {
                let first = self.rows.first().and_then(|row| row.get(column));
                matches!(first, Some(Value::Number(_)))
            };
            table.set_header(self.header.iter().enumerate().map(|(column, name)| {
                let side = if numbers(column) { CellAlignment::Right } else { CellAlignment::Left };
                bold(Cell::new(name)).set_alignment(side)
            }));
        }
        for row in &self.rows {
            table.add_row(row.iter().map(|value| cell(value, screen.colour)));
        }
        let last = self.rows.first().map_or(0, Vec::len).saturating_sub(1);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index == last { 0 } else { 2 }));
        }
        // Nothing needs the blanks that fill the last column.
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

fn cell(value: &Value, colour: bool) -> Cell {
    let paint = |cell: Cell, shade: Option<Color>| match shade {
        Some(shade) if colour => cell.fg(shade),
        Some(_) | None => cell,
    };
    match value {
        Value::Text(text) => Cell::new(escape_line(text)),
        Value::Number(text) => Cell::new(escape_line(text)).set_alignment(CellAlignment::Right),
        Value::Alarm(text) => paint(Cell::new(escape_line(text)), Some(Color::Red)),
        Value::State(state) => paint(Cell::new(state.as_str()), shade(*state)),
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
    fn columns_are_aligned_and_cells_are_safe() {
        let screen = Output { json: false, terminal: false, colour: false };
        let mut table = Table::new(&["NAME", "JOBS", "STATE"]);
        table.row(vec!["a\u{1b}[2J".into(), Value::number(7), Value::State(State::DeadLetter)]);
        table.row(vec!["long name\n".into(), Value::number(1_234), "".into()]);
        let drawn = table.drawn(&screen);
        assert_eq!(drawn, "NAME         JOBS  STATE\na\\u{1b}[2J      7  dead_letter\nlong name\\n  1234", "\n{drawn}");
    }
}
