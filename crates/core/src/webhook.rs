//! Events and states of webhook deliveries, under the names that the rules use.

pub use longshore_types::{DeliveryState, WebhookEvent};
