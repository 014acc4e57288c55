//! `fields=id,state,…`: what a row of a list shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use longshore_api::ErrorCode;
use longshore_api::job::Job;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::PartialSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::wire::problem::ApiError;
use crate::wire::query::Query;

/// Rows of a list never have these.
const PAYLOADS: [&str; 2] = ["payload", "payload_base64"];

/// The names that a record has, as the OpenAPI description lists them.
static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let RefOr::T(Schema::Object(job)) = Job::schema() else { return BTreeSet::new() };
    let names = job.properties.into_keys();
    names.filter(|name| !PAYLOADS.contains(&name.as_str())).collect()
});

/// Some of a record's fields.
#[derive(Debug)]
pub(super) struct Fields(BTreeSet<String>);

/// Values stay as they are written, byte for byte.
type Row = BTreeMap<String, Box<RawValue>>;

#[derive(Debug, Serialize)]
pub(super) struct SelectedRows {
    pub jobs: Vec<Row>,
    pub next: Option<String>,
}

impl Fields {
    /// `None`: all of them.
    pub(super) fn read(query: &mut Query) -> Result<Option<Self>, ApiError> {
        let Some(text) = query.take("fields") else { return Ok(None) };
        let names: BTreeSet<String> = text.split(',').map(str::to_owned).collect();
        if names.is_subset(&NAMES) {
            return Ok(Some(Self(names)));
        }
        let allowed: Vec<&str> = NAMES.iter().map(String::as_str).collect();
        Err(ApiError::not_some_of("fields", &allowed))
    }

    pub(super) fn of(&self, job: &Job) -> Result<Row, ApiError> {
        let written = serde_json::to_string(job).and_then(|text| serde_json::from_str::<Row>(&text));
        let mut row = written.map_err(|_| ApiError::new(ErrorCode::Internal, "an answer could not be written"))?;
        row.retain(|name, _| self.0.contains(name));
        Ok(row)
    }
}
