//! What tokens allow, and how calls end in the audit log.

use crate::string_enum::wire_enum;

wire_enum!(
    /// A group of calls that a token may allow.
    TokenAction {
        /// Submit jobs and workflows, release held jobs, trigger schedules.
        Submit = "submit",
        /// Claim, settle and renew leases, submit children.
        Work = "work",
        /// Every call that changes nothing.
        Read = "read",
        /// Cancel, requeue, dead-letter, run now, edit, delete, pause, bulk changes, directives.
        Operate = "operate",
        /// Change queues, schedules, webhooks and tokens; read the audit log.
        Admin = "admin",
    }
);

wire_enum!(
    /// How a call in the audit log ended.
    AuditOutcome {
        /// The call was applied.
        Applied = "ok",
        /// The call was refused and changed nothing.
        Refused = "refused",
        /// The server failed; the call may have been applied.
        Failed = "failed",
    }
);
