//! The contract of the wire, over real sockets: every endpoint, every code, and what must survive.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod claims;
mod clock;
mod codes;
mod connections;
mod jobs;
mod lists;
mod operate;
mod queues;
mod restart;
mod submit;
mod watch;
mod work;
