//! Words of schedules.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Which missed ticks of a schedule fire. A tick is missed if it was not processed within 60 s.
    Misfire {
        /// None of them.
        Skip = "skip",
        /// Only the latest.
        One = "one",
        /// Each of them, at most the latest 1,000.
        All = "all",
    }
);

wire_enum!(
    /// What a tick does while the job of the last fired tick has not ended.
    Overlap {
        /// It fires.
        Allow = "allow",
        /// It is skipped.
        Skip = "skip",
    }
);

wire_enum!(
    /// What became of a tick.
    TickOutcome {
        /// Its job was submitted.
        Fired = "fired",
        /// The job of the last fired tick had not ended.
        SkippedOverlap = "skipped_overlap",
        /// The tick was missed, and `misfire` skips it.
        SkippedMisfire = "skipped_misfire",
        /// The submission of its job was refused.
        Refused = "refused",
    }
);
