//! Tokens over real sockets: scope, revocation, expiry, audit log, secrets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "these are tests, helpers included"
)]

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod browser;
mod fail_closed;
mod limits;
mod matrix;
mod ocypod;
mod scope;
mod secrets;
mod tokens;

use serde_json::{Value, json};

use crate::common::Client;
use crate::common::client::Reply;

pub(crate) const ALL: &[&str] = &["submit", "work", "read", "operate", "admin"];

/// Sends a request with a token.
pub(crate) async fn call_as(c: &mut Client, token: &str, method: &str, path: &str, body: Option<&str>) -> Reply {
    send_as(c, token, method, path, body).await;
    c.reply().await.expect("the server closed the connection")
}

pub(crate) async fn send_as(c: &mut Client, token: &str, method: &str, path: &str, body: Option<&str>) {
    let kind = if body.is_some() { "Content-Type: application/json\r\n" } else { "" };
    let headers = format!("Authorization: Bearer {token}\r\n{kind}");
    c.send_bytes(method, path, &headers, body.unwrap_or_default().as_bytes()).await;
}

/// Creates the first token, with every action on every queue.
pub(crate) async fn first_token(c: &mut Client) -> String {
    let body = json!({"name": "root", "actions": ALL, "queues": ["*"]});
    text(&c.post("/v1/tokens", &body.to_string()).await.ok(201)["token"])
}

pub(crate) async fn create(c: &mut Client, root: &str, name: &str, actions: &[&str], queues: &[&str]) -> String {
    let body = json!({"name": name, "actions": actions, "queues": queues}).to_string();
    text(&call_as(c, root, "POST", "/v1/tokens", Some(&body)).await.ok(201)["token"])
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

pub(crate) fn id_of(token: &str) -> String {
    token.split('_').nth(1).unwrap().to_owned()
}
