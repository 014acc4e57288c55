//! `longshore man`: a page for every command.

use crate::support::alone;

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("share/man/man1");
    alone(&["man", pages.to_str().unwrap()]).expect(0);
    let read = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    for name in ["longshore.1", "longshore-serve.1", "longshore-jobs-list.1", "longshore-man.1"] {
        let page = read(name);
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(read("longshore-serve.1").contains("LONGSHORE_DATA"));
    let refused = alone(&["man", "/proc/pages"]).expect(2);
    assert!(refused.stderr.contains("cannot write to /proc/pages"), "{refused:?}");
}
