//! Directives: what operators ask of workers.

pub use longshore_types::WorkerDirective;
