//! Measured values of a sweep, kept as a CSV file beside its plot.

use std::fmt::Write as _;
use std::path::Path;

/// Where and when values were measured, and what was swept. Comment lines of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance(pub Vec<String>);

/// One value: a metric of a series at one position of the sweep, in one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub metric: String,
    pub series: String,
    pub position: f64,
    pub round: usize,
    pub value: f64,
}

/// Median and extremes of the rounds at one position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Returns nothing if there is no value.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

/// All samples of one sweep, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleFile {
    pub provenance: Provenance,
    pub samples: Vec<Sample>,
}

const HEADER: &str = "metric,series,position,round,value";

impl SampleFile {
    pub fn push(&mut self, metric: &str, series: &str, position: f64, round: usize, value: f64) {
        eprintln!("  {series}, {metric} at {position}: {value:.2} (round {round})");
        let (metric, series) = (metric.to_owned(), series.to_owned());
        self.samples.push(Sample { metric, series, position, round, value });
    }

    /// Names of the series that have a metric, in order of appearance.
    pub fn series_of(&self, metric: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for sample in self.samples.iter().filter(|sample| sample.metric == metric) {
            if !names.contains(&sample.series) {
                names.push(sample.series.clone());
            }
        }
        names
    }

    /// Positions of a series with the spread of their rounds, ascending.
    pub fn spreads(&self, metric: &str, series: &str) -> Vec<(f64, Spread)> {
        let matches = |sample: &&Sample| sample.metric == metric && sample.series == series;
        let mut positions: Vec<f64> = self.samples.iter().filter(matches).map(|sample| sample.position).collect();
        positions.sort_by(f64::total_cmp);
        positions.dedup();
        let spread = |position: f64| {
            let at = self.samples.iter().filter(matches).filter(|sample| sample.position == position);
            let values: Vec<f64> = at.map(|sample| sample.value).collect();
            Spread::of(&values).map(|spread| (position, spread))
        };
        positions.into_iter().filter_map(spread).collect()
    }

    pub fn to_csv(&self) -> String {
        let mut text = String::new();
        for line in &self.provenance.0 {
            let _ = writeln!(text, "# {line}");
        }
        let _ = writeln!(text, "{HEADER}");
        for sample in &self.samples {
            let Sample { metric, series, position, round, value } = sample;
            let _ = writeln!(text, "{metric},{series},{position},{round},{value:.3}");
        }
        text
    }

    /// Parses the text of a file. Names contain no commas, so that no quoting is needed.
    pub fn from_csv(text: &str) -> Result<Self, String> {
        let mut file = Self::default();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && *line != HEADER) {
            if let Some(comment) = line.strip_prefix('#') {
                file.provenance.0.push(comment.trim().to_owned());
                continue;
            }
            let fields: Vec<&str> = line.split(',').collect();
            let [metric, series, position, round, value] = fields.as_slice() else {
                return Err(format!("line {number} has {} fields: expected {HEADER}", fields.len()));
            };
            let number_of = |text: &str| text.parse::<f64>().map_err(|error| format!("line {number}: {text}: {error}"));
            file.samples.push(Sample {
                metric: (*metric).to_owned(),
                series: (*series).to_owned(),
                position: number_of(position)?,
                round: number_of(round)? as usize,
                value: number_of(value)?,
            });
        }
        Ok(file)
    }

    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::from_csv(&text).map_err(|error| format!("cannot parse {}: {error}", path.display()))
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.to_csv()).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Provenance, SampleFile, Spread};

    #[test]
    fn spread_has_the_median_of_odd_and_even_counts() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[3.0, 1.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]), Some(Spread { median: 3.0, min: 1.0, max: 9.0 }));
    }

    #[test]
    fn csv_round_trip_keeps_samples_and_provenance() {
        let mut file = SampleFile { provenance: Provenance(vec!["2 cores, ext4".into()]), samples: Vec::new() };
        file.push("jobs_per_s", "submit", 100.0, 1, 12_345.5);
        file.push("jobs_per_s", "submit", 100.0, 2, 12_000.0);
        file.push("p50_us", "submit", 10.0, 1, 0.25);
        assert_eq!(SampleFile::from_csv(&file.to_csv()), Ok(file));
    }

    #[test]
    fn csv_with_a_missing_field_names_its_line() {
        let error = SampleFile::from_csv("metric,series,position,round,value\na,b,1,2\n").expect_err("four fields");
        assert!(error.contains("line 2 has 4 fields"), "{error}");
        let error = SampleFile::from_csv("a,b,one,2,3\n").expect_err("no number");
        assert!(error.contains("line 1: one"), "{error}");
    }

    #[test]
    fn spreads_group_rounds_by_position() {
        let mut file = SampleFile::default();
        for (position, round, value) in [(10.0, 1, 5.0), (1.0, 1, 7.0), (10.0, 2, 9.0)] {
            file.push("m", "s", position, round, value);
        }
        file.push("other", "s", 10.0, 1, 100.0);
        let spreads = file.spreads("m", "s");
        assert_eq!(spreads.len(), 2);
        assert_eq!(spreads[0].0, 1.0);
        assert_eq!(spreads[1].1, Spread { median: 7.0, min: 5.0, max: 9.0 });
    }
}
