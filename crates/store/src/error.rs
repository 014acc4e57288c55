//! Errors of the store itself. A refusal by the rules is none of them.

use std::fmt;
use std::sync::Arc;

/// What was underneath; shared, because everybody whose request was in the batch hears of it.
pub type Cause = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Nothing was written; the same call may be made again.
    NotApplied(Cause),
    /// It may have been written: repeat only what may be repeated (the same idempotency key, the same token).
    Unknown(Cause),
    /// A write or a sync failed earlier, or the writer has died: this call was not begun, nor will any be until a restart. Whoever was under way when
    /// it happened is told [`StoreError::Unknown`].
    Poisoned,
    /// Something on disk is not what was written.
    Corrupt { what: String },
    /// The data is of a version this program does not know, or of another kind.
    Format { found: String, supported: &'static str },
}

impl StoreError {
    pub fn not_applied(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::NotApplied(Arc::new(cause))
    }

    pub fn unknown(cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Unknown(Arc::new(cause))
    }

    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    /// For whoever only wanted to read, or writes somewhere else: that nothing was written would be no news.
    pub fn cause(&self) -> String {
        match self {
            Self::NotApplied(cause) | Self::Unknown(cause) => cause.to_string(),
            Self::Poisoned | Self::Corrupt { .. } | Self::Format { .. } => self.to_string(),
        }
    }

    /// Whether a write that got this answer may be there all the same.
    pub fn may_have_applied(&self) -> bool {
        match self {
            Self::Unknown(_) => true,
            Self::NotApplied(_) | Self::Poisoned | Self::Corrupt { .. } | Self::Format { .. } => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplied(cause) => write!(f, "nothing was written: {cause}"),
            Self::Unknown(cause) => write!(f, "it is not known whether this was written: {cause}"),
            Self::Poisoned => f.write_str(
                "nothing was written: an earlier write failed, and the store takes no more until it is restarted",
            ),
            Self::Corrupt { what } => write!(f, "the stored data is damaged: {what}"),
            Self::Format { found, supported } => write!(f, "found {found}; this program reads {supported}"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotApplied(cause) | Self::Unknown(cause) => Some(&**cause),
            Self::Poisoned | Self::Corrupt { .. } | Self::Format { .. } => None,
        }
    }
}
