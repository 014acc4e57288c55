//! `longshore webhooks`

use clap::{Args, Subcommand};
use longshore_api::enums::{DeliveryState, WebhookEvent};
use longshore_api::webhook::{PutWebhook, Webhook, WebhookDelivery};

use crate::context::Context;
use crate::terminal::error::CliError;
use crate::terminal::table::{CellValue, TextTable};

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// List endpoints
    List,
    /// Show one endpoint; its secret is never shown again
    Get(EndpointArg),
    Put(PutWebhookArgs),
    /// Delete an endpoint; its pending deliveries fail
    Delete(EndpointArg),
    /// Give an endpoint a new secret; the old one signs too for 24 hours
    Rotate(EndpointArg),
    /// Send `webhook.test` to an endpoint, once
    Test(EndpointArg),
    Deliveries(ListDeliveries),
    /// Attempt a delivery again, with the same webhook-id
    Redeliver(DeliveryArg),
}

#[derive(Debug, Args)]
pub(crate) struct EndpointArg {
    /// The endpoint's name; `callbacks` signs the callbacks of jobs
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DeliveryArg {
    /// The delivery's id, as `webhooks deliveries` shows it
    id: String,
}

/// Create or replace an endpoint. The secret of a new endpoint is printed once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  longshore webhooks put billing https://example.com/hooks --event job.failed --event job.dead_letter
  longshore webhooks put mail https://example.com/mail --queue mail --queue 'reports.*'
  longshore webhooks put billing https://example.com/hooks --disabled")]
pub(crate) struct PutWebhookArgs {
    /// The endpoint's name
    name: String,
    /// Receiver of the messages, http or https
    url: String,
    /// Event to send; repeat it for several [default: all]
    #[arg(long = "event", value_name = "EVENT", value_parser = WebhookEvent::OF_JOBS.map(WebhookEvent::as_str))]
    events: Vec<String>,
    /// Queue to report, or a prefix that ends in `*`; repeat it for several [default: *]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Enable the endpoint again
    #[arg(long, conflicts_with = "disabled")]
    enabled: bool,
    /// Send nothing to the endpoint
    #[arg(long)]
    disabled: bool,
}

/// List deliveries to an endpoint, newest first, or about a job.
#[derive(Debug, Args)]
pub(crate) struct ListDeliveries {
    /// The endpoint's name
    #[arg(required_unless_present = "job")]
    name: Option<String>,
    /// Deliveries about this job instead
    #[arg(long, value_name = "ID", conflicts_with = "name")]
    job: Option<String>,
    /// Number of deliveries, at most 1000
    #[arg(long, default_value_t = 100, conflicts_with = "job")]
    limit: usize,
}

impl WebhooksCommand {
    pub(crate) fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        match self {
            Self::List => list(context),
            Self::Get(EndpointArg { name }) => {
                show(context, &context.call(async { Ok(client.webhook(&name).await?) })?)
            }
            Self::Put(put) => put.run(context),
            Self::Delete(EndpointArg { name }) => {
                context.call(async { Ok(client.delete_webhook(&name).await?) })?;
                if context.output.json {
                    return context.output.json(&DeletedWebhook { webhook: &name, deleted: true });
                }
                context.output.line(&format!("webhook \"{name}\" deleted"))
            }
            Self::Rotate(EndpointArg { name }) => {
                show(context, &context.call(async { Ok(client.rotate_webhook(&name).await?) })?)
            }
            Self::Test(EndpointArg { name }) => {
                let delivery = context.call(async { Ok(client.test_webhook(&name).await?) })?;
                queued(context, &delivery)
            }
            Self::Deliveries(list) => list.run(context),
            Self::Redeliver(DeliveryArg { id }) => {
                let delivery = context.call(async { Ok(client.redeliver(&id).await?) })?;
                queued(context, &delivery)
            }
        }
    }
}

#[derive(serde::Serialize)]
struct DeletedWebhook<'a> {
    webhook: &'a str,
    deleted: bool,
}

impl PutWebhookArgs {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
        let put = PutWebhook {
            url: self.url,
            events: some(self.events),
            queues: some(self.queues),
            enabled: if self.enabled { Some(true) } else { self.disabled.then_some(false) },
        };
        let client = context.client()?;
        show(context, &context.call(async { Ok(client.put_webhook(&self.name, &put).await?) })?)
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    let webhooks = context.call(async { Ok(client.webhooks().await?) })?;
    if context.output.json {
        return context.output.json(&webhooks);
    }
    if webhooks.webhooks.is_empty() {
        context.output.info("there are no webhook endpoints; `longshore webhooks put` creates one");
        return Ok(());
    }
    let mut table = TextTable::new(&["WEBHOOK", "", "URL", "EVENTS", "QUEUES"]);
    for webhook in &webhooks.webhooks {
        table.row(vec![
            webhook.name.as_str().into(),
            status(webhook),
            CellValue::maybe(webhook.url.as_ref()),
            events(webhook).into(),
            webhook.queues.join(", ").into(),
        ]);
    }
    context.output.table(&table)
}

fn events(webhook: &Webhook) -> String {
    webhook.events.iter().map(|event| event.as_str()).collect::<Vec<_>>().join(", ")
}

fn status(webhook: &Webhook) -> CellValue {
    match (&webhook.disabled_reason, webhook.enabled) {
        (_, true) => "".into(),
        (None, false) => CellValue::Alarm("disabled".to_owned()),
        (Some(reason), false) => CellValue::Alarm(format!("disabled: {reason}")),
    }
}

fn show(context: &Context, webhook: &Webhook) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(webhook);
    }
    let mut table = TextTable::key_values();
    table.key_value("webhook", &webhook.name);
    if !webhook.enabled {
        table.key_value("status", status(webhook));
    }
    table.maybe("url", webhook.url.as_ref());
    if webhook.url.is_some() {
        table.key_value("events", events(webhook));
        table.key_value("queues", webhook.queues.join(", "));
    }
    table.key_value("created", webhook.created_at);
    table.key_value("updated", webhook.updated_at);
    table.maybe("old secret until", webhook.previous_secret_until);
    table.maybe("secret", webhook.secret.as_ref());
    context.output.table(&table)?;
    if webhook.secret.is_some() {
        context.output.info("store the secret now: it is not shown again");
    }
    Ok(())
}

fn queued(context: &Context, delivery: &WebhookDelivery) -> Result<(), CliError> {
    if context.output.json {
        return context.output.json(delivery);
    }
    context.output.line(&format!("{} {} is sent now", delivery.event, delivery.id))
}

impl ListDeliveries {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let client = context.client()?;
        let page = context.call(async {
            Ok(match (&self.job, &self.name) {
                (Some(job), _) => client.job_deliveries(job).await?,
                (None, name) => {
                    client.webhook_deliveries(name.as_deref().unwrap_or_default(), self.limit, None).await?
                }
            })
        })?;
        if context.output.json {
            return context.output.json(&page);
        }
        let mut table = TextTable::new(&["DELIVERY", "EVENT", "STATE", "ATTEMPTS", "LAST", "NEXT", "JOB", "URL"]);
        for delivery in &page.deliveries {
            table.row(vec![
                delivery.id.as_str().into(),
                delivery.event.as_str().into(),
                match delivery.state {
                    DeliveryState::Failed => CellValue::Alarm("failed".to_owned()),
                    DeliveryState::Pending | DeliveryState::Delivered => delivery.state.as_str().into(),
                },
                CellValue::number(delivery.attempts.len()),
                last_attempt(delivery).into(),
                CellValue::maybe(delivery.next_at),
                CellValue::maybe(delivery.job.as_ref()),
                CellValue::maybe(delivery.url.as_ref()),
            ]);
        }
        context.output.table(&table)
    }
}

/// Returns the status or the error of the last attempt.
fn last_attempt(delivery: &WebhookDelivery) -> String {
    let Some(attempt) = delivery.attempts.last() else { return String::new() };
    let status = attempt.status.map(|status| status.to_string());
    status.or_else(|| attempt.error.clone()).unwrap_or_default()
}
