//! The first worker of the guide (docs/guides/rust.md), which a test compares with this file:
//! `cargo run -p longshore --example send_email`.

#[derive(serde::Serialize, serde::Deserialize, longshore::Job)]
#[job(type = "email.send", queue = "mail")]
struct SendEmail {
    to: String,
}

async fn send(_: longshore::JobContext, mail: SendEmail) -> Result<(), longshore::HandlerError> {
    println!("sending to {}", mail.to);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", longshore::Worker::from_env()?.on(send).handle_signals().run().await?);
    Ok(())
}
