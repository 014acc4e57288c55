//! The lists that the checks read: fields separated by `|`, comments on lines that begin with `#`.

use std::path::Path;

/// One line of a list, with its line number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) fields: Vec<String>,
}

/// A list file: its path for messages, its text.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) path: &'static str,
    pub(crate) text: String,
}

impl List {
    /// Reads `path` below `root`. Falls back to the copy that was compiled in, so that trees
    /// without lists can be checked.
    pub(crate) fn read(root: &Path, path: &'static str, built_in: &str) -> Self {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_else(|_| built_in.to_owned());
        Self { path, text }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines
            .map(|(line, text)| Row { line, fields: text.split('|').map(|field| field.trim().to_owned()).collect() })
            .collect()
    }
}

/// All lists of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) banned_words: List,
    pub(crate) allowed: List,
    pub(crate) shared_names: List,
    pub(crate) crate_order: List,
    /// Whether the lists belong to the tree; entries that match nothing are reported only then.
    pub(crate) own: bool,
}

impl Config {
    pub(crate) fn read(root: &Path) -> Self {
        Self {
            banned_words: List::read(root, "xtask/banned-words.txt", include_str!("../banned-words.txt")),
            allowed: List::read(root, "xtask/allow.txt", include_str!("../allow.txt")),
            shared_names: List::read(root, "xtask/shared-names.txt", include_str!("../shared-names.txt")),
            crate_order: List::read(root, "xtask/crate-order.txt", include_str!("../crate-order.txt")),
            own: root.join("xtask/allow.txt").is_file(),
        }
    }
}

#[cfg(test)]
impl List {
    pub(crate) fn of(text: &str) -> Self {
        Self { path: "list.txt", text: text.to_owned() }
    }
}
