//! Builds paths and query strings.

use form_urlencoded::Serializer;
use longshore_api::Time;
use longshore_api::enums::{Priority, State};
use longshore_api::states::States;

/// Query of a list of jobs. A job matches if all given fields match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobListQuery {
    pub queue: Option<String>,
    /// Any of these states; empty means all.
    pub states: Vec<State>,
    pub job_type: Option<String>,
    /// `key`, or `key:value`.
    pub tag: Option<String>,
    pub priority: Option<Priority>,
    pub workflow: Option<String>,
    pub external_id: Option<String>,
    /// All jobs that were created with this key, also after its window has expired.
    pub idempotency_key: Option<String>,
    pub correlation_id: Option<String>,
    pub error_code: Option<String>,
    /// Created at this instant or later.
    pub created_after: Option<Time>,
    /// Created before this instant.
    pub created_before: Option<Time>,
    /// Most jobs of a page.
    pub limit: Option<u64>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

impl JobListQuery {
    pub(crate) fn path(&self) -> String {
        let mut query = Serializer::new(String::new());
        let limit = self.limit.map(|limit| limit.to_string());
        let states = (!self.states.is_empty()).then(|| States(self.states.clone()).to_string());
        let [after, before] = [self.created_after, self.created_before].map(|at| at.map(|at| at.to_string()));
        let pairs = [
            ("queue", self.queue.as_deref()),
            ("state", states.as_deref()),
            ("type", self.job_type.as_deref()),
            ("tag", self.tag.as_deref()),
            ("priority", self.priority.map(Priority::as_str)),
            ("workflow", self.workflow.as_deref()),
            ("external_id", self.external_id.as_deref()),
            ("idempotency_key", self.idempotency_key.as_deref()),
            ("correlation_id", self.correlation_id.as_deref()),
            ("error_code", self.error_code.as_deref()),
            ("created_after", after.as_deref()),
            ("created_before", before.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", self.cursor.as_deref()),
        ];
        for (name, value) in pairs {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let query = query.finish();
        if query.is_empty() { "/v1/jobs".to_owned() } else { format!("/v1/jobs?{query}") }
    }
}

/// Encodes a text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b':' => written.push(char::from(byte)),
            // The segments `.` and `..` would change the path.
            b'.' if text.len() > 2 => written.push('.'),
            byte => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_encoded() {
        for (text, written) in [
            ("a.b:c-d_e", "a.b:c-d_e"),
            ("..", "%2E%2E"),
            ("a/b", "a%2Fb"),
            ("a?b#c", "a%3Fb%23c"),
            ("é\r\n", "%C3%A9%0D%0A"),
        ] {
            assert_eq!(segment(text), written);
        }
    }

    #[test]
    fn a_query_has_only_the_given_fields() {
        assert_eq!(JobListQuery::default().path(), "/v1/jobs");
        let filter = JobListQuery {
            queue: Some("a&b".to_owned()),
            states: vec![State::Failed, State::DeadLetter],
            tag: Some("tenant:a c".to_owned()),
            correlation_id: Some("r/1".to_owned()),
            created_after: Some(Time(0)),
            limit: Some(5),
            ..JobListQuery::default()
        };
        let expected = "/v1/jobs?queue=a%26b&state=failed%2Cdead_letter&tag=tenant%3Aa+c&correlation_id=r%2F1\
                        &created_after=1970-01-01T00%3A00%3A00.000Z&limit=5";
        assert_eq!(filter.path(), expected);
    }
}
