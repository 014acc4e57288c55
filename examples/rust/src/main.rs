//! Publishes one issue: `cargo run -p longshore-example -- DIRECTORY ADDRESS…`. The jobs are in the
//! directory: after a crash, the next run continues.

use std::sync::Arc;

use longshore::Longshore;
use longshore_example::{MailServer, Publish, publish, send};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: longshore-example DIRECTORY ADDRESS…")?;
    let subscribers: Vec<String> = arguments.collect();
    let queue = Longshore::open(directory).await?;
    queue.client().submit(Publish { issue: 1, subscribers }).key("issue 1").await?;
    let server = Arc::new(MailServer::default());
    let worker = queue.worker().on(publish).on(send).state(Arc::clone(&server)).until_empty().handle_signals();
    let report = worker.run().await?;
    for address in server.sent() {
        println!("sent to {address}");
    }
    println!("{report}");
    queue.close().await;
    Ok(())
}
