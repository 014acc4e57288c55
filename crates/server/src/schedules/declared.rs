//! Schedules of a configuration file.

use longshore_api::schedule::PutSchedule;
use longshore_core::id::ScheduleName;
use longshore_core::profile::Profile;
use longshore_core::schedule::DefinitionChange;
use longshore_store::Store;

use super::{definition, storage};
use crate::wire::problem::ApiError;

/// Creates or replaces a schedule before the server starts. Its missed ticks stay missed.
pub async fn declare_schedule(
    store: &dyn Store,
    default_profile: Profile,
    name: &str,
    declared: PutSchedule,
) -> Result<(), ApiError> {
    let (name, paused) = (ScheduleName::new(name)?, declared.paused);
    let schedule = definition::check(store, default_profile, &name, declared).await?;
    storage::change(store, &name, |present, now| {
        let mut schedule = schedule.clone();
        let change = present.map_or(DefinitionChange::NewTimes, |present| schedule.replace(present, paused, now));
        Ok::<_, ApiError>((schedule, change))
    })
    .await
    .map(drop)
}
