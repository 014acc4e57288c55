//! The proofs of Longshore; a dev-dependency, never part of the product.
//!
//! - [`subject`]: what every implementation under test can do, in neutral words. The engine, the model, each store and the server are one.
//! - [`model`]: the naive reference, first written from the specifications without sight of the engine
//! - [`engine_subject`]: the engine of `longshore-engine` on records in memory
//! - [`store_subject`]: any store, in virtual time
//! - [`memory_records`]: the records of the engine in memory
//! - [`memory_store`]: the plainest store, to hold the suite against
//! - [`mod@conformance`]: what every store must do; one line makes it the tests of a store
//! - [`parking`]: random rounds of claims that wait, against a model
//! - [`postgres`]: a PostgreSQL server for tests
//! - [`side_by_side`]: random histories on the model and another subject, compared step by step, shrunk when they differ
//! - [`scenario`]: behaviour as text files (`scenarios/*.txt`), and their runner
//! - [`transitions`]: every (state × command × profile) triple against `tables/transitions.txt`
//! - [`world`]: an engine with a clock to move, for tests that look closer
//! - [`traceability`]: which test proves which line of the five specifications

pub mod block_on;
pub mod conformance;
mod convert;
pub mod differential;
pub mod engine_fixture;
pub mod engine_subject;
pub mod memory_records;
pub mod memory_store;
pub mod model;
pub mod parking;
pub mod postgres;
pub mod scenario;
pub mod store_subject;
pub mod target;
pub mod traceability;
pub mod transitions;
