//! Every line of the five specifications is proven, informative, or pending; and the page says so.

use longshore_testkit::traceability::{
    Citations, PARTS, Requirement, citation_faults, collect, pending_for, read_table, render, rulings, table_faults,
    unproven,
};
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn table() -> (Vec<Requirement>, Vec<String>) {
    read_table(include_str!("../requirements.txt"))
}

fn citations() -> Citations {
    collect(&root()).expect("the sources can be read")
}

fn none(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}: {}\n  {}", faults.len(), faults.join("\n  "));
}

#[test]
fn table_lists_every_line_once() {
    let (requirements, mut faults) = table();
    faults.extend(table_faults(&requirements));
    none("faults of requirements.txt", &faults);
}

#[test]
fn every_citation_is_valid() {
    let citations = citations();
    none("faulty citations", &citation_faults(&citations));
    let page = fs::read_to_string(root().join("docs/rulings.md")).expect("the rulings can be read");
    none("citations of unknown rulings", &rulings::faults(&citations.rulings, &page));
}

#[test]
fn every_ruling_of_the_api_is_proven() {
    let missing = rulings::unproven(&citations().rulings);
    assert!(missing.is_empty(), "paragraphs of the API's Rulings without a proof: {}", missing.join(", "));
}

/// Proves G-0.2.
#[test]
fn every_rule_is_proven() {
    let (requirements, _) = table();
    for part in PARTS {
        let ids = pending_for(&requirements, part);
        println!("owed to {part}: {} {}", ids.len(), ids.join(" "));
    }
    println!("pending in all: {}", PARTS.iter().map(|part| pending_for(&requirements, part).len()).sum::<usize>());
    let missing = unproven(&requirements, &citations());
    assert!(missing.is_empty(), "rules without a proof: {}\n  {}", missing.len(), missing.join(" "));
}

#[test]
fn requirements_page_is_current() {
    let (requirements, _) = table();
    let page = render(&requirements, &citations());
    let path = root().join("docs/requirements.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, page).expect("the page can be written");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let first = page.lines().zip(kept.lines()).find(|(made, kept)| made != kept);
    assert!(kept == page, "docs/requirements.md is out of date (first difference: {first:?}); run with UPDATE_DOCS=1");
}
