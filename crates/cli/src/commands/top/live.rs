//! The live view on a terminal, and its keys.

use std::time::Duration;

use longshore::Client;
use longshore::monotonic;
use longshore_api::enums::State;
use longshore_api::queue::Queue;
use longshore_api::system::Worker;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::columns::{Column, Fit, NAME_HEADER, PAUSED, QueueLine, count, shorten};
use super::rates::{CounterLog, RecentRates};
use super::snapshot::Snapshot;
use crate::commands::age::age_between;
use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::escape::escape_line;

/// Contents of the view: the last snapshot, and the error of a later poll.
#[derive(Clone)]
struct LiveView {
    snapshot: Snapshot,
    rates: RecentRates,
    error: Option<String>,
}

/// Time between two redraws without a key.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run(
    context: &Context,
    client: Client,
    first: Snapshot,
    interval_length: Duration,
) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let rates = RecentRates::of_server(&first);
    let (sender, receiver) = watch::channel(LiveView { snapshot: first, rates, error: None });
    let poller = runtime.spawn(poll(client, sender, interval_length));
    // `try_init` installs a panic hook that restores the terminal.
    let mut terminal = ratatui::try_init()?;
    let shown = view(&mut terminal, &receiver, context);
    ratatui::restore();
    poller.abort();
    runtime.shutdown_background();
    shown
}

/// Takes a snapshot per interval until the view is closed.
async fn poll(client: Client, sender: watch::Sender<LiveView>, interval_length: Duration) {
    let mut counters = CounterLog::default();
    let mut ticks = interval(interval_length);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !sender.is_closed() {
        ticks.tick().await;
        match Snapshot::fetch(&client).await {
            Ok(snapshot) => {
                counters.add(monotonic(), &snapshot.stats);
                let rates = counters.rates().unwrap_or_else(|| RecentRates::of_server(&snapshot));
                drop(sender.send_replace(LiveView { snapshot, rates, error: None }));
            }
            Err(error) => sender.send_modify(|seen| seen.error = Some(error.to_string())),
        }
    }
}

/// Draws the view and handles keys until the user quits. The keys scroll the queues.
fn view(
    terminal: &mut ratatui::DefaultTerminal,
    seen: &watch::Receiver<LiveView>,
    context: &Context,
) -> Result<(), CliError> {
    let mut offset = 0_usize;
    loop {
        let now = seen.borrow().clone();
        let last = now.snapshot.queues.len().saturating_sub(1);
        offset = offset.min(last);
        terminal.draw(|frame| draw(frame, &now, offset, context))?;
        if !event::poll(REFRESH_INTERVAL)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match (key.code, key.modifiers) {
                (KeyCode::Char('q') | KeyCode::Esc, _) => return Ok(()),
                (KeyCode::Char('c'), modifiers) if modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                (KeyCode::Down | KeyCode::Char('j'), _) => offset = offset.saturating_add(1).min(last),
                (KeyCode::Up | KeyCode::Char('k'), _) => offset = offset.saturating_sub(1),
                (KeyCode::PageDown, _) => offset = offset.saturating_add(10).min(last),
                (KeyCode::PageUp, _) => offset = offset.saturating_sub(10),
                (KeyCode::Home, _) => offset = 0,
                (KeyCode::End, _) => offset = last,
                _ => {}
            }
        }
    }
}

fn draw(frame: &mut Frame<'_>, seen: &LiveView, offset: usize, context: &Context) {
    let workers = u16::try_from(seen.snapshot.workers.len()).unwrap_or(u16::MAX);
    // A blank line, the header, and a line for each worker.
    let below = workers.saturating_add(2).min(frame.area().height / 2);
    let [head, queues, workers_area, foot] =
        Layout::vertical([Constraint::Length(3), Constraint::Min(3), Constraint::Length(below), Constraint::Length(1)])
            .areas(frame.area());
    let paint = Paint { colour: context.output.colour };
    let title = format!("{} at {}", seen.snapshot.summary(), context.server);
    let about = format!("{}, rates per second over {}", seen.snapshot.stats.now, seen.rates.window());
    let titles = vec![Line::styled(escape_line(&title).into_owned(), paint.bold()), Line::raw(about)];
    frame.render_widget(Paragraph::new(titles), head);
    draw_queues(frame, queues, seen, offset, paint);
    draw_workers(frame, workers_area, &seen.snapshot, paint);
    let foot_line = match &seen.error {
        Some(error) => Line::styled(escape_line(error).into_owned(), paint.alarm()),
        None => Line::raw(shown_part(offset, queues.height, seen.snapshot.queues.len())),
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

/// The last line: the range of visible queues, and the keys. `height` includes the header.
fn shown_part(offset: usize, height: u16, queues: usize) -> String {
    let last = (offset + usize::from(height.saturating_sub(1))).min(queues);
    let part = if offset == 0 && last == queues {
        String::new()
    } else {
        format!("queues {}-{last} of {queues}; ", offset + 1)
    };
    format!("{part}q quits, arrows scroll")
}

/// Styles, without colours if they are disabled.
#[derive(Clone, Copy)]
struct Paint {
    colour: bool,
}

impl Paint {
    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn in_colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn alarm(self) -> Style {
        self.in_colour(Color::Red)
    }

    fn count(self, state: State, count: u64) -> Style {
        match state {
            _ if count == 0 => Style::new().add_modifier(Modifier::DIM),
            State::Running => self.in_colour(Color::Cyan),
            State::Completed => self.in_colour(Color::Green),
            State::Retrying => self.in_colour(Color::Yellow),
            State::Failed | State::DeadLetter => self.alarm(),
            State::Pending | State::Scheduled | State::Delayed | State::Cancelled => Style::new(),
        }
    }
}

fn number(text: &str, style: Style) -> Cell<'static> {
    Cell::new(Line::raw(text.to_owned()).right_aligned()).style(style)
}

/// Blanks between two columns.
const GAP: u16 = 1;

fn draw_queues(frame: &mut Frame<'_>, area: Rect, seen: &LiveView, offset: usize, paint: Paint) {
    let lines = seen.snapshot.lines(&seen.rates);
    let fit = Fit::choose(&lines, usize::from(area.width), usize::from(GAP));
    let mut header = vec![Cell::new(NAME_HEADER)];
    header.extend(fit.paused.then(|| Cell::new("")));
    header.extend(fit.columns.iter().map(|(column, _)| number(column.header(), Style::new())));
    let queues = seen.snapshot.queues.iter().zip(&lines).skip(offset);
    let rows = queues.map(|(queue, line)| queue_row(queue, line, &fit, paint));
    let length = |width: usize| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX));
    let mut widths = vec![length(fit.name)];
    widths.extend(fit.paused.then(|| length(PAUSED.len())));
    widths.extend(fit.columns.iter().map(|(_, width)| length(*width)));
    let table = Table::new(rows, widths).column_spacing(GAP).header(Row::new(header).style(paint.bold()));
    frame.render_widget(table, area);
}

fn queue_row(queue: &Queue, line: &QueueLine, fit: &Fit, paint: Paint) -> Row<'static> {
    let style = if line.paused { paint.in_colour(Color::Yellow) } else { Style::new() };
    let mut cells = vec![Cell::new(shorten(&escape_line(&line.name), fit.name)).style(style)];
    cells.extend(fit.paused.then(|| Cell::new(if line.paused { PAUSED } else { "" }).style(style)));
    cells.extend(fit.columns.iter().map(|(column, _)| {
        let style = match column {
            Column::Count(state) => paint.count(*state, count(queue, *state)),
            Column::Oldest | Column::Submitted | Column::Claimed | Column::Completed | Column::Failed => Style::new(),
        };
        number(line.cell(*column), style)
    }));
    Row::new(cells)
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, paint: Paint) {
    let [_, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    if snapshot.workers.is_empty() {
        return frame.render_widget(Paragraph::new("no worker has claimed from this server"), area);
    }
    let name = |worker: &Worker| escape_line(&worker.name).into_owned();
    let longest = snapshot.workers.iter().map(|worker| name(worker).chars().count()).max().unwrap_or(0);
    let width = longest.clamp("WORKER".len(), (usize::from(area.width) / 3).max("WORKER".len()));
    let rows = snapshot.workers.iter().map(|worker| {
        let seen = format!("{} ago", age_between(worker.last_seen_at, snapshot.stats.now));
        Row::new(vec![
            Cell::new(shorten(&name(worker), width)),
            number(&worker.running.to_string(), Style::new()),
            number(&worker.waiting.to_string(), Style::new()),
            number(&seen, Style::new()),
            Cell::new(escape_line(&worker.queues.join(", ")).into_owned()),
        ])
    });
    let widths = [
        Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    let title = |text: &str| number(text, Style::new());
    let header = vec![Cell::new("WORKER"), title("RUNNING"), title("WAITING"), title("SEEN"), Cell::new("QUEUES")];
    frame
        .render_widget(Table::new(rows, widths).column_spacing(GAP).header(Row::new(header).style(paint.bold())), area);
}
