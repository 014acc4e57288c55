//! The terminal's view, and its keys.

use std::time::Duration;

use longshore_api::words::State;
use longshore_client::Client;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::snapshot::{STATES, Snapshot, rate};
use crate::context::Context;
use crate::terminal::failure::Failure;
use crate::terminal::safe::safe;

/// What the view shows; trouble beside the last that was seen.
#[derive(Clone)]
struct Seen {
    snapshot: Snapshot,
    trouble: Option<String>,
}

/// How long a key is waited for before the view is drawn again.
const GLANCE: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context, client: Client, first: Snapshot, apart: Duration) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (sender, receiver) = watch::channel(Seen { snapshot: first, trouble: None });
    let looking = runtime.spawn(look(client, sender, apart));
    // The terminal is put back whatever happens in between, a panic included.
    let mut terminal = ratatui::try_init()?;
    let shown = view(&mut terminal, &receiver, context);
    ratatui::restore();
    looking.abort();
    runtime.shutdown_background();
    shown
}

async fn look(client: Client, sender: watch::Sender<Seen>, apart: Duration) {
    let mut turns = interval(apart);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !sender.is_closed() {
        turns.tick().await;
        match Snapshot::take(&client).await {
            Ok(snapshot) => drop(sender.send_replace(Seen { snapshot, trouble: None })),
            Err(error) => sender.send_modify(|seen| seen.trouble = Some(error.to_string())),
        }
    }
}

/// Which of the lists is scrolled is clear from its length: queues come first.
fn view(
    terminal: &mut ratatui::DefaultTerminal,
    seen: &watch::Receiver<Seen>,
    context: &Context,
) -> Result<(), Failure> {
    let mut offset = 0_usize;
    loop {
        let now = seen.borrow().clone();
        let last = now.snapshot.queues.len().saturating_sub(1);
        offset = offset.min(last);
        terminal.draw(|frame| draw(frame, &now, offset, context))?;
        if !event::poll(GLANCE)? {
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

fn draw(frame: &mut Frame<'_>, seen: &Seen, offset: usize, context: &Context) {
    let workers = u16::try_from(seen.snapshot.workers.len()).unwrap_or(u16::MAX);
    let below = workers.saturating_add(2).min(frame.area().height / 2);
    let [head, queues, people, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(3), Constraint::Length(below), Constraint::Length(1)])
            .areas(frame.area());
    let paint = Paint { colour: context.screen.colour };
    let title = format!("{} at {}", seen.snapshot.summary(), context.server);
    frame.render_widget(Paragraph::new(Line::styled(safe(&title).into_owned(), paint.bold())), head);
    draw_queues(frame, queues, &seen.snapshot, offset, paint);
    draw_workers(frame, people, &seen.snapshot, paint);
    let foot_line = match &seen.trouble {
        Some(trouble) => Line::styled(safe(trouble).into_owned(), paint.alarm()),
        None => Line::raw(format!("{}   q quits, arrows scroll", seen.snapshot.stats.now)),
    };
    frame.render_widget(Paragraph::new(foot_line), foot);
}

/// Styles, or none where colours are not wanted.
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

fn number(text: String, style: Style) -> Cell<'static> {
    Cell::new(Line::raw(text).right_aligned()).style(style)
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, offset: usize, paint: Paint) {
    let mut header = vec![Cell::new("QUEUE")];
    let title = |name: &'static str| number(name.to_owned(), Style::new());
    header.extend(STATES.iter().map(|(_, name)| title(name)));
    header.extend(["SUB/S", "CLAIM/S", "DONE/S", "FAIL/S"].map(title));
    let rows = snapshot.queues.iter().skip(offset).map(|queue| {
        let name = if queue.paused { format!("{} (paused)", queue.name) } else { queue.name.clone() };
        let style = if queue.paused { paint.in_colour(Color::Yellow) } else { Style::new() };
        let mut cells = vec![Cell::new(safe(&name).into_owned()).style(style)];
        cells.extend(STATES.iter().map(|(state, _)| {
            let count = queue.counts.get(state).copied().unwrap_or(0);
            number(count.to_string(), paint.count(*state, count))
        }));
        let rates = snapshot.stats_of(queue).rates;
        let rates = [rates.submitted, rates.claimed, rates.completed, rates.failed];
        cells.extend(rates.map(|per_second| number(rate(per_second), Style::new())));
        Row::new(cells)
    });
    let mut widths = vec![Constraint::Min(12)];
    widths.extend(STATES.iter().map(|(_, name)| Constraint::Length(u16::try_from(name.len()).unwrap_or(9).max(7))));
    widths.extend([Constraint::Length(8); 4]);
    frame.render_widget(Table::new(rows, widths).header(Row::new(header).style(paint.bold())), area);
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, paint: Paint) {
    let header = ["WORKER", "RUNNING", "WAITING", "LAST SEEN", "QUEUES"];
    let rows = snapshot.workers.iter().map(|worker| {
        Row::new(vec![
            Cell::new(safe(&worker.name).into_owned()),
            Cell::new(worker.running.to_string()),
            Cell::new(worker.waiting.to_string()),
            Cell::new(worker.last_seen_at.to_string()),
            Cell::new(safe(&worker.queues.join(", ")).into_owned()),
        ])
    });
    let widths = [
        Constraint::Min(16),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(25),
        Constraint::Fill(1),
    ];
    frame.render_widget(Table::new(rows, widths).header(Row::new(header).style(paint.bold())), area);
}
