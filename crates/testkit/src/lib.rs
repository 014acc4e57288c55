//! Proofs for Longshore.
pub mod engine_subject;
pub mod model;
pub mod scenario;
pub mod side_by_side;
pub mod subject;
pub mod traceability;
pub mod transitions;
