//! Changes that the event stream reports, beside the transitions of jobs.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Change of a queue.
    QueueChange {
        /// The queue is new.
        Created = "created",
        /// Its profile or its settings changed.
        Changed = "changed",
        /// Claims get no jobs from it.
        Paused = "paused",
        /// Claims get jobs again.
        Resumed = "resumed",
        /// The queue was deleted.
        Deleted = "deleted",
    }
);

wire_enum!(
    /// Change of a schedule.
    ScheduleChange {
        /// The schedule is new.
        Created = "created",
        /// Its definition changed.
        Changed = "changed",
        /// It submits no jobs.
        Paused = "paused",
        /// It submits jobs again.
        Resumed = "resumed",
        /// The schedule was deleted.
        Deleted = "deleted",
        /// A tick submitted a job.
        Fired = "fired",
        /// A tick submitted no job.
        Skipped = "skipped",
    }
);
