//! Columns of the queue table: their texts, and which of them fit into a width.

use longshore_api::Time;
use longshore_api::enums::State;
use longshore_api::queue::Queue;
use longshore_api::system::Rates;

use crate::commands::age::age_between;

/// A column of the queue table besides the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Count(State),
    /// How long the first ready job has been waiting.
    Oldest,
    Submitted,
    Claimed,
    Completed,
    Failed,
}

/// All columns in display order.
const SHOWN: [Column; 14] = [
    Column::Count(State::Scheduled),
    Column::Oldest,
    Column::Count(State::Running),
    Column::Count(State::Retrying),
    Column::Count(State::Delayed),
    Column::Count(State::Pending),
    Column::Count(State::DeadLetter),
    Column::Count(State::Failed),
    Column::Count(State::Completed),
    Column::Count(State::Cancelled),
    Column::Submitted,
    Column::Claimed,
    Column::Completed,
    Column::Failed,
];

/// All columns, the most important first.
const BY_IMPORTANCE: [Column; 14] = [
    Column::Count(State::Scheduled),
    Column::Count(State::Running),
    Column::Count(State::DeadLetter),
    Column::Oldest,
    Column::Completed,
    Column::Failed,
    Column::Count(State::Retrying),
    Column::Submitted,
    Column::Count(State::Delayed),
    Column::Count(State::Pending),
    Column::Claimed,
    Column::Count(State::Failed),
    Column::Count(State::Completed),
    Column::Count(State::Cancelled),
];

/// Least width of names, if columns must be dropped; a third of the width if that is more.
const NAME_LEAST: usize = 24;

pub(super) const NAME_HEADER: &str = "QUEUE";
pub(super) const PAUSED: &str = "paused";

impl Column {
    pub(super) fn header(self) -> &'static str {
        match self {
            Self::Count(State::Pending) => "PENDING",
            Self::Count(State::Scheduled) => "SCHEDULED",
            Self::Count(State::Delayed) => "DELAYED",
            Self::Count(State::Running) => "RUNNING",
            Self::Count(State::Retrying) => "RETRYING",
            Self::Count(State::Completed) => "COMPLETED",
            Self::Count(State::Failed) => "FAILED",
            Self::Count(State::DeadLetter) => "DEAD",
            Self::Count(State::Cancelled) => "CANCELLED",
            Self::Oldest => "OLDEST",
            Self::Submitted => "SUBMIT/S",
            Self::Claimed => "CLAIM/S",
            Self::Completed => "DONE/S",
            Self::Failed => "FAIL/S",
        }
    }

    pub(super) fn text(self, queue: &Queue, rates: &Rates, now: Time) -> String {
        match self {
            Self::Count(state) => count(queue, state).to_string(),
            Self::Oldest => queue.oldest_scheduled_at.map_or_else(|| "-".to_owned(), |at| age_between(at, now)),
            Self::Submitted => rate(rates.submitted),
            Self::Claimed => rate(rates.claimed),
            Self::Completed => rate(rates.completed),
            Self::Failed => rate(rates.failed),
        }
    }
}

pub(super) fn count(queue: &Queue, state: State) -> u64 {
    queue.counts.get(&state).copied().unwrap_or(0)
}

fn rate(per_second: f64) -> String {
    if per_second >= 100.0 { format!("{per_second:.0}") } else { format!("{per_second:.1}") }
}

/// A queue as text, with one cell per column of [`SHOWN`].
#[derive(Clone, Debug)]
pub(super) struct QueueLine {
    pub(super) name: String,
    pub(super) paused: bool,
    cells: Vec<String>,
}

impl QueueLine {
    pub(super) fn new(queue: &Queue, rates: &Rates, now: Time) -> Self {
        let cells = SHOWN.iter().map(|column| column.text(queue, rates, now)).collect();
        Self { name: queue.name.clone(), paused: queue.paused, cells }
    }

    pub(super) fn cell(&self, column: Column) -> &str {
        let index = SHOWN.iter().position(|other| *other == column);
        index.and_then(|index| self.cells.get(index)).map_or("", String::as_str)
    }
}

/// The columns that fit into a width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    /// Width of the name.
    pub(super) name: usize,
    /// Whether there is a column for "paused": only if a queue is paused.
    pub(super) paused: bool,
    /// Columns with their widths, from left to right.
    pub(super) columns: Vec<(Column, usize)>,
}

impl Fit {
    /// All columns, for output that is not a terminal.
    pub(super) fn everything(lines: &[QueueLine]) -> Self {
        Self::choose(lines, usize::MAX, 1)
    }

    /// Chooses columns by importance until one does not fit. Columns are as wide as their contents;
    /// the name gets the remaining width.
    pub(super) fn choose(lines: &[QueueLine], width: usize, gap: usize) -> Self {
        let paused = lines.iter().any(|line| line.paused);
        let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0).max(NAME_HEADER.len());
        let available = width.saturating_sub(if paused { PAUSED.len() + gap } else { 0 });
        let least = longest.min(NAME_LEAST.max(width / 3)).min(available);
        let mut left = available - least;
        let mut chosen = Vec::new();
        for column in BY_IMPORTANCE {
            let width = column_width(lines, column);
            if width + gap > left {
                break;
            }
            left -= width + gap;
            chosen.push((column, width));
        }
        chosen.sort_by_key(|(column, _)| SHOWN.iter().position(|other| other == column));
        Self { name: least.saturating_add(left).min(longest), paused, columns: chosen }
    }
}

fn column_width(lines: &[QueueLine], column: Column) -> usize {
    lines.iter().map(|line| line.cell(column).len()).max().unwrap_or(0).max(column.header().len())
}

/// Shortens a text in the middle: names of queues often differ at their end.
pub(super) fn shorten(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (tail, head) = (kept / 2, kept - kept / 2);
    let ellipsis = if width > 0 { "…" } else { "" };
    text.chars().take(head).chain(ellipsis.chars()).chain(text.chars().skip(length - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "reports.customers.europe-west-2.nightly-export-to-warehouse1";

    fn line(name: &str, paused: bool, largest: &str) -> QueueLine {
        QueueLine { name: name.to_owned(), paused, cells: vec![largest.to_owned(); SHOWN.len()] }
    }

    fn headers(fit: &Fit) -> Vec<&'static str> {
        fit.columns.iter().map(|(column, _)| column.header()).collect()
    }

    fn total(fit: &Fit, gap: usize) -> usize {
        let columns: usize = fit.columns.iter().map(|(_, width)| width + gap).sum();
        fit.name + columns + if fit.paused { PAUSED.len() + gap } else { 0 }
    }

    #[test]
    fn every_column_is_shown_and_ranked_once() {
        for column in SHOWN {
            assert_eq!(BY_IMPORTANCE.iter().filter(|other| **other == column).count(), 1, "{column:?}");
        }
    }

    #[test]
    fn columns_follow_the_width() {
        let lines = [line(LONG, false, "12"), line("mail", true, "3.4")];
        let at = |width: usize| Fit::choose(&lines, width, 1);
        assert_eq!(headers(&at(80)), ["SCHEDULED", "OLDEST", "RUNNING", "DEAD", "DONE/S", "FAIL/S"]);
        let at_100 = ["SCHEDULED", "OLDEST", "RUNNING", "RETRYING", "DEAD", "DONE/S", "FAIL/S"];
        assert_eq!(headers(&at(100)), at_100);
        assert_eq!(at(140).columns.len(), 11, "{:?}", headers(&at(140)));
        assert_eq!(at(220).columns.len(), SHOWN.len());
        assert_eq!(at(220).name, LONG.len());
        assert!(at(80).name >= 26 && at(100).name >= 33 && at(140).name >= 46);
    }

    #[test]
    fn columns_fit_into_any_width() {
        for width in 0..260 {
            for gap in [1, 2] {
                for paused in [false, true] {
                    let lines = [line(LONG, paused, "1234567890"), line("q", false, "1")];
                    let fit = Fit::choose(&lines, width, gap);
                    let least = if paused { PAUSED.len() + gap } else { 0 };
                    assert!(total(&fit, gap) <= width.max(least), "{width} {fit:?}");
                    assert!(fit.columns.iter().all(|(_, width)| *width >= 10), "{width} {fit:?}");
                    assert_eq!(fit.paused, paused);
                }
            }
        }
    }

    #[test]
    fn short_names_leave_room_for_columns() {
        let fit = Fit::choose(&[line("mail", false, "1")], 80, 1);
        assert_eq!(fit.name, 5, "{fit:?}");
        assert!(fit.columns.len() > 7, "{fit:?}");
        assert_eq!(Fit::choose(&[], 80, 1).name, 5);
        assert_eq!(Fit::everything(&[line(LONG, true, "1")]).columns.len(), SHOWN.len());
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shorten("mail", 4), "mail");
        assert_eq!(shorten("reports.nightly", 8), "repo…tly");
        assert_eq!(shorten("reports.nightly", 1), "…");
        assert_eq!(shorten("reports.nightly", 0), "");
    }
}
