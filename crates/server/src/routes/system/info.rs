//! `GET /v1/info`

use axum::extract::State;
use longshore_api::Duration;
use longshore_api::system::{Info, StoreInfo};

use crate::app::AppState;
use crate::convert::enums::ToWire;
use crate::convert::time;
use crate::routes::system::health::store_health;
use crate::wire::answer::{Answer, ok};
use crate::wire::query::NoQuery;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) async fn info(State(app): State<AppState>, _: NoQuery) -> Answer {
    let health = store_health(&app).await;
    ok(&Info {
        name: "longshore".to_owned(),
        version: VERSION.to_owned(),
        api: "v1".to_owned(),
        store: StoreInfo {
            kind: app.about.kind.clone(),
            durability: app.about.durability.clone(),
            writable: health.writable(),
            refusing: health.refusing,
            reserve_bytes: health.reserve_bytes,
            free_bytes: health.free_bytes,
        },
        now: time(app.now()),
        virtual_clock: app.virtual_time.is_some(),
        default_profile: app.default_profile.wire(),
        auto_queues: app.auto_queues,
        uptime: Duration::from_secs(app.uptime().as_secs()),
    })
}
