//! Axes: from values to pixels, tick positions, tick labels.

/// How values are spaced on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// From zero.
    Linear,
    /// Zero, if there is one, is placed one step before the smallest value.
    Logarithmic,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `500`, `20k`, `1.5M`.
    Count,
    /// Input in bytes: `64 B`, `4 KiB`, `1 MiB`.
    Bytes,
    /// Input in microseconds: `500 µs`, `2 ms`, `1 s`.
    Time,
}

/// Three digits without trailing zeros.
fn short(value: f64) -> String {
    let digits = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn with_unit(value: f64, units: &[(f64, &str)]) -> String {
    let (factor, unit) =
        units.iter().find(|(factor, _)| value.abs() >= *factor).or(units.last()).copied().unwrap_or((1.0, ""));
    format!("{}{unit}", short(value / factor))
}

impl Notation {
    pub fn show(self, value: f64) -> String {
        if value == 0.0 {
            return "0".to_owned();
        }
        match self {
            Self::Count => with_unit(value, &[(1e6, "M"), (1e3, "k"), (1.0, "")]),
            Self::Bytes => with_unit(value, &[(1_048_576.0, " MiB"), (1_024.0, " KiB"), (1.0, " B")]),
            Self::Time => with_unit(value, &[(1e6, " s"), (1e3, " ms"), (1.0, " µs")]),
        }
    }
}

/// Maps values between `low` and `high` to pixels between `start` and `end`.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    spacing: Spacing,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Scale {
    /// Covers all values, rounded outwards to ticks on a value axis.
    pub fn new(spacing: Spacing, values: &[f64], pixels: (f64, f64)) -> Self {
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let high = positive.clone().fold(f64::MIN_POSITIVE, f64::max);
        let low = match spacing {
            Spacing::Linear => 0.0,
            Spacing::Logarithmic => positive.fold(high, f64::min),
        };
        let has_zero = spacing == Spacing::Logarithmic && values.contains(&0.0);
        let low = if has_zero { low / 10.0 } else { low };
        Self { spacing, low, high, start: pixels.0, end: pixels.1 }
    }

    /// Extends the axis to its outer ticks.
    pub fn rounded(self) -> Self {
        match self.spacing {
            Spacing::Linear => {
                let step = linear_step(self.high);
                Self { high: (self.high / step).ceil() * step, ..self }
            }
            Spacing::Logarithmic => {
                let ticks = steps_1_2_5(self.low / 5.0, self.high * 5.0);
                let low = ticks.iter().copied().rfind(|tick| *tick <= self.low).unwrap_or(self.low);
                let high = ticks.iter().copied().find(|tick| *tick >= self.high).unwrap_or(self.high);
                Self { low, high, ..self }
            }
        }
    }

    pub fn place(&self, value: f64) -> f64 {
        let part = match self.spacing {
            Spacing::Linear => value / self.high,
            Spacing::Logarithmic if self.high <= self.low => 0.5,
            Spacing::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Tick values of the axis: 1, 2, 5 steps, or powers of ten if these are too many.
    pub fn ticks(&self) -> Vec<f64> {
        match self.spacing {
            Spacing::Linear => {
                let step = linear_step(self.high);
                (0..=((self.high / step).round() as usize)).map(|index| index as f64 * step).collect()
            }
            Spacing::Logarithmic => {
                let fine = steps_1_2_5(self.low, self.high);
                if fine.len() <= MOST_TICKS {
                    return fine;
                }
                let is_power = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
                fine.into_iter().filter(is_power).collect()
            }
        }
    }
}

const MOST_TICKS: usize = 8;

/// A step of 1, 2, 2.5 or 5 times a power of ten that gives four to eight ticks up to `high`.
fn linear_step(high: f64) -> f64 {
    let rough = high / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// All 1, 2 and 5 times powers of ten between two values.
fn steps_1_2_5(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let steps = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)));
    steps.filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001).collect()
}

#[cfg(test)]
mod tests {
    use super::{Notation, Scale, Spacing};

    #[test]
    fn notations_choose_their_unit() {
        let shown: Vec<String> =
            [0.0, 5.0, 1_500.0, 20_000.0, 10_000_000.0].map(|value| Notation::Count.show(value)).into();
        assert_eq!(shown, ["0", "5", "1.5k", "20k", "10M"]);
        assert_eq!(Notation::Bytes.show(64.0), "64 B");
        assert_eq!(Notation::Bytes.show(1_048_576.0), "1 MiB");
        assert_eq!(Notation::Time.show(0.5), "0.5 µs");
        assert_eq!(Notation::Time.show(2_500.0), "2.5 ms");
    }

    #[test]
    fn linear_axis_starts_at_zero_and_ends_at_a_tick() {
        let scale = Scale::new(Spacing::Linear, &[3.0, 8.7], (100.0, 0.0)).rounded();
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale.place(0.0), 100.0);
        assert_eq!(scale.place(5.0), 50.0);
        assert_eq!(scale.place(10.0), 0.0);
    }

    #[test]
    fn logarithmic_axis_spaces_decades_evenly() {
        let scale = Scale::new(Spacing::Logarithmic, &[1.0, 10.0, 10_000.0], (0.0, 400.0));
        assert!((scale.place(10.0) - 100.0).abs() < 1e-6);
        assert!((scale.place(1_000.0) - 300.0).abs() < 1e-6);
        assert_eq!(scale.ticks(), [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn zero_is_placed_one_decade_before_the_smallest_value() {
        let scale = Scale::new(Spacing::Logarithmic, &[0.0, 100.0, 1_000.0], (0.0, 200.0));
        assert_eq!(scale.place(0.0), 0.0);
        assert!((scale.place(100.0) - 100.0).abs() < 1e-6);
    }

    #[test]
    fn narrow_logarithmic_axis_has_steps_between_powers() {
        let scale = Scale::new(Spacing::Logarithmic, &[130.0, 870.0], (100.0, 0.0)).rounded();
        assert_eq!(scale.ticks(), [100.0, 200.0, 500.0, 1_000.0]);
    }
}
