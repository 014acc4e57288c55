//! The hash of a job type in indexes.

use longshore_core::hash::fnv1a;

/// Returns the hash of a job type. Types may collide: the record resolves them.
pub fn type_hash(job_type: &str) -> i64 {
    fnv1a(job_type).cast_signed()
}
