//! Tables give their rows in the order of their keys, each key once. A page that lies where another belongs does not, and nothing else may tell: its rows
//! are sound. Whoever walks over rows walks in step with this.

use longshore_store::StoreError;

use crate::error::damaged;

/// The keys of a walk must rise; for one that goes down, those of [`std::cmp::Reverse`].
#[derive(Debug)]
pub(crate) struct KeyOrderCheck<T> {
    table: &'static str,
    last: Option<T>,
}

impl<T: PartialOrd> KeyOrderCheck<T> {
    pub(crate) fn through(table: &'static str) -> Self {
        Self { table, last: None }
    }

    /// Behind a key that is not among them; `None` is from the first.
    pub(crate) fn behind(table: &'static str, last: Option<T>) -> Self {
        Self { table, last }
    }

    pub(crate) fn next(&mut self, key: T) -> Result<(), StoreError> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(damaged(&format!("the rows of table \"{}\" are out of order", self.table)));
        }
        self.last = Some(key);
        Ok(())
    }
}
