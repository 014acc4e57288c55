//! Paths and query strings.

use form_urlencoded::Serializer;
use longshore_api::words::{Priority, State};

/// Which jobs to list; all that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub queue: Option<String>,
    pub state: Option<State>,
    pub job_type: Option<String>,
    /// `key`, or `key:value`.
    pub tag: Option<String>,
    pub priority: Option<Priority>,
    pub workflow: Option<String>,
    /// At most this many in one page.
    pub limit: Option<u64>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

impl JobFilter {
    pub(crate) fn path(&self) -> String {
        let mut query = Serializer::new(String::new());
        let limit = self.limit.map(|limit| limit.to_string());
        let pairs = [
            ("queue", self.queue.as_deref()),
            ("state", self.state.map(State::word)),
            ("type", self.job_type.as_deref()),
            ("tag", self.tag.as_deref()),
            ("priority", self.priority.map(Priority::word)),
            ("workflow", self.workflow.as_deref()),
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

/// One segment of a path: whatever it holds, it stays one segment.
pub(crate) fn segment(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b':' => written.push(char::from(byte)),
            // `.` and `..` alone would be taken for steps through the path.
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
    fn a_segment_stays_one() {
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
    fn only_what_is_asked_for_is_in_the_query() {
        assert_eq!(JobFilter::default().path(), "/v1/jobs");
        let filter = JobFilter {
            queue: Some("a&b".to_owned()),
            state: Some(State::DeadLetter),
            tag: Some("tenant:a c".to_owned()),
            limit: Some(5),
            ..JobFilter::default()
        };
        assert_eq!(filter.path(), "/v1/jobs?queue=a%26b&state=dead_letter&tag=tenant%3Aa+c&limit=5");
    }
}
