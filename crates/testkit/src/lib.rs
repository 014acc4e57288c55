//! The proofs of Longshore. A dev-dependency, never part of the product.
//!
//! - [`target`]: the interface of every implementation under test, in neutral types
//! - [`model`]: the naive reference model, written from the specifications without the engine
//! - [`engine_subject`]: the engine of `longshore-engine` on records in memory, as a target
//! - [`store_subject`]: any store in virtual time, as a target
//! - [`memory_records`]: the records of the engine in memory
//! - [`memory_store`]: the simplest store, for tests of the suite and of servers
//! - [`faulty_store`]: a store layer that injects faults
//! - [`mod@conformance`]: the behaviour that every store must have, as a test suite
//! - [`parking`]: random parked claims compared with a model
//! - [`postgres`]: a PostgreSQL server for tests
//! - [`differential`]: random histories on the model and a target, compared and shrunk
//! - [`scenario`]: behaviour as text files (`scenarios/*.txt`), and their runner
//! - [`transitions`]: every (state × command × profile) triple against `tables/transitions.txt`
//! - [`engine_fixture`]: an engine with a virtual clock, for tests of the engine itself
//! - [`block_on`]: the smallest executor
//! - [`traceability`]: which test proves which line of the five specifications

pub mod block_on;
pub mod conformance;
mod convert;
pub mod differential;
pub mod engine_fixture;
pub mod engine_subject;
pub mod faulty_store;
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
