//! Five levels of urgency; the lower number is claimed first.

pub use longshore_types::Priority;
