//! Check of key order in table scans.
//!
//! A table returns each key once, in order. A misplaced page breaks the order, and no other check
//! may notice, because its rows are valid. Every scan runs this check.

use longshore_store::StoreError;

use crate::error::corrupt;

/// Checks that keys ascend. Descending scans pass [`std::cmp::Reverse`].
#[derive(Debug)]
pub(crate) struct KeyOrderCheck<T> {
    table: &'static str,
    last: Option<T>,
}

impl<T: PartialOrd> KeyOrderCheck<T> {
    pub(crate) fn through(table: &'static str) -> Self {
        Self { table, last: None }
    }

    /// Checks a scan that starts after `last`, exclusive.
    pub(crate) fn after(table: &'static str, last: Option<T>) -> Self {
        Self { table, last }
    }

    pub(crate) fn next(&mut self, key: T) -> Result<(), StoreError> {
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(corrupt(&format!("rows of table \"{}\" are out of order", self.table)));
        }
        self.last = Some(key);
        Ok(())
    }
}
