//! Enums are the same types on the wire and in the rules: these conversions change nothing.

use longshore_core::priority::Priority;
use longshore_core::profile::Profile;
use longshore_core::state::StateKind;
use longshore_core::workflow::WorkflowState;

/// To the rules.
pub(crate) trait ToCore {
    fn core(self) -> Self;
}

/// To the wire.
pub(crate) trait ToWire {
    fn wire(self) -> Self;
}

macro_rules! identity {
    ($($name:ty),+) => {
        $(impl ToCore for $name {
            fn core(self) -> Self {
                self
            }
        }
        impl ToWire for $name {
            fn wire(self) -> Self {
                self
            }
        })+
    };
}

identity!(Profile, StateKind, Priority, WorkflowState);
