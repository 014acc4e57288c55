//! What needs the attention of operators.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Why something needs attention.
    AttentionCode {
        /// Ready jobs wait, and no worker claims them.
        NoWorker = "no_worker",
        /// The oldest ready job has waited longer than the target of its queue.
        OldestOverTarget = "oldest_over_target",
        /// The queue has more dead letters than a while ago.
        DeadLettersGrowing = "dead_letters_growing",
        /// The queue is paused and has ready jobs.
        PausedWithWork = "paused_with_work",
        /// The last tick of a schedule submitted no job, or is late.
        ScheduleMissed = "schedule_missed",
        /// The disk of the store is nearly full.
        DiskLow = "disk_low",
        /// The clock of a server differs from that of the database, or its reports are late.
        NodeBehind = "node_behind",
        /// Most attempts of the queue fail.
        ErrorBurst = "error_burst",
        /// An endpoint is disabled, or its deliveries fail.
        WebhookFailing = "webhook_failing",
    }
);

wire_enum!(
    /// How urgent it is. The order is that of the list.
    Severity {
        /// Jobs do not run, or are about to be refused.
        Error = "error",
        /// Jobs run late, or some of them fail.
        Warning = "warning",
        /// Nothing is wrong yet.
        Info = "info",
    }
);
