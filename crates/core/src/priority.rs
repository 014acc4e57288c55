//! Five levels of urgency; the lower number goes first.

use std::fmt;

use crate::policy::string_enum;

string_enum!(
    /// Ordered by urgency: `Critical` is the least value.
    Priority {
        Critical = "critical",
        High = "high",
        Normal = "normal",
        Low = "low",
        Bulk = "bulk",
    }
);

impl Priority {
    pub const COUNT: usize = Self::ALL.len();

    pub fn level(self) -> u8 {
        match self {
            Self::Critical => 0,
            Self::High => 1,
            Self::Normal => 2,
            Self::Low => 3,
            Self::Bulk => 4,
        }
    }

    pub fn from_level(level: u8) -> Option<Self> {
        Self::ALL.get(usize::from(level)).copied()
    }

    pub fn more_urgent(self, other: Self) -> Self {
        self.min(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves G-3.1, G-3.2, G-3.3, G-3.4, G-3.5.
    #[test]
    fn five_levels_from_critical_to_bulk() {
        let names: Vec<_> = (0..5).map(|level| Priority::from_level(level).unwrap().as_str()).collect();
        assert_eq!(names, ["critical", "high", "normal", "low", "bulk"]);
        assert!(Priority::ALL.iter().all(|priority| Priority::from_level(priority.level()) == Some(*priority)));
        assert_eq!(Priority::from_level(5), None);
        assert_eq!(Priority::Bulk.more_urgent(Priority::High), Priority::High);
    }
}
