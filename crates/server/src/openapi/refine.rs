//! What types and routes cannot say: patterns, limits, exclusive fields, statuses, links.
//!
//! `constraints.json` has the rules as JSON Schema, by the names of schemas, fields and parameters.
//! A name that the description does not have is an error of a test.

use std::collections::{BTreeMap, BTreeSet};

use longshore_api::ErrorCode;
use longshore_api::error::PROBLEM_JSON;
use longshore_core::schedule::time_zone_names;
use serde::Deserialize;
use serde_json::{Map, Value, json};

type Fields = Map<String, Value>;

/// The content of `constraints.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Constraints {
    /// New schemas.
    schemas: Fields,
    /// Schemas that are another one without some of its fields.
    derived: BTreeMap<String, Derived>,
    /// Keywords that are added to a schema, by name.
    objects: BTreeMap<String, Fields>,
    /// By `Schema.field`: keywords that are added, or the name of the schema of the field.
    fields: BTreeMap<String, Value>,
    /// Schemas of request bodies, by operation.
    requests: BTreeMap<String, String>,
    /// Schemas of responses, by operation and status.
    responses: BTreeMap<String, String>,
    /// Operations whose body may be left out.
    optional_bodies: BTreeSet<String>,
    /// Schemas of parameters, by name, or by operation and name.
    parameters: BTreeMap<String, Value>,
    links: Vec<Link>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Derived {
    from: String,
    without: Vec<String>,
    description: String,
}

/// A value of a response that is a parameter of other operations.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    from: String,
    status: String,
    parameter: String,
    value: String,
    to: Vec<String>,
}

/// Adds the constraints to a description. Returns the names that it does not have.
pub(super) fn refine(document: &mut Value) -> Vec<String> {
    let mut missing = Vec::new();
    let constraints: Constraints = match serde_json::from_str(include_str!("constraints.json")) {
        Ok(constraints) => constraints,
        Err(error) => {
            missing.push(error.to_string());
            Constraints::default()
        }
    };
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        refine_schemas(schemas, &constraints, &mut missing);
    }
    let ids = operation_ids(document);
    let mut used = BTreeSet::new();
    for_each_operation(document, |key, operation| {
        refine_parameters(key, operation, &constraints, &mut used, &mut missing);
        refine_body(key, operation, &constraints, &mut used);
        refine_responses(key, operation, &constraints, &mut used);
        add_problems(key, operation);
        add_links(key, operation, &constraints, &ids, &mut missing);
    });
    let parameters = constraints.parameters.keys();
    let requests = constraints.requests.keys().chain(&constraints.optional_bodies);
    let unused =
        parameters.chain(requests).chain(constraints.responses.keys()).filter(|name| !used.contains(*name)).cloned();
    missing.extend(unused);
    missing.extend(constraints.links.iter().map(|link| &link.from).filter(|from| !ids.contains_key(*from)).cloned());
    add_components(document);
    missing
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn refine_schemas(schemas: &mut Fields, constraints: &Constraints, missing: &mut Vec<String>) {
    schemas.extend(constraints.schemas.clone());
    let zones =
        json!({ "type": "string", "description": "A name of the IANA time zone database.", "enum": time_zone_names() });
    schemas.insert("TimeZone".to_owned(), zones);
    for (name, keywords) in &constraints.objects {
        match schemas.get_mut(name).and_then(Value::as_object_mut) {
            Some(schema) => schema.extend(keywords.clone()),
            None => missing.push(name.clone()),
        }
    }
    for (path, constraint) in &constraints.fields {
        let field =
            path.split_once('.').and_then(|(name, field)| schemas.get_mut(name)?.get_mut("properties")?.get_mut(field));
        match field {
            Some(field) => refine_field(field, constraint),
            None => missing.push(path.clone()),
        }
    }
    for (name, derived) in &constraints.derived {
        match schemas.get(&derived.from).and_then(|base| derive(base, derived)) {
            Some(schema) => drop(schemas.insert(name.clone(), schema)),
            None => missing.push(name.clone()),
        }
    }
}

/// Adds keywords to a field, or replaces its schema by a named one. A nullable field stays so.
fn refine_field(field: &mut Value, constraint: &Value) {
    let Some(name) = constraint.as_str() else {
        if let (Some(field), Some(keywords)) = (field.as_object_mut(), constraint.as_object()) {
            field.extend(keywords.clone());
        }
        return;
    };
    let variants = field["oneOf"].as_array().cloned().unwrap_or_default();
    let is_null = |value: &Value| value == "null";
    let is_nullable = field["type"].as_array().is_some_and(|types| types.iter().any(is_null))
        || variants.iter().any(|variant| is_null(&variant["type"]));
    let own = field.get("description").or_else(|| variants.iter().find_map(|variant| variant.get("description")));
    let description = own.cloned();
    let mut refined =
        if is_nullable { json!({ "oneOf": [reference(name), { "type": "null" }] }) } else { reference(name) };
    if let Some(refined) = refined.as_object_mut() {
        refined.extend(description.map(|text| ("description".to_owned(), text)));
        refined.extend(field.get("default").map(|default| ("default".to_owned(), default.clone())));
    }
    *field = refined;
}

/// Returns a schema without some fields, and without the rules that only concern them.
fn derive(base: &Value, derived: &Derived) -> Option<Value> {
    let mut schema = base.as_object()?.clone();
    let properties = schema.get_mut("properties")?.as_object_mut()?;
    for field in &derived.without {
        properties.remove(field)?;
    }
    let known: BTreeSet<String> = properties.keys().cloned().collect();
    let concerns_known = |rule: &Value| {
        let mut fields =
            rule.pointer("/not/required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        fields.all(|field| known.contains(field))
    };
    if let Some(rules) = schema.get_mut("allOf").and_then(Value::as_array_mut) {
        rules.retain(concerns_known);
    }
    schema.insert("description".to_owned(), derived.description.clone().into());
    Some(schema.into())
}

/// Calls a function for every operation, with its method and path.
fn for_each_operation(document: &mut Value, mut call: impl FnMut(&str, &mut Fields)) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if let Some(operation) = operation.as_object_mut() {
                call(&format!("{} {path}", method.to_uppercase()), operation);
            }
        }
    }
}

fn operation_ids(document: &mut Value) -> BTreeMap<String, Value> {
    let mut ids = BTreeMap::new();
    for_each_operation(document, |key, operation| {
        ids.extend(operation.get("operationId").map(|id| (key.to_owned(), id.clone())));
    });
    ids
}

fn refine_parameters(
    key: &str,
    operation: &mut Fields,
    constraints: &Constraints,
    used: &mut BTreeSet<String>,
    missing: &mut Vec<String>,
) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten().filter_map(Value::as_object_mut) {
        let name = parameter.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let own = format!("{key} {name}");
        let found = [own.clone(), name].into_iter().find_map(|name| Some((constraints.parameters.get(&name)?, name)));
        match found {
            Some((schema, name)) => {
                parameter.insert("schema".to_owned(), schema.clone());
                used.insert(name);
            }
            None => missing.push(own),
        }
    }
}

/// Says whether a body is needed, and of which form. A `POST` without parameters accepts `{}`.
fn refine_body(key: &str, operation: &mut Fields, constraints: &Constraints, used: &mut BTreeSet<String>) {
    if !operation.contains_key("requestBody") && key.starts_with("POST ") {
        let content = json!({ "application/json": { "schema": reference("EmptyBody"), "example": {} } });
        operation.insert("requestBody".to_owned(), json!({ "content": content, "required": false }));
        return;
    }
    let Some(body) = operation.get_mut("requestBody").and_then(Value::as_object_mut) else { return };
    let is_optional = constraints.optional_bodies.contains(key);
    body.insert("required".to_owned(), (!is_optional).into());
    used.extend(is_optional.then(|| key.to_owned()));
    let content = body.get_mut("content").and_then(|content| content.get_mut("application/json"));
    if let (Some(name), Some(content)) = (constraints.requests.get(key), content.and_then(Value::as_object_mut)) {
        content.insert("schema".to_owned(), reference(name));
        used.insert(key.to_owned());
    }
}

fn refine_responses(key: &str, operation: &mut Fields, constraints: &Constraints, used: &mut BTreeSet<String>) {
    let responses = operation.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten();
    for (status, response) in responses {
        let name = format!("{key} {status}");
        let content = response.get_mut("content").and_then(|content| content.get_mut("application/json"));
        if let (Some(schema), Some(content)) =
            (constraints.responses.get(&name), content.and_then(Value::as_object_mut))
        {
            content.insert("schema".to_owned(), reference(schema));
            used.insert(name);
        }
    }
}

/// Adds the statuses of errors that an operation may answer.
fn add_problems(key: &str, operation: &mut Fields) {
    let (method, path) = key.split_once(' ').unwrap_or_default();
    let is_public = matches!(path, "/" | "/livez" | "/readyz" | "/openapi.json");
    let mut statuses = vec![400, 421, 429, 500, 503];
    if is_public {
        operation.insert("security".to_owned(), json!([]));
    } else {
        statuses.extend([401, 403, 404]);
    }
    if operation.contains_key("requestBody") || method == "DELETE" {
        statuses.extend([409, 413, 415]);
    }
    if method == "POST" {
        statuses.push(504);
    }
    if let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) {
        responses.remove("default");
        let problem = |status| json!({ "$ref": format!("#/components/responses/Problem{status}") });
        responses.extend(statuses.into_iter().map(|status| (status.to_string(), problem(status))));
    }
}

fn add_links(
    key: &str,
    operation: &mut Fields,
    constraints: &Constraints,
    ids: &BTreeMap<String, Value>,
    missing: &mut Vec<String>,
) {
    for link in constraints.links.iter().filter(|link| link.from == key) {
        let response = operation.get_mut("responses").and_then(|responses| responses.get_mut(&link.status));
        let Some(response) = response.and_then(Value::as_object_mut) else {
            missing.push(format!("{key} {}", link.status));
            continue;
        };
        let mut links = Fields::new();
        for target in &link.to {
            match ids.get(target) {
                Some(Value::String(id)) => {
                    let parameters = json!({ link.parameter.clone(): link.value });
                    links.insert(id.clone(), json!({ "operationId": id, "parameters": parameters }));
                }
                Some(_) | None => missing.push(target.clone()),
            }
        }
        response.insert("links".to_owned(), links.into());
    }
}

/// Adds one response for each status of an error, and the scheme of tokens.
fn add_components(document: &mut Value) {
    let mut codes: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in ErrorCode::ALL {
        codes.entry(code.status()).or_default().push(code.code());
    }
    let response = |(status, codes): (u16, Vec<&str>)| {
        let text = |about: &str| json!({ "description": about, "required": true, "schema": { "type": "string" } });
        let mut headers = json!({ "x-request-id": text("Id of the request.") });
        let own = match status {
            401 => Some(("WWW-Authenticate", "`Bearer`.")),
            429 | 503 => Some(("Retry-After", "Seconds after which the request may be sent again.")),
            _ => None,
        };
        if let (Some((name, about)), Some(headers)) = (own, headers.as_object_mut()) {
            headers.insert(name.to_owned(), text(about));
        }
        let content = json!({ PROBLEM_JSON: { "schema": reference("Problem") } });
        let description = format!("An error; `code` is one of: {}", codes.join(", "));
        (format!("Problem{status}"), json!({ "description": description, "headers": headers, "content": content }))
    };
    let responses: Fields = codes.into_iter().map(response).collect();
    if let Some(components) = document.get_mut("components").and_then(Value::as_object_mut) {
        components.insert("responses".to_owned(), responses.into());
        let about = "A token `lsk_…`; a server without tokens needs none.";
        let bearer = json!({ "type": "http", "scheme": "bearer", "description": about });
        components.insert("securitySchemes".to_owned(), json!({ "bearer": bearer }));
    }
    if let Some(document) = document.as_object_mut() {
        // Only a server with tokens asks for one.
        document.insert("security".to_owned(), json!([{ "bearer": [] }, {}]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constraint_names_a_part_of_the_description() {
        let mut document = crate::openapi::unrefined();
        assert_eq!(refine(&mut document), [""; 0]);
    }

    #[test]
    fn every_operation_lists_its_statuses() {
        let mut document = crate::openapi::document();
        for_each_operation(&mut document, |key, operation| {
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.contains_key("default"), "{key}");
            assert!(responses.contains_key("400") && responses.contains_key("503"), "{key}");
        });
    }
}
