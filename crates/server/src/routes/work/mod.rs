//! Work: claimed, settled, kept alive, fanned out.

pub(crate) mod claim;
pub(crate) mod complete;
pub(crate) mod handed;
mod settle;
