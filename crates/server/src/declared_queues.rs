//! Queues of a configuration file.

use longshore_api::queue::PutQueue;
use longshore_core::id::QueueName;
use longshore_engine::AdminCommand;
use longshore_store::{Store, StoreError};

use crate::convert::settings::queue_overrides;
use crate::wire::problem::ApiError;

/// Creates or changes a queue before the server starts. The declaration replaces all overrides.
pub async fn declare(store: &dyn Store, name: &str, declared: PutQueue) -> Result<Result<(), ApiError>, StoreError> {
    let queue = match QueueName::new(name) {
        Ok(queue) => queue,
        Err(invalid) => return Ok(Err(invalid.into())),
    };
    let PutQueue { profile, settings } = declared;
    let overrides = Some(Box::new(queue_overrides(settings.unwrap_or_default())));
    let put = AdminCommand::PutQueue { queue, profile, overrides };
    Ok(store.admin(put).await?.map(|_| ()).map_err(ApiError::from))
}
