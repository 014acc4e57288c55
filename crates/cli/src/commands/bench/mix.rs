//! Shares of the operations, and the number of tasks of each.

use std::str::FromStr;

/// Shares of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mix {
    pub(crate) submit: u32,
    pub(crate) work: u32,
    pub(crate) get: u32,
    pub(crate) list: u32,
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix = Self::default();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').unwrap_or((part, "1"));
            let share = share.trim().parse().ok().filter(|share| *share <= 1_000_000);
            let share: u32 = share.ok_or_else(|| format!("\"{part}\": a share is a number, as in submit=1"))?;
            let target = match name.trim() {
                "submit" => &mut mix.submit,
                "work" => &mut mix.work,
                "get" => &mut mix.get,
                "list" => &mut mix.list,
                other => return Err(format!("\"{other}\": expected submit, work, get or list")),
            };
            *target = share;
        }
        if mix == Self::default() { Err("every share is 0".to_owned()) } else { Ok(mix) }
    }
}

impl Mix {
    /// Divides the tasks by share, with at least one for each share above 0.
    pub(super) fn tasks(&self, total: u64) -> Tasks {
        let sum = u64::from(self.submit) + u64::from(self.work) + u64::from(self.get) + u64::from(self.list);
        let part = |share: u32| match u64::from(share) {
            0 => 0,
            share => ((total * share + sum / 2) / sum.max(1)).max(1),
        };
        Tasks { submit: part(self.submit), work: part(self.work), get: part(self.get), list: part(self.list) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tasks {
    pub(super) submit: u64,
    pub(super) work: u64,
    pub(super) get: u64,
    pub(super) list: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_follow_the_shares() {
        let mix: Mix = "submit=4, work=3,get".parse().unwrap();
        assert_eq!(mix, Mix { submit: 4, work: 3, get: 1, list: 0 });
        assert_eq!(mix.tasks(8), Tasks { submit: 4, work: 3, get: 1, list: 0 });
        assert_eq!(mix.tasks(1), Tasks { submit: 1, work: 1, get: 1, list: 0 });
        for bad in ["", "submit=0", "submit=x", "sing=1", "submit=-1", "submit=99999999999"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }
}
