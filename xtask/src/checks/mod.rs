//! The checks: each takes the files of a tree and its list, and returns findings.

pub(crate) mod banned_words;
pub(crate) mod crate_order;
pub(crate) mod doc_names;
pub(crate) mod option_docs;
pub(crate) mod security_rows;
pub(crate) mod size;
pub(crate) mod type_names;

/// A violated rule at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) check: &'static str,
    /// What an entry of `allow.txt` names: the banned word, the type, the flag. Empty for checks
    /// that report a line once at most.
    pub(crate) subject: String,
    /// What is wrong, followed by what to do in parentheses.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, check: &'static str, subject: &str, message: String) -> Self {
        Self { path: path.to_owned(), line, check, subject: subject.to_owned(), message }
    }
}

/// The folder of a crate: `core` for `crates/core/src/job.rs`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> crate::tree::SourceFile {
    crate::tree::SourceFile { path: path.to_owned(), text: text.to_owned() }
}
