//! Which test proves which line of the five specifications.
//!
//! Tests cite ids: a doc comment `Proves G-4.6, T-21.` above a test function, or a line `proves
//! G-4.6 T-21` in a scenario. The citations are compared with `requirements.txt`, so a line without
//! a proof fails a test. `docs/requirements.md` is generated from them and cannot claim more than
//! the tests prove.

pub mod rulings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Parts of Longshore that a line may be pending for.
pub const PARTS: [&str; 6] = ["embedded", "server", "worker", "postgres", "workflows", "client"];

const SPECIFICATIONS: [(char, &str); 5] =
    [('G', "GopherQueue"), ('T', "TaskHarbor"), ('O', "Ocypod"), ('I', "weave-queue"), ('L', "document job lifecycle")];

/// Last line of each section of G: (section, first, last).
const G_SECTIONS: [(u32, u32, u32); 11] = [
    (0, 1, 3),
    (1, 1, 11),
    (2, 1, 21),
    (3, 1, 10),
    (4, 1, 9),
    (5, 1, 13),
    (6, 1, 14),
    (7, 1, 7),
    (8, 1, 11),
    (9, 1, 6),
    (10, 1, 13),
];

const OTHERS: [(char, u32); 4] = [('T', 36), ('O', 56), ('I', 66), ('L', 55)];

/// A test function may follow its citation within this many lines (attributes, a macro's opening).
const REACH: usize = 6;

/// Returns every id of the five specifications, in their order. The ids are counted here and not
/// read from the table, so that a missing line of the table is detected.
#[must_use]
pub fn all_ids() -> Vec<String> {
    let g =
        G_SECTIONS.iter().flat_map(|&(section, first, last)| (first..=last).map(move |n| format!("G-{section}.{n}")));
    let others = OTHERS.iter().flat_map(|&(letter, last)| (1..=last).map(move |n| format!("{letter}-{n}")));
    g.chain(others).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProofStatus {
    /// A test must prove it.
    Rule,
    /// Advice or permission; the text says how it is met.
    Informative(String),
    /// Pending for a later part.
    Pending(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub id: String,
    pub standing: ProofStatus,
    pub words: String,
}

/// Proofs by id, and the faults of the citations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Citations {
    pub proofs: BTreeMap<String, BTreeSet<String>>,
    /// Proofs of the paragraphs of the API's Rulings.
    pub rulings: rulings::Proofs,
    pub faults: Vec<String>,
}

impl Citations {
    fn add(&mut self, id: &str, proof: &str) {
        self.proofs.entry(id.to_owned()).or_default().insert(proof.to_owned());
    }

    fn add_ruling(&mut self, heading: &str, proof: &str) {
        self.rulings.entry(heading.to_owned()).or_default().insert(proof.to_owned());
    }
}

/// Reads `requirements.txt`. The second value lists every invalid line.
#[must_use]
pub fn read_table(text: &str) -> (Vec<Requirement>, Vec<String>) {
    let mut requirements = Vec::new();
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match read_requirement(line) {
            Ok(requirement) => requirements.push(requirement),
            Err(why) => faults.push(format!("requirements.txt:{}: {why}", index + 1)),
        }
    }
    (requirements, faults)
}

fn read_requirement(line: &str) -> Result<Requirement, String> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let (id, standing, words) = match fields.as_slice() {
        [id, "rule", words] => (id, ProofStatus::Rule, words),
        [id, "informative", words, how] if !how.is_empty() => (id, ProofStatus::Informative((*how).to_owned()), words),
        [id, pending, words] if pending.starts_with("pending:") => {
            let part = pending.trim_start_matches("pending:");
            if !PARTS.contains(&part) {
                return Err(format!("unknown part '{part}'"));
            }
            (id, ProofStatus::Pending(part.to_owned()), words)
        }
        _ => {
            return Err(format!(
                "expected `id | rule | words`, `id | informative | words | how` or `id | owed:part | words`: {line}"
            ));
        }
    };
    if words.is_empty() {
        return Err(format!("{id} has no words"));
    }
    Ok(Requirement { id: (*id).to_owned(), standing, words: (*words).to_owned() })
}

/// Collects the citations of all Rust sources in `crates/` and all scenarios in `scenarios/`.
pub fn collect(root: &Path) -> io::Result<Citations> {
    let mut citations = Citations::default();
    for path in files(&root.join("crates"), "rs")? {
        let name = relative(root, &path);
        cite_rust(&name, &fs::read_to_string(&path)?, &mut citations);
    }
    for path in files(&root.join("scenarios"), "txt")? {
        let name = relative(root, &path);
        cite_scenario(&name, &fs::read_to_string(&path)?, &mut citations);
    }
    Ok(citations)
}

/// Returns the files in a folder with one extension, sorted; none if the folder does not exist.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Collects the doc comments `Proves …` of one Rust file. `file` is its path from the repository
/// root.
pub fn cite_rust(file: &str, text: &str, citations: &mut Citations) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    rulings::cite_rust(file, &module(file), &lines, citations);
    let mut at = 0;
    while at < lines.len() {
        if proves(lines[at]).is_none() {
            at += 1;
            continue;
        }
        let place = format!("{file}:{}", at + 1);
        let (ids, after) = cited_by_comment(&lines, at);
        match test_below(&lines, at, after) {
            Ok(name) => {
                let proof = format!("{}::{name}", module(file));
                for id in ids {
                    match id {
                        Ok(id) => citations.add(&id, &proof),
                        Err(word) => citations.faults.push(format!("{place}: '{word}' is not an id")),
                    }
                }
            }
            Err(why) => citations.faults.push(format!("{place}: {why}")),
        }
        at = after;
    }
}

/// Returns the list after `Proves`, if the line is such a doc comment.
fn proves(line: &str) -> Option<&str> {
    line.strip_prefix("///")?.trim_start().strip_prefix("Proves ")
}

/// Returns the ids in the doc comment whose first `Proves` is at line `start`, and the line after
/// the comment.
fn cited_by_comment(lines: &[&str], start: usize) -> (Vec<Result<String, String>>, usize) {
    let mut ids = Vec::new();
    let mut at = start;
    while let Some(comment) = lines.get(at).and_then(|line| line.strip_prefix("///")) {
        at += 1;
        let Some(list) = comment.trim_start().strip_prefix("Proves ") else { continue };
        let mut list = list.trim().to_owned();
        // A long list continues in the next line until a full stop or a colon.
        while !list.ends_with('.') && !list.contains(':') {
            let Some(more) = lines.get(at).and_then(|line| line.strip_prefix("///")) else { break };
            if proves(lines[at]).is_some() || more.trim().is_empty() {
                break;
            }
            list.push(' ');
            list.push_str(more.trim());
            at += 1;
        }
        ids.extend(read_ids(&list));
    }
    (ids, at)
}

/// Splits `G-4.6, T-21 to T-23.` into ids. Text after a colon or a full stop is prose.
fn read_ids(list: &str) -> Vec<Result<String, String>> {
    let list = list.split(':').next().unwrap_or_default();
    let list = list.split(". ").next().unwrap_or_default();
    let mut words =
        list.split([' ', ',']).map(|word| word.trim_matches('.')).filter(|word| !word.is_empty() && *word != "and");
    let mut ids: Vec<Result<String, String>> = Vec::new();
    while let Some(word) = words.next() {
        if word == "to" {
            let first = ids.last().and_then(|id| id.clone().ok()).unwrap_or_default();
            let last = words.next().unwrap_or_default();
            match range(&first, last) {
                Some(more) => ids.extend(more.into_iter().map(Ok)),
                None => ids.push(Err(format!("{first} to {last}"))),
            }
        } else if looks_like_id(word) {
            ids.push(Ok(word.to_owned()));
        } else {
            ids.push(Err(word.to_owned()));
        }
    }
    ids
}

fn looks_like_id(word: &str) -> bool {
    let Some((letter, number)) = word.split_once('-') else { return false };
    letter.len() == 1 && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Returns the ids after `first` up to `last`, both of one specification (and, in G, of one
/// section).
fn range(first: &str, last: &str) -> Option<Vec<String>> {
    let stem = |id: &str| id.rsplit_once(['-', '.']).map(|(stem, _)| stem.to_owned());
    let ids = all_ids();
    let from = ids.iter().position(|id| id == first)?;
    let to = ids.iter().position(|id| id == last)?;
    (stem(first) == stem(last) && from < to).then(|| ids[from + 1..=to].to_vec())
}

/// Returns the name of the test function below a citation.
fn test_below(lines: &[&str], comment: usize, after: usize) -> Result<String, String> {
    let below = lines.get(after..(after + REACH).min(lines.len())).unwrap_or_default();
    let Some((offset, name)) = below.iter().enumerate().find_map(|(offset, line)| Some((offset, function_name(line)?)))
    else {
        return Err("a `Proves` comment with no function below it".to_owned());
    };
    // Attributes may precede the comment.
    let above = lines[..comment].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("///"));
    let attributes: Vec<&&str> = above.chain(below[..offset].iter()).filter(|line| line.starts_with("#[")).collect();
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err(format!("`{name}` is ignored and proves nothing"));
    }
    if !attributes
        .iter()
        .any(|line| line.starts_with("#[test]") || line.contains("::test]") || line.contains("::test("))
    {
        return Err(format!("`{name}` is no test"));
    }
    Ok(name)
}

fn function_name(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "fn")?;
    let modifiers = ["pub", "async", "const", "pub(crate)"];
    if !words[..at].iter().all(|word| modifiers.contains(word)) {
        return None;
    }
    let name: String = words.get(at + 1)?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Returns the module of a file: `crates/core/src/engine/ready.rs` is `core::engine::ready`.
/// Integration tests keep the word `tests`.
fn module(file: &str) -> String {
    let path = file.strip_prefix("crates/").unwrap_or(file).trim_end_matches(".rs");
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "src" | "lib" | "mod")).collect();
    parts.join("::")
}

/// Collects the `proves …` lines of one scenario.
pub fn cite_scenario(file: &str, text: &str, citations: &mut Citations) {
    rulings::cite_scenario(file, text, citations);
    for (index, line) in text.lines().enumerate() {
        let Some(list) = line.trim_end().strip_prefix("proves ") else { continue };
        for id in read_ids(list) {
            match id {
                Ok(id) => citations.add(&id, file),
                Err(word) => citations.faults.push(format!("{file}:{}: '{word}' is not an id", index + 1)),
            }
        }
    }
}

/// Returns the faults of the table: missing, unknown and duplicate lines.
#[must_use]
pub fn table_faults(requirements: &[Requirement]) -> Vec<String> {
    let known = all_ids();
    let mut faults = Vec::new();
    let mut listed = BTreeSet::new();
    for requirement in requirements {
        if !known.contains(&requirement.id) {
            faults.push(format!("{} is listed and is no line of any specification", requirement.id));
        }
        if !listed.insert(requirement.id.as_str()) {
            faults.push(format!("{} is listed twice", requirement.id));
        }
    }
    faults.extend(known.iter().filter(|id| !listed.contains(id.as_str())).map(|id| format!("{id} is not listed")));
    faults
}

/// Returns the faults of the citations: invalid ones, and unknown ids.
#[must_use]
pub fn citation_faults(citations: &Citations) -> Vec<String> {
    let known = all_ids();
    let mut faults = citations.faults.clone();
    for (id, proofs) in citations.proofs.iter().filter(|(id, _)| !known.contains(id)) {
        faults.push(format!("{id} is cited by {} and is no line of any specification", join(proofs)));
    }
    faults
}

/// Returns the ids of rules without a proof.
#[must_use]
pub fn unproven<'a>(requirements: &'a [Requirement], citations: &Citations) -> Vec<&'a str> {
    requirements
        .iter()
        .filter(|requirement| {
            requirement.standing == ProofStatus::Rule && !citations.proofs.contains_key(&requirement.id)
        })
        .map(|requirement| requirement.id.as_str())
        .collect()
}

/// Returns the ids that are pending for a part.
#[must_use]
pub fn pending_for<'a>(requirements: &'a [Requirement], part: &str) -> Vec<&'a str> {
    let pending = requirements
        .iter()
        .filter(|requirement| matches!(&requirement.standing, ProofStatus::Pending(to) if to == part));
    pending.map(|requirement| requirement.id.as_str()).collect()
}

/// Renders `docs/requirements.md`.
#[must_use]
pub fn render(requirements: &[Requirement], citations: &Citations) -> String {
    let mut page = String::from(
        "# Requirements and their proofs\n\n\
         Made by `UPDATE_DOCS=1 cargo test -p longshore-testkit --test traceability` from\n\
         [requirements.txt](../crates/testkit/requirements.txt) and from what the tests cite; do not edit it by hand. Open points of\n\
         the specifications are settled in [rulings.md](rulings.md), words in [glossary.md](glossary.md).\n\n",
    );
    render_counts(&mut page, requirements, citations);
    for (letter, name) in SPECIFICATIONS {
        let _ = write!(page, "\n## {letter}: {name}\n\n| id | in our words | proven by |\n| --- | --- | --- |\n");
        for requirement in of_specification(requirements, letter) {
            let proofs = citations.proofs.get(&requirement.id).map(join);
            let standing = match (&requirement.standing, proofs) {
                (ProofStatus::Rule, Some(proofs)) => proofs,
                (ProofStatus::Rule, None) => "**not proven**".to_owned(),
                (ProofStatus::Informative(how), None) => format!("informative: {how}"),
                (ProofStatus::Informative(how), Some(proofs)) => format!("informative: {how}; {proofs}"),
                (ProofStatus::Pending(part), None) => format!("pending: {part}"),
                (ProofStatus::Pending(part), Some(proofs)) => format!("pending: {part}; so far {proofs}"),
            };
            let _ = writeln!(page, "| {} | {} | {standing} |", requirement.id, requirement.words);
        }
    }
    rulings::render(&mut page, &citations.rulings);
    page
}

fn render_counts(page: &mut String, requirements: &[Requirement], citations: &Citations) {
    page.push_str(
        "| specification | lines | proven | not proven | informative | owed |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    let mut totals = [0; 5];
    for (letter, name) in SPECIFICATIONS {
        let mut counts = [0; 5];
        for requirement in of_specification(requirements, letter) {
            counts[0] += 1;
            match &requirement.standing {
                ProofStatus::Rule if citations.proofs.contains_key(&requirement.id) => counts[1] += 1,
                ProofStatus::Rule => counts[2] += 1,
                ProofStatus::Informative(_) => counts[3] += 1,
                ProofStatus::Pending(_) => counts[4] += 1,
            }
        }
        let _ = writeln!(page, "| {letter} {name} | {} |", counts.map(|n| n.to_string()).join(" | "));
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    let _ = writeln!(page, "| all | {} |\n", totals.map(|n| n.to_string()).join(" | "));
    page.push_str("| owed to | lines | which |\n| --- | --- | --- |\n");
    for part in PARTS {
        let ids = pending_for(requirements, part);
        if !ids.is_empty() {
            let _ = writeln!(page, "| {part} | {} | {} |", ids.len(), ids.join(", "));
        }
    }
}

fn of_specification(requirements: &[Requirement], letter: char) -> impl Iterator<Item = &Requirement> {
    requirements.iter().filter(move |requirement| requirement.id.starts_with(letter))
}

fn join(proofs: &BTreeSet<String>) -> String {
    proofs.iter().map(|proof| format!("`{proof}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(text: &str) -> Citations {
        let mut citations = Citations::default();
        cite_rust("crates/core/src/engine/ready.rs", text, &mut citations);
        citations
    }

    fn ids(citations: &Citations) -> Vec<&str> {
        citations.proofs.keys().map(String::as_str).collect()
    }

    #[test]
    fn specifications_have_331_lines() {
        let ids = all_ids();
        let of = |letter: char| ids.iter().filter(|id| id.starts_with(letter)).count();
        assert_eq!((of('G'), of('T'), of('O'), of('I'), of('L')), (118, 36, 56, 66, 55));
        assert_eq!(ids.len(), 331);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 331);
    }

    #[test]
    fn citation_names_test_below() {
        let citations = cited("/// Proves G-4.6, T-21.\n#[test]\nfn an_orphan_is_taken_back() {\n");
        assert_eq!(ids(&citations), ["G-4.6", "T-21"]);
        assert!(citations.proofs["T-21"].contains("core::engine::ready::an_orphan_is_taken_back"));
        assert_eq!(citations.faults, Vec::<String>::new());
    }

    #[test]
    fn citation_lists_span_lines_and_ranges() {
        let citations = cited(
            "/// What happens then.\n/// Proves I-1, I-2 and\n/// I-3.\n/// Proves L-16 to L-18: nothing goes back.\n/// More prose.\n#[test]\n#[should_panic]\nfn x() {}\n",
        );
        assert_eq!(ids(&citations), ["I-1", "I-2", "I-3", "L-16", "L-17", "L-18"]);
        assert_eq!(citations.faults, Vec::<String>::new());
    }

    #[test]
    fn test_inside_macro_counts() {
        let citations =
            cited("proptest! {\n    /// Proves I-53.\n    #[test]\n    fn waits_are_bounded(seed: u64) {\n");
        assert!(citations.proofs["I-53"].contains("core::engine::ready::waits_are_bounded"));
    }

    #[test]
    fn citation_without_test_is_reported() {
        for text in [
            "/// Proves G-1.1.\nfn helper() {}\n",
            "/// Proves G-1.1.\nstruct Job;\n",
            "/// Proves G-1.1.\n#[test]\n#[ignore]\nfn later() {}\n",
            "/// Proves G-1.1.\n\n\n\n\n\n\n#[test]\nfn too_far() {}\n",
        ] {
            let citations = cited(text);
            assert_eq!(citations.faults.len(), 1, "{text}");
            assert!(citations.proofs.is_empty(), "{text}");
        }
    }

    #[test]
    fn invalid_id_is_reported() {
        let citations = cited("/// Proves everything, T-21.\n#[test]\nfn x() {}\n");
        assert_eq!(citations.faults, ["crates/core/src/engine/ready.rs:1: 'everything' is not an id"]);
        let unknown = cited("/// Proves G-4.10.\n#[test]\nfn x() {}\n");
        assert_eq!(citation_faults(&unknown).len(), 1);
        let backwards = cited("/// Proves T-9 to T-4.\n#[test]\nfn x() {}\n");
        assert_eq!(backwards.faults.len(), 1);
    }

    #[test]
    fn scenario_lines_cite() {
        let mut citations = Citations::default();
        cite_scenario("scenarios/orphan.txt", "# proves T-1\nproves G-4.6 T-21\nsubmit a\n", &mut citations);
        assert_eq!(ids(&citations), ["G-4.6", "T-21"]);
        assert!(citations.proofs["G-4.6"].contains("scenarios/orphan.txt"));
    }

    #[test]
    fn rule_without_proof_is_reported() {
        let (requirements, faults) = read_table(
            "G-4.6 | rule | an orphan is taken back\nT-3 | informative | handle repetitions | ids\nT-14 | pending:worker | stop signal\n",
        );
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(unproven(&requirements, &Citations::default()), ["G-4.6"]);
        let proven = cited("/// Proves G-4.6.\n#[test]\nfn orphan() {}\n");
        assert_eq!(unproven(&requirements, &proven), Vec::<&str>::new());
        assert_eq!(pending_for(&requirements, "worker"), ["T-14"]);

        let page = render(&requirements, &Citations::default());
        assert!(page.contains("| G-4.6 | an orphan is taken back | **not proven** |"));
        assert!(page.contains("| T-3 | handle repetitions | informative: ids |"));
        assert!(page.contains("| T-14 | stop signal | pending: worker |"));
        assert!(render(&requirements, &proven).contains("| `core::engine::ready::orphan` |"));
    }

    #[test]
    fn faulty_table_lists_all_faults() {
        let (requirements, faults) = read_table(
            "G-1.1 | rule | one\nG-1.1 | rule | again\nG-9.9 | rule | none\nT-1 | owed:moon | x\nT-2 rule\n",
        );
        assert_eq!(faults.len(), 2);
        let faults = table_faults(&requirements);
        assert!(faults.contains(&"G-1.1 is listed twice".to_owned()));
        assert!(faults.iter().any(|fault| fault.starts_with("G-9.9 is listed and is no line")));
        assert_eq!(faults.iter().filter(|fault| fault.ends_with("is not listed")).count(), 330);
    }
}
