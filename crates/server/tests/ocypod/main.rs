//! The Ocypod dialect over real sockets: what its clients say, and what they hear.

#[path = "../common/mod.rs"]
mod common;

mod alongside;
mod bad_input;
mod info;
mod jobs;
mod queues;
mod status;
mod time;
mod wire;
mod world;
