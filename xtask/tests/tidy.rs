//! The checks are seen to fail: a clean tree passes, and each violation added to it is reported.

#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A small clean tree in a directory of its own, removed at the end.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("tidy-{name}-{}", std::process::id()));
        let tree = Self { root };
        tree.write("README.md", "# A queue\n\nStart it with `--listen`.\n");
        tree.write("crates/core/Cargo.toml", "[package]\nname = \"longshore-core\"\n");
        tree.write("crates/core/src/lib.rs", "/// A unit of work.\npub struct Job;\n");
        tree.write("crates/cli/Cargo.toml", "[package]\nname = \"longshore-cli\"\n");
        tree.write("crates/cli/src/main.rs", "struct Flags {\n    #[arg(long)]\n    listen: String,\n}\n");
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn tidy(&self, arguments: &[&str]) -> Output {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["tidy", "--root"]).arg(&self.root).args(arguments).output().unwrap()
    }

    /// Asserts that exactly one finding begins with `start`, and that the exit code says so.
    fn assert_found(&self, start: &str) {
        let output = self.tidy(&[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with(start)).count(), 1, "{start}\n{text}");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

fn first_banned_word() -> String {
    let list = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("banned-words.txt")).unwrap();
    let row = list.lines().find(|line| line.contains("| any |")).unwrap();
    row.split([',', '|']).next().unwrap().trim().to_owned()
}

#[test]
fn a_clean_tree_passes() {
    let tree = Tree::new("clean");
    let output = tree.tidy(&[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_banned_word_fails() {
    let tree = Tree::new("word");
    let word = first_banned_word();
    tree.write("crates/core/src/lib.rs", &format!("/// A job.\n/// For {word}.\npub struct Job;\n"));
    tree.assert_found(&format!("crates/core/src/lib.rs:2: banned word \"{word}\""));
    assert_eq!(tree.tidy(&["crates/cli"]).status.code(), Some(0));
    let summary = tree.tidy(&["--summary"]);
    assert_eq!(summary.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&summary.stdout).contains("1  banned-word"));
}

#[test]
fn a_second_type_with_one_name_fails() {
    let tree = Tree::new("type");
    tree.write("crates/core/src/other.rs", "struct Job;\n");
    tree.assert_found("crates/core/src/lib.rs:2: type name Job is also at crates/core/src/other.rs:1");
    tree.assert_found("crates/core/src/other.rs:1: type name Job");
}

#[test]
fn a_wide_comment_and_a_long_file_fail() {
    let tree = Tree::new("size");
    tree.write("crates/core/src/wide.rs", &format!("// {}\n", "word ".repeat(20)));
    tree.write("crates/core/src/long.rs", &"fn f() {}\n".repeat(601));
    tree.assert_found("crates/core/src/wide.rs:1: comment of 103 columns");
    tree.assert_found("crates/core/src/long.rs:601: file of 601 lines");
}

#[test]
fn a_dependency_against_the_order_fails() {
    let tree = Tree::new("order");
    let manifest = "[package]\nname = \"longshore-core\"\n[dependencies]\nlongshore-cli.workspace = true\n";
    tree.write("crates/core/Cargo.toml", manifest);
    tree.write("crates/unknown/Cargo.toml", "[package]\nname = \"longshore-unknown\"\n");
    tree.assert_found("crates/core/Cargo.toml:4: crate core must not depend on cli");
    tree.assert_found("crates/unknown/Cargo.toml:2: crate unknown is not in");
}

#[test]
fn an_undocumented_flag_fails() {
    let tree = Tree::new("flag");
    tree.write("README.md", "# A queue\n");
    tree.assert_found("crates/cli/src/main.rs:2: --listen is in no document");
}

#[test]
fn a_wrong_call_is_no_finding() {
    let xtask = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap();
    assert_eq!(xtask(&[]).status.code(), Some(2));
    assert_eq!(xtask(&["tidy", "--nonsense"]).status.code(), Some(2));
    assert_eq!(xtask(&["tidy", "--root", "/nonexistent"]).status.code(), Some(2));
}
