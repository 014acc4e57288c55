//! The goals that a comparison can check.

use super::figure::{
    BULK_SUBMIT, Better, CPU_BATCH, CPU_LOAD, CPU_SINGLE, DRAIN_BATCH, DRAIN_SINGLE, Figure, MEMORY, SUBMIT_1_P50,
    SUBMIT_8, SUBMIT_TO_HANDLER,
};

/// What a goal bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Ratio of ours to a system.
    Ratio { system: &'static str, bound: f64 },
    /// The figure itself.
    Value(f64),
}

/// A bound of one figure of one of our systems. `figure.better` says whether it is a lower or an
/// upper bound.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    pub ours: &'static str,
    pub figure: Figure,
    pub bound: Bound,
}

const fn ratio(ours: &'static str, figure: Figure, system: &'static str, bound: f64) -> Goal {
    Goal { ours, figure, bound: Bound::Ratio { system, bound } }
}

const EMBEDDED: &str = "longshore:joined";
const POSTGRES: &str = "longshore-pg:joined";
const POSTGRES_BEFORE: &str = "longshore-pg@before";

/// Goals of the hot path, with settlements in claims.
pub const GOALS: [Goal; 18] = [
    ratio(EMBEDDED, BULK_SUBMIT, "nats-file", 1.1),
    ratio(EMBEDDED, DRAIN_BATCH, "nats-file", 1.0),
    ratio(EMBEDDED, SUBMIT_8, "floor", 0.8),
    ratio(EMBEDDED, SUBMIT_8, "pg-skiplocked", 2.5),
    ratio(EMBEDDED, DRAIN_SINGLE, "pg-skiplocked", 5.0),
    ratio(EMBEDDED, DRAIN_SINGLE, "beanstalkd-f50", 0.6),
    ratio(EMBEDDED, SUBMIT_1_P50, "floor", 1.4),
    ratio(EMBEDDED, SUBMIT_TO_HANDLER, "beanstalkd-f0", 1.0),
    ratio(EMBEDDED, CPU_SINGLE, "nats-file", 1.5),
    ratio(EMBEDDED, CPU_BATCH, "nats-file", 0.9),
    ratio(EMBEDDED, CPU_LOAD, "nats-file", 0.9),
    Goal { ours: EMBEDDED, figure: MEMORY, bound: Bound::Value(64.0) },
    ratio(POSTGRES, DRAIN_SINGLE, "pg-skiplocked", 2.0),
    // "No row worse than before": 5 % are noise of the machine.
    ratio(POSTGRES, BULK_SUBMIT, POSTGRES_BEFORE, 0.95),
    ratio(POSTGRES, SUBMIT_8, POSTGRES_BEFORE, 0.95),
    ratio(POSTGRES, DRAIN_BATCH, POSTGRES_BEFORE, 0.95),
    ratio(POSTGRES, SUBMIT_1_P50, POSTGRES_BEFORE, 1.05),
    ratio(POSTGRES, SUBMIT_TO_HANDLER, POSTGRES_BEFORE, 1.05),
];

impl Goal {
    /// Whether a measured ratio or value is within the bound.
    pub fn is_met_by(&self, measured: f64) -> bool {
        match (self.figure.better, self.bound) {
            (Better::More, Bound::Ratio { bound, .. } | Bound::Value(bound)) => measured >= bound,
            (Better::Less, Bound::Ratio { bound, .. } | Bound::Value(bound)) => measured <= bound,
        }
    }

    /// The bound in words, such as `≥ 1.1 × nats-file`.
    pub fn show_bound(&self) -> String {
        let sign = match self.figure.better {
            Better::More => "≥",
            Better::Less => "≤",
        };
        match self.bound {
            Bound::Ratio { system, bound } => format!("{sign} {bound} × {system}"),
            Bound::Value(bound) => format!("{sign} {bound} {}", self.figure.unit),
        }
    }
}
