//! Values of settings that are a closed set.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Unit of `retry.limit`.
    RetryLimitUnit {
        /// Claims, lost leases included.
        Starts = "starts",
        /// Failed attempts.
        Failures = "failures",
        /// Retries after the first attempt.
        Retries = "retries",
    }
);

wire_enum!(
    /// Formula of the wait before a retry.
    BackoffKind {
        /// Always `base`.
        Constant = "constant",
        /// `base` times the number of the retry.
        Linear = "linear",
        /// `base` times `multiplier` to the power of the earlier retries.
        Exponential = "exponential",
        /// One entry of `delays` for each retry; the last entry repeats.
        List = "list",
    }
);

wire_enum!(
    /// Randomness of the wait before a retry.
    JitterKind {
        /// No randomness.
        None = "none",
        /// Uniform between plus and minus `factor` of the wait.
        Symmetric = "symmetric",
        /// Uniform from zero to the wait.
        Full = "full",
    }
);

wire_enum!(
    /// What a permanent failure does.
    OnPermanent {
        /// Ends the job as `failed`.
        Failed = "failed",
        /// Ends the job as `dead_letter`.
        DeadLetter = "dead_letter",
        /// Retries it like any other failure.
        Retry = "retry",
    }
);

wire_enum!(
    /// Terminal state of a job whose retries are used up.
    OnExhausted {
        /// Ends as `dead_letter`.
        DeadLetter = "dead_letter",
        /// Ends as `failed`.
        Failed = "failed",
    }
);

wire_enum!(
    /// Whether a failure of category timeout or system is retried.
    OnFailure {
        /// Retries it while the limit allows.
        Retry = "retry",
        /// Treats it like a permanent failure.
        Final = "final",
    }
);

wire_enum!(
    /// What the expiry of a lease does.
    OnLeaseExpiry {
        /// The job is ready again; the next start counts against the retry limit.
        ReclaimCounted = "reclaim_counted",
        /// The job is ready again, without regard to the retry limit.
        ReclaimFree = "reclaim_free",
        /// The attempt fails with category timeout.
        FailTimeout = "fail_timeout",
        /// The attempt fails and is retried while the limit allows.
        FailRetryable = "fail_retryable",
    }
);

wire_enum!(
    /// When an orphan, a running job whose lease has expired, is reclaimed.
    Reclaim {
        /// As soon as the lease has expired.
        Eager = "eager",
        /// With the next claim that takes it over; until then it is shown as running.
        Lazy = "lazy",
    }
);

wire_enum!(
    /// Whether a worker must prove its lease with the lease token.
    Fencing {
        /// A call without the token is refused.
        Required = "required",
        /// A call without the token is accepted; a wrong token is refused.
        Optional = "optional",
    }
);

wire_enum!(
    /// Jobs among which an idempotency key is unique.
    IdempotencyScope {
        /// Jobs of the same queue and type.
        Type = "type",
        /// Jobs of the same queue.
        Queue = "queue",
        /// All jobs.
        Global = "global",
        /// Keys are refused.
        Off = "off",
    }
);

wire_enum!(
    /// Position of a job that becomes ready again, among jobs of equal priority.
    RequeueOrder {
        /// By the order of submission: before jobs that were submitted later.
        Submission = "submission",
        /// Behind all jobs that are ready now.
        Tail = "tail",
    }
);

wire_enum!(
    /// Whether creating a job also submits it.
    SubmitMode {
        /// A new job is submitted at once.
        Auto = "auto",
        /// A new job is held until a client submits it.
        Explicit = "explicit",
    }
);

wire_enum!(
    /// What a requeue by a client does.
    ManualRequeue {
        /// Runs the same job again.
        InPlace = "in_place",
        /// Creates a new job with the same work; the old record stays.
        Clone = "clone",
    }
);

wire_enum!(
    /// How a running job is cancelled.
    CancelRunning {
        /// The worker gets the request with its next heartbeat and stops the run itself.
        Cooperative = "cooperative",
        /// The job ends at once; the lease token becomes stale.
        Immediate = "immediate",
    }
);
