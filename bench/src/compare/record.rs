//! Repetitions of a comparison, kept as JSON lines.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::harness::Figures;
use crate::samples::Spread;

/// One repetition of one system. Repetitions of one round were measured one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    pub system: String,
    pub round: usize,
    pub figures: Figures,
}

/// All repetitions of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repetitions(pub Vec<Repetition>);

impl Repetitions {
    /// Reads a file of JSON lines; a missing file is empty.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("cannot read {name}: {error}")),
        };
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let parsed: Result<Vec<Repetition>, _> = lines.map(serde_json::from_str).collect();
        parsed.map(Self).map_err(|error| format!("cannot parse {name}: {error}"))
    }

    pub fn write(&self, path: &Path) -> Result<(), String> {
        let mut text = String::new();
        for repetition in &self.0 {
            let line = serde_json::to_string(repetition).map_err(|error| format!("cannot write JSON: {error}"))?;
            let _ = writeln!(text, "{line}");
        }
        std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// The number of the next round.
    pub fn next_round(&self) -> usize {
        self.0.iter().map(|repetition| repetition.round).max().map_or(1, |round| round + 1)
    }

    /// Names of the systems in order of appearance.
    pub fn systems(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for repetition in &self.0 {
            if !names.contains(&repetition.system) {
                names.push(repetition.system.clone());
            }
        }
        names
    }

    /// Spread of a figure of a system over all rounds.
    pub fn spread(&self, system: &str, key: &str) -> Option<Spread> {
        Spread::of(&self.values(system, key).into_iter().map(|(_, value)| value).collect::<Vec<_>>())
    }

    /// Spread of the ratios of two systems. Each ratio pairs the values of one round, because noise
    /// of the machine lasts longer than a round.
    pub fn ratio(&self, ours: &str, other: &str, key: &str) -> Option<Spread> {
        let others = self.values(other, key);
        let paired = self.values(ours, key).into_iter().filter_map(|(round, value)| {
            let (_, base) = others.iter().find(|(base_round, base)| *base_round == round && *base > 0.0)?;
            Some(value / base)
        });
        Spread::of(&paired.collect::<Vec<_>>())
    }

    fn values(&self, system: &str, key: &str) -> Vec<(usize, f64)> {
        let of_system = self.0.iter().filter(|repetition| repetition.system == system);
        of_system.filter_map(|repetition| Some((repetition.round, *repetition.figures.get(key)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Repetition, Repetitions};
    use crate::samples::Spread;

    fn repetition(system: &str, round: usize, value: f64) -> Repetition {
        Repetition { system: system.to_owned(), round, figures: [("k".to_owned(), value)].into() }
    }

    #[test]
    fn ratio_pairs_the_values_of_each_round() {
        // The machine is at half its speed in round 2: the ratio stays.
        let all = Repetitions(vec![
            repetition("ours", 1, 200.0),
            repetition("peer", 1, 100.0),
            repetition("ours", 2, 100.0),
            repetition("peer", 2, 50.0),
            repetition("ours", 3, 300.0),
        ]);
        assert_eq!(all.ratio("ours", "peer", "k"), Some(Spread { median: 2.0, min: 2.0, max: 2.0 }));
        assert_eq!(all.ratio("ours", "missing", "k"), None);
        assert_eq!(all.next_round(), 4);
        assert_eq!(all.systems(), ["ours", "peer"]);
    }

    #[test]
    fn file_keeps_all_repetitions() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("rounds.jsonl");
        assert_eq!(Repetitions::read(&path), Ok(Repetitions::default()));
        let all = Repetitions(vec![repetition("ours", 1, 1.5), repetition("peer", 1, 2.0)]);
        all.write(&path).expect("written");
        assert_eq!(Repetitions::read(&path), Ok(all));
    }
}
