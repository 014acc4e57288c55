//! Profiles: named bundles of settings, and the behavior that no setting describes.

use crate::string_enum::wire_enum;

wire_enum!(
    /// Named bundle of settings: the default, or one of the five specifications.
    Profile {
        /// The default.
        Standard = "standard",
        /// GopherQueue, formal job model.
        Gopherqueue = "gopherqueue",
        /// TaskHarbor, runtime semantics.
        Taskharbor = "taskharbor",
        /// Ocypod.
        Ocypod = "ocypod",
        /// weave-queue.
        Weave = "weave",
        /// The document job lifecycle.
        Document = "document",
    }
);

wire_enum!(
    /// Specification whose fields and state names a job is shown with.
    View {
        /// GopherQueue, formal job model.
        Gopherqueue = "gopherqueue",
        /// TaskHarbor, runtime semantics.
        Taskharbor = "taskharbor",
        /// Ocypod.
        Ocypod = "ocypod",
        /// weave-queue.
        Weave = "weave",
        /// The document job lifecycle.
        Document = "document",
    }
);

impl Profile {
    /// Whether the lifecycle has no detours: no release, snooze, run-now or manual dead letter.
    pub fn strict(self) -> bool {
        match self {
            Self::Document => true,
            Self::Standard | Self::Gopherqueue | Self::Taskharbor | Self::Ocypod | Self::Weave => false,
        }
    }

    /// Whether a job may only shorten the execution timeout of its queue.
    pub fn only_shortens_execution_timeout(self) -> bool {
        match self {
            Self::Standard | Self::Gopherqueue => true,
            Self::Taskharbor | Self::Ocypod | Self::Weave | Self::Document => false,
        }
    }

    /// Whether submitting a held job to a full queue fails the job instead of refusing the call.
    pub fn fails_when_full(self) -> bool {
        match self {
            Self::Document => true,
            Self::Standard | Self::Gopherqueue | Self::Taskharbor | Self::Ocypod | Self::Weave => false,
        }
    }

    /// Whether `retry.limit` has no maximum. In Ocypod the largest number means "without limit".
    pub fn retries_without_limit(self) -> bool {
        match self {
            Self::Ocypod => true,
            Self::Standard | Self::Gopherqueue | Self::Taskharbor | Self::Weave | Self::Document => false,
        }
    }

    /// Whether the tags of a job cannot be changed after its creation.
    pub fn tags_fixed(self) -> bool {
        match self {
            Self::Ocypod => true,
            Self::Standard | Self::Gopherqueue | Self::Taskharbor | Self::Weave | Self::Document => false,
        }
    }
}
