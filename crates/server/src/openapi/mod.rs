//! The OpenAPI description that the server serves.
//!
//! Schemas come from the wire types, operations from `operations.rs`, examples from
//! `examples.json`, and what types cannot say from `constraints.json`.

mod operations;
mod refine;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use longshore_api::Problem;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Type};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr, Required, ResponseBuilder, Schema,
};

use crate::routes::system::VERSION;

/// Returns the description as JSON; serialized once.
pub(crate) fn json() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string())
}

pub(crate) fn document() -> Value {
    let mut document = unrefined();
    // A test checks that nothing is missing.
    drop(refine::refine(&mut document));
    document
}

/// The description without the constraints.
fn unrefined() -> Value {
    let mut spec = SpecBuilder::default();
    operations::describe(&mut spec);
    serde_json::to_value(spec.finish()).unwrap_or_default()
}

/// Collects schemas and operations.
struct SpecBuilder {
    /// By method and path: `request` and `response`, where the operation has a JSON body.
    examples: Value,
    schemas: BTreeMap<String, RefOr<Schema>>,
    operations: Vec<(&'static str, HttpMethod, OperationBuilder)>,
}

impl Default for SpecBuilder {
    fn default() -> Self {
        let examples = serde_json::from_str(include_str!("examples.json")).unwrap_or_default();
        Self { examples, schemas: BTreeMap::new(), operations: Vec::new() }
    }
}

/// The body of a response.
enum Content {
    Empty,
    Json(Box<RefOr<Schema>>),
    /// A body without a schema, of this content type.
    Other(&'static str),
}

impl SpecBuilder {
    /// Adds the schema of a wire type. Returns a reference to it.
    fn schema<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schema_named::<T>(&T::name())
    }

    fn schema_named<T: ToSchema>(&mut self, name: &str) -> RefOr<Schema> {
        let mut nested = Vec::new();
        T::schemas(&mut nested);
        self.schemas.extend(nested);
        self.schemas.insert(name.to_owned(), T::schema());
        Ref::from_schema_name(name).into()
    }

    fn json<T: ToSchema>(&mut self) -> Content {
        Content::Json(Box::new(self.schema::<T>()))
    }

    fn route(&mut self, method: HttpMethod, path: &'static str, summary: &str) -> OperationSpec<'_> {
        let mut operation =
            OperationBuilder::new().summary(Some(summary)).operation_id(Some(operation_id(&method, path)));
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
            let parameter = parameter.description(Some(path_parameter(path, name)));
            operation = operation.parameter(parameter.schema(Some(text())));
        }
        OperationSpec { spec: self, method, path, operation }
    }

    fn finish(mut self) -> OpenApi {
        drop(self.schema::<Problem>());
        let mut paths: BTreeMap<&str, PathItem> = BTreeMap::new();
        for (path, method, operation) in self.operations {
            let item = PathItem::new(method, operation.build());
            match paths.get_mut(path) {
                Some(existing) => existing.merge_operations(item),
                None => drop(paths.insert(path, item)),
            }
        }
        let builder = paths.into_iter().fold(PathsBuilder::new(), |paths, (path, item)| paths.path(path, item));
        let components =
            self.schemas.into_iter().fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema));
        OpenApiBuilder::new()
            .info(InfoBuilder::new().title("Longshore").version(VERSION).description(Some(DESCRIPTION)))
            .paths(builder)
            .components(Some(components.build()))
            .build()
    }
}

const DESCRIPTION: &str = "A durable job queue. JSON in and out; a request with a body needs `Content-Type: application/json`. \
Times are RFC 3339 in UTC, durations are text such as `1h15m` or a number of seconds; absent means inherit, `0s` means off. \
Unknown fields and parameters are rejected. A 2xx response to a change means that it is durable. Errors are problem+json: `field` is the path \
of the invalid field (indexes count from 0; the jobs of an array are `jobs[0]`, `jobs[1]`, …), `allowed` lists the values of a closed set. \
Every response has the header `x-request-id`, which is that of the request if it sent 1-128 characters of visible ASCII; \
an error repeats it as `request_id`.";

/// Returns a name such as `post_queues_queue_jobs`.
fn operation_id(method: &HttpMethod, path: &str) -> String {
    let words = path.split('/').filter(|part| !part.is_empty() && *part != "v1");
    let words: Vec<&str> = words.map(|part| part.trim_matches(['{', '}'])).collect();
    format!("{}_{}", method_name(method), words.join("_")).replace(['-', '.'], "_")
}

fn text() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).build().into()
}

/// One operation; [`OperationSpec::add`] adds it to the description.
struct OperationSpec<'a> {
    spec: &'a mut SpecBuilder,
    method: HttpMethod,
    path: &'static str,
    operation: OperationBuilder,
}

impl OperationSpec<'_> {
    fn query(self, parameters: &[(&str, &str)]) -> Self {
        self.parameters(&ParameterIn::Query, parameters)
    }

    fn header(self, name: &str, about: &str) -> Self {
        self.parameters(&ParameterIn::Header, &[(name, about)])
    }

    fn parameters(mut self, location: &ParameterIn, parameters: &[(&str, &str)]) -> Self {
        for (name, about) in parameters {
            let parameter =
                ParameterBuilder::new().name(*name).parameter_in(location.clone()).description(Some(*about));
            self.operation = self.operation.parameter(parameter.required(Required::False).schema(Some(text())));
        }
        self
    }

    /// The example of this operation; `part` is `request` or `response`.
    fn example(&self, part: &str) -> Option<Value> {
        let method = method_name(&self.method).to_uppercase();
        self.spec.examples.get(format!("{method} {}", self.path))?.get(part).cloned()
    }

    fn request<T: ToSchema>(self) -> Self {
        let schema = self.spec.schema::<T>();
        self.request_schema(schema)
    }

    fn request_schema(mut self, schema: RefOr<Schema>) -> Self {
        let content = ContentBuilder::new().schema(Some(schema)).example(self.example("request")).build();
        let body = RequestBodyBuilder::new().content("application/json", content).build();
        self.operation = self.operation.request_body(Some(body));
        self
    }

    fn response<T: ToSchema>(self, status: &str, about: &str) -> Self {
        let content = self.spec.json::<T>();
        self.response_with(status, about, content)
    }

    fn response_with(mut self, status: &str, about: &str, content: Content) -> Self {
        let response = ResponseBuilder::new().description(about);
        let response = match content {
            Content::Empty => response,
            Content::Json(schema) => {
                let content = ContentBuilder::new().schema(Some(*schema)).example(self.example("response")).build();
                response.content("application/json", content)
            }
            Content::Other(kind) => {
                response.content(kind, ContentBuilder::new().example(self.example("response")).build())
            }
        };
        self.operation = self.operation.response(status, response);
        self
    }

    fn add(self) {
        self.spec.operations.push((self.path, self.method, self.operation));
    }
}

fn method_name(method: &HttpMethod) -> String {
    serde_json::to_string(method).unwrap_or_default().trim_matches('"').to_owned()
}

/// Describes a parameter of a path: `{id}` below `/v1/jobs` is the id of a job.
fn path_parameter(path: &str, name: &str) -> String {
    match name {
        "id" if path.starts_with("/v1/deliveries") => "Id of the delivery.".to_owned(),
        "id" => format!("Id of the {}.", path.split('/').nth(2).unwrap_or_default().trim_end_matches('s')),
        "name" => format!("Name of the {}.", path.split('/').nth(2).unwrap_or_default().trim_end_matches('s')),
        name => format!("Name of the {name}."),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::routes::{ROUTES, VIRTUAL_ROUTES};

    #[test]
    fn the_description_has_exactly_the_routes() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                described.insert((method.clone(), path.clone()));
            }
        }
        let routed = ROUTES.iter().chain(VIRTUAL_ROUTES).map(|(method, path)| (method.to_string(), path.to_string()));
        assert_eq!(described, routed.collect());
    }

    #[test]
    fn every_reference_resolves() {
        let text = json();
        let document: Value = serde_json::from_str(text).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let references: BTreeSet<&str> =
            text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(references.len() > 50, "only {} types are referenced", references.len());
        let missing: Vec<_> = references.into_iter().filter(|name| !schemas.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(schemas["NewJob"]["required"], serde_json::json!(["type"]));
        // Enumerations have the names of the wire, not those of the code.
        let states = [
            "pending",
            "scheduled",
            "delayed",
            "running",
            "retrying",
            "completed",
            "failed",
            "dead_letter",
            "cancelled",
        ];
        let described: BTreeSet<&str> =
            schemas["State"]["enum"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
        assert_eq!(described, BTreeSet::from(states));
        // Time zones have the names of the IANA.
        for (name, schema) in schemas.iter().filter(|(name, _)| *name != "TimeZone") {
            let words = schema["enum"].as_array().into_iter().flatten().filter_map(|word| word.as_str());
            let uppercase: Vec<&str> = words.filter(|word| word.chars().any(char::is_uppercase)).collect();
            assert!(uppercase.is_empty(), "{name}: {uppercase:?}");
        }
    }

    #[test]
    fn every_parameter_has_a_description() {
        let document: Value = serde_json::from_str(json()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let description = parameter["description"].as_str().unwrap_or_default();
                    assert!(!description.is_empty(), "{method} {path}: {parameter}");
                }
            }
        }
    }

    #[test]
    fn operation_ids_are_unique() {
        let document: Value = serde_json::from_str(json()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let all = paths.values().flat_map(|item| item.as_object().unwrap().values());
        let names: Vec<&str> = all.map(|operation| operation["operationId"].as_str().unwrap()).collect();
        let unique: BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }

    /// Returns the properties of a schema, through references, `oneOf` and `allOf`.
    fn properties(document: &Value, schema: &Value) -> BTreeSet<String> {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
            return properties(document, &document["components"]["schemas"][name]);
        }
        let own = schema["properties"].as_object().into_iter().flat_map(|object| object.keys().cloned());
        let nested =
            ["oneOf", "anyOf", "allOf"].into_iter().flat_map(|key| schema[key].as_array().into_iter().flatten());
        own.chain(nested.flat_map(|schema| properties(document, schema))).collect()
    }

    fn unknown_fields(document: &Value, content: &Value) -> Vec<String> {
        let known = properties(document, &content["schema"]);
        let fields = content["example"].as_object().into_iter().flat_map(|object| object.keys());
        fields.filter(|field| !known.contains(*field)).cloned().collect()
    }

    /// `tests/wire/openapi.rs` sends the examples of requests to a server.
    #[test]
    fn every_operation_has_examples_with_known_fields() {
        let document: Value = serde_json::from_str(json()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let mut contents = Vec::new();
                contents.extend(operation.get("requestBody").map(|body| &body["content"]["application/json"]));
                let responses = operation["responses"].as_object().unwrap().iter();
                let successes = responses.filter(|(status, _)| status.starts_with('2'));
                let bodies = successes.filter_map(|(_, response)| response["content"].as_object());
                contents.extend(bodies.flat_map(|content| content.values()));
                for content in contents {
                    assert!(!content["example"].is_null(), "{method} {path} has no example: {content}");
                    if !content["schema"].is_null() {
                        assert_eq!(unknown_fields(&document, content), [""; 0], "{method} {path}");
                    }
                }
            }
        }
    }
}
