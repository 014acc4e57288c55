//! The report of a comparison: figures, ratios with their spread, goals; as Markdown and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::figure::{Better, FIGURES, Figure};
use super::goal::{Bound, GOALS, Goal};
use super::harness::{STEAL, System};
use super::record::Repetitions;
use crate::samples::Spread;

/// Three significant digits, thousands separated.
pub fn show_number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 100.0 {
        let digits = format!("{:.0}", value.abs());
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        return if value < 0.0 { format!("-{text}") } else { text };
    }
    if magnitude >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

fn show_spread(spread: Spread) -> String {
    format!("{} ({} to {})", show_number(spread.median), show_number(spread.min), show_number(spread.max))
}

/// All tables as Markdown.
pub fn to_markdown(all: &Repetitions, with_goals: bool) -> String {
    let systems: Vec<System> = all.systems().iter().map(|name| System::parse(name)).collect();
    let rounds = all.next_round() - 1;
    let mut text = format!("Medians of {rounds} alternating rounds, minimum and maximum in brackets.\n");
    for ours in systems.iter().filter(|system| system.is_ours() && !system.before) {
        text.push_str(&ratio_table(all, ours, &systems));
    }
    text.push_str(&noise_table(all, &systems));
    if with_goals {
        text.push_str(&goal_table(all));
    }
    text
}

/// Systems that one of ours is compared with: all peers, and its own binary of before.
fn others<'a>(ours: &System, systems: &'a [System]) -> Vec<&'a System> {
    let is_other = |system: &&System| !system.is_ours() || (system.before && system.peer == ours.peer);
    systems.iter().filter(is_other).collect()
}

fn ratio_table(all: &Repetitions, ours: &System, systems: &[System]) -> String {
    let (name, others) = (&ours.name, others(ours, systems));
    let mut text = format!("\n### {name}\n\n| figure | unit | better | {name} |");
    for other in &others {
        let _ = write!(text, " {} | ratio |", other.name);
    }
    let _ = write!(text, "\n| --- | --- | --- | --- |{}", " --- | --- |".repeat(others.len()));
    for Figure { key, title, unit, better } in FIGURES {
        let Some(measured) = all.spread(name, key) else { continue };
        let better = match better {
            Better::More => "more",
            Better::Less => "less",
        };
        let _ = write!(text, "\n| {title} | {unit} | {better} | {} |", show_spread(measured));
        for other in &others {
            let value =
                all.spread(&other.name, key).map_or_else(|| "–".to_owned(), |spread| show_number(spread.median));
            let ratio = all.ratio(name, &other.name, key).map_or_else(|| "–".to_owned(), show_spread);
            let _ = write!(text, " {value} | {ratio} |");
        }
    }
    text.push('\n');
    text
}

/// Steal time, and CPU time that neither server nor client used: how far the figures can be relied
/// on.
fn noise_table(all: &Repetitions, systems: &[System]) -> String {
    let mut text =
        String::from("\n### Noise\n\n| system | steal, % | foreign CPU, s | wall time, s |\n| --- | --- | --- | --- |");
    for System { name, .. } in systems {
        let show = |key| all.spread(name, key).map_or_else(|| "–".to_owned(), show_spread);
        let _ = write!(text, "\n| {name} | {} | {} | {} |", show(STEAL), show("foreign_cpu_s"), show("wall_s"));
    }
    text.push('\n');
    text
}

/// What was measured for a goal.
struct Verdict {
    goal: &'static Goal,
    ours: Spread,
    other: Option<Spread>,
    measured: Spread,
}

fn verdicts(all: &Repetitions) -> Vec<Verdict> {
    let judge = |goal: &'static Goal| {
        let ours = all.spread(goal.ours, goal.figure.key)?;
        match goal.bound {
            Bound::Value(_) => Some(Verdict { goal, ours, other: None, measured: ours }),
            Bound::Ratio { system, .. } => {
                let other = all.spread(system, goal.figure.key);
                let measured = all.ratio(goal.ours, system, goal.figure.key)?;
                Some(Verdict { goal, ours, other, measured })
            }
        }
    };
    GOALS.iter().filter_map(judge).collect()
}

fn goal_table(all: &Repetitions) -> String {
    let mut text = String::from("\n### Goals\n\n| system | figure | goal | ours | other | measured | met |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- |");
    for Verdict { goal, ours, other, measured } in verdicts(all) {
        let (figure, unit) = (goal.figure.title, goal.figure.unit);
        let other = other.map_or_else(|| "–".to_owned(), |spread| format!("{} {unit}", show_number(spread.median)));
        let met = if goal.is_met_by(measured.median) { "yes" } else { "**no**" };
        let _ = write!(
            text,
            "\n| {} | {figure} | {} | {} {unit} | {other} | {} | {met} |",
            goal.ours,
            goal.show_bound(),
            show_number(ours.median),
            show_spread(measured)
        );
    }
    text.push('\n');
    text
}

/// The same report for programs.
pub fn to_json(all: &Repetitions) -> Value {
    let spread_json = |spread: Spread| json!({"median": spread.median, "min": spread.min, "max": spread.max});
    let systems: Vec<System> = all.systems().iter().map(|name| System::parse(name)).collect();
    let (mut figures, mut ratios) = (Vec::new(), Vec::new());
    for system in &systems {
        for Figure { key, unit, .. } in FIGURES {
            let Some(spread) = all.spread(&system.name, key) else { continue };
            figures.push(json!({"system": system.name, "figure": key, "unit": unit, "value": spread_json(spread)}));
            if !system.is_ours() || system.before {
                continue;
            }
            for other in others(system, &systems) {
                if let Some(ratio) = all.ratio(&system.name, &other.name, key) {
                    let (ours, other, value) = (&system.name, &other.name, spread_json(ratio));
                    ratios.push(json!({"ours": ours, "other": other, "figure": key, "ratio": value}));
                }
            }
        }
    }
    let goals: Vec<Value> = verdicts(all)
        .into_iter()
        .map(|Verdict { goal, ours, measured, .. }| {
            json!({
                "ours": goal.ours, "figure": goal.figure.key, "goal": goal.show_bound(), "value": spread_json(ours),
                "measured": spread_json(measured), "met": goal.is_met_by(measured.median)
            })
        })
        .collect();
    json!({"rounds": all.next_round() - 1, "figures": figures, "ratios": ratios, "goals": goals})
}

#[cfg(test)]
mod tests {
    use super::{show_number, to_json, to_markdown};
    use crate::compare::record::{Repetition, Repetitions};

    fn all() -> Repetitions {
        let repetition = |system: &str, round, bulk, memory| Repetition {
            system: system.to_owned(),
            round,
            figures: [("a_bulk1000_ops".to_owned(), bulk), ("d_mem_mib_100k".to_owned(), memory)].into(),
        };
        Repetitions(vec![
            repetition("longshore:joined", 1, 120_000.0, 70.0),
            repetition("nats-file", 1, 100_000.0, 9.0),
            repetition("longshore:joined", 2, 90_000.0, 60.0),
            repetition("nats-file", 2, 100_000.0, 9.0),
            repetition("longshore:joined", 3, 150_000.0, 66.0),
            repetition("nats-file", 3, 100_000.0, 9.0),
        ])
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown: Vec<String> = [0.5, 12.34, 123.4, 1_234_567.0, -1_234.0].into_iter().map(show_number).collect();
        assert_eq!(shown, ["0.50", "12.3", "123", "1,234,567", "-1,234"]);
    }

    #[test]
    fn report_has_ratios_with_spread_and_judged_goals() {
        let text = to_markdown(&all(), true);
        assert!(text.contains("Medians of 3 alternating rounds"), "{text}");
        assert!(text.contains("| bulk submit, 1,000 per call | jobs/s | more | 120,000 (90,000 to 150,000) | 100,000 | 1.20 (0.90 to 1.50) |"), "{text}");
        assert!(
            text.contains("≥ 1.1 × nats-file | 120,000 jobs/s | 100,000 jobs/s | 1.20 (0.90 to 1.50) | yes |"),
            "{text}"
        );
        assert!(text.contains("≤ 64 MiB | 66.0 MiB | – | 66.0 (60.0 to 70.0) | **no** |"), "{text}");
        assert!(!to_markdown(&all(), false).contains("Goals"));
    }

    #[test]
    fn json_carries_the_same_verdicts() {
        let report = to_json(&all());
        assert_eq!(report["rounds"], 3);
        let verdicts: Vec<bool> =
            report["goals"].as_array().expect("goals").iter().map(|goal| goal["met"] == true).collect();
        assert_eq!(verdicts, [true, false]);
        assert_eq!(report["ratios"][0]["ratio"]["median"], 1.2);
    }
}
